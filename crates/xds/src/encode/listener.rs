//! Encodes listeners, which have no socket.

use super::{EncodeError, ads, any, route};
use crate::Listener;
use crate::extension_types::{HTTP_TYPE, ROUTER_TYPE, TCP_TYPE};
use crate::proto::envoy::config::listener::v3::{self as wire, ApiListener, filter::ConfigType};
use crate::proto::envoy::extensions::filters::http::router::v3::Router;
use crate::proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use crate::proto::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};

pub(super) fn encode(name: &str, listener: &Listener) -> Result<wire::Listener, EncodeError> {
    let mut other = None;
    let routes = match listener {
        Listener::Http { routes, bytes } => {
            other = bytes.as_deref();
            RouteSpecifier::Rds(Rds {
                config_source: Some(ads()),
                route_config_name: routes.clone(),
            })
        }
        Listener::Inline(table) => RouteSpecifier::RouteConfig(route::encode(table)?.1),
        Listener::Tcp { cluster } => return Ok(tcp(name, cluster)),
    };
    let router = HttpFilter {
        name: "envoy.filters.http.router".to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(
            ROUTER_TYPE,
            &Router {},
        ))),
        is_optional: false,
    };
    let manager = HttpConnectionManager {
        stat_prefix: name.to_owned(),
        route_specifier: Some(routes),
        http_filters: vec![router],
    };
    Ok(wire::Listener {
        name: name.to_owned(),
        api_listener: Some(ApiListener {
            api_listener: Some(any(HTTP_TYPE, &manager)),
        }),
        // Clients that read only the API listener treat all connections as HTTP.
        filter_chains: other
            .map(|cluster| chain(name, cluster))
            .into_iter()
            .collect(),
        ..wire::Listener::default()
    })
}

fn tcp(name: &str, cluster: &str) -> wire::Listener {
    wire::Listener {
        name: name.to_owned(),
        filter_chains: vec![chain(name, cluster)],
        ..wire::Listener::default()
    }
}

/// Returns a filter chain that forwards connections to a cluster.
fn chain(name: &str, cluster: &str) -> wire::FilterChain {
    let proxy = TcpProxy {
        stat_prefix: name.to_owned(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
    };
    let filter = wire::Filter {
        name: "envoy.filters.network.tcp_proxy".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(TCP_TYPE, &proxy))),
    };
    wire::FilterChain {
        filters: vec![filter],
    }
}
