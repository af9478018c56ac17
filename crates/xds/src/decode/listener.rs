//! Decodes listeners: the routes of a name, or its cluster.

use prost_types::Any;

use super::{DecodeError, Fault, route, unsupported};
use crate::extension_types::{HTTP_TYPE, ROUTER_TYPE, TCP_TYPE};
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::config::listener::v3::{self as wire, filter::ConfigType};
use crate::proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter,
};
use crate::proto::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy, tcp_proxy::ClusterSpecifier,
};
use crate::{Kind, Listener};

pub(super) fn decode(name: &str, message: &wire::Listener) -> Result<Listener, DecodeError> {
    let of = |fault: Fault| fault.of(Kind::Listener, name);
    let api = message.api_listener.as_ref();
    let filter = match api.and_then(|api| api.api_listener.as_ref()) {
        Some(filter) => filter,
        None => only_filter(message).map_err(of)?,
    };
    match filter.type_url.as_str() {
        HTTP_TYPE => {
            let manager =
                typed::<HttpConnectionManager>(filter, &unsupported::HTTP_CONNECTION_MANAGER)
                    .map_err(of)?;
            let beside = api.is_some() && !message.filter_chains.is_empty();
            let other = match beside {
                true => Some(only_filter(message).and_then(tcp).map_err(of)?),
                false => None,
            };
            http(name, manager, other)
        }
        TCP_TYPE => Ok(Listener::Tcp {
            cluster: tcp(filter).map_err(of)?,
        }),
        other => Err(of(Fault::new(
            "filters",
            format!("{other} is not supported"),
        ))),
    }
}

/// Returns the only network filter of a listener.
fn only_filter(message: &wire::Listener) -> Result<&Any, Fault> {
    let fault = || {
        Fault::new(
            "filter_chains",
            "expected an api_listener, or one filter chain with one filter",
        )
    };
    let [chain] = message.filter_chains.as_slice() else {
        return Err(fault());
    };
    let [filter] = chain.filters.as_slice() else {
        return Err(fault());
    };
    match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) => Ok(any),
        None => Err(fault()),
    }
}

/// Decodes the cluster to which TCP connections are forwarded.
fn tcp(filter: &Any) -> Result<String, Fault> {
    if filter.type_url != TCP_TYPE {
        return Err(Fault::unsupported(format!(
            "filter_chains: {}",
            filter.type_url
        )));
    }
    match typed::<TcpProxy>(filter, &unsupported::TCP_PROXY)?.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => Ok(cluster),
        None => Err(Fault::unsupported("tcp_proxy.cluster_specifier")),
    }
}

/// Decodes a filter, and rejects its unsupported fields.
fn typed<M: prost::Message + Default>(
    any: &Any,
    fields: &unsupported::Message,
) -> Result<M, Fault> {
    let place = match any.type_url.as_str() {
        TCP_TYPE => "tcp_proxy",
        _ => "http_connection_manager",
    };
    let decoded = M::decode(any.value.as_slice());
    let decoded = decoded.map_err(|error| Fault::new(place, error.to_string()))?;
    unsupported::refuse(fields, &any.value).map_err(|fault| fault.within(place))?;
    Ok(decoded)
}

fn http(
    name: &str,
    manager: HttpConnectionManager,
    bytes: Option<String>,
) -> Result<Listener, DecodeError> {
    let of = |fault: Fault| fault.of(Kind::Listener, name);
    for filter in &manager.http_filters {
        known(filter).map_err(of)?;
    }
    match manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => {
            let source = rds.config_source.and_then(|s| s.config_source_specifier);
            match source {
                Some(ConfigSourceSpecifier::Ads(_) | ConfigSourceSpecifier::Self_(_)) => {}
                None => {
                    let fault =
                        Fault::new("rds.config_source", "the config source must be ads or self");
                    return Err(of(fault));
                }
            }
            if rds.route_config_name.is_empty() {
                return Err(of(Fault::new("rds.route_config_name", "the name is empty")));
            }
            Ok(Listener::Http {
                routes: rds.route_config_name,
                bytes,
            })
        }
        Some(RouteSpecifier::RouteConfig(mut config)) => {
            if config.name.is_empty() {
                name.clone_into(&mut config.name);
            }
            Ok(Listener::Inline(Box::new(route::decode(&config)?)))
        }
        None => Err(of(Fault::unsupported("route_specifier"))),
    }
}

/// Rejects unknown filters, because a filter that changes requests must not be ignored.
fn known(filter: &HttpFilter) -> Result<(), Fault> {
    let router = match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(any)) => any.type_url == ROUTER_TYPE,
        None => filter.name == "envoy.filters.http.router",
    };
    let place = format!("http_filters `{}`", filter.name);
    match &filter.config_type {
        Some(http_filter::ConfigType::TypedConfig(any)) if router => {
            let checked = unsupported::refuse(&unsupported::ROUTER, &any.value);
            checked.map_err(|fault| fault.within(&place))
        }
        _ if router || filter.is_optional => Ok(()),
        _ => Err(Fault::unsupported(place)),
    }
}
