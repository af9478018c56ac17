//! Compiles a discovered target for a filter chain: its route table, and its cluster for non-HTTP traffic.

use std::sync::Arc;

use maglor_config as config;
use maglor_xds::discovery::Target;

use crate::control::app::App;
use crate::routing::on_demand::{Discovered, OnDemand};
use crate::routing::route::Table;

/// Returns the compiled form of a target.
pub(super) fn compile(app: &App, chain: &OnDemand, name: &str, target: &Target) -> Discovered {
    let cluster = |name: &Arc<str>| app.clusters().get(name);
    match target {
        Target::Absent | Target::Pending => Discovered::default(),
        Target::Http { routes, bytes } => Discovered {
            table: table(app, chain, name, routes),
            bytes: bytes.as_ref().and_then(cluster),
        },
        Target::Tcp(name) => Discovered {
            table: None,
            bytes: cluster(name),
        },
    }
}

/// Compiles the route table of a target. It contains the target's virtual host, for any host name, or all virtual
/// hosts if the chain selects by the host of each request.
fn table(
    app: &App,
    chain: &OnDemand,
    name: &str,
    routes: &config::RouteTable,
) -> Option<Arc<Table>> {
    let metrics = &app.shared().metrics;
    let one = match chain.settings.by_virtual_host {
        true => None,
        false => Some(config::RouteTable {
            name: Arc::clone(&routes.name),
            virtual_hosts: vec![config::VirtualHost {
                domains: vec![config::Domain::Any],
                ..host_of(routes, name)?.clone()
            }],
        }),
    };
    let whole = one.as_ref().unwrap_or(routes);
    let table = Table::compile(whole, &chain.listener, app.clusters(), metrics, None, None);
    Some(Arc::new(table))
}

/// Returns the virtual host of a target: the one with exactly the target's name, with or without port, or else the
/// most specific match. For a target that is an address, the name of the route table is used.
fn host_of<'a>(routes: &'a config::RouteTable, name: &str) -> Option<&'a config::VirtualHost> {
    let find = |name: &str| {
        let bare = crate::routing::route::without_port(name);
        let rank = |domain: &config::Domain| match domain {
            config::Domain::Exact(exact) if exact == name => Some(usize::MAX),
            config::Domain::Exact(exact) if exact == bare => Some(usize::MAX - 1),
            config::Domain::Suffix(suffix) if bare.ends_with(suffix.as_str()) => {
                Some((1 << 20) + suffix.len())
            }
            config::Domain::Prefix(prefix) if bare.starts_with(prefix.as_str()) => {
                Some(1 + prefix.len())
            }
            config::Domain::Any => Some(0),
            _ => None,
        };
        let best = |host: &config::VirtualHost| host.domains.iter().filter_map(rank).max();
        let ranked = routes.virtual_hosts.iter();
        let ranked = ranked.filter_map(|host| Some((best(host)?, host)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, host)| host)
    };
    find(name).or_else(|| find(&routes.name))
}
