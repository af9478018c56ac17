//! `/routes`: the routes of each listener, and of each host discovered on demand.

use std::sync::Arc;

use maglor_config::route::{Forward, RouteAction};
use serde_json::{Value, json};

use crate::routing::listener::{Chain, HttpChain, Listener};
use crate::routing::route::{Route, Table};
use crate::telemetry::record::direction_name;
use maglor_config::Address;

pub(super) fn describe(listeners: &[(Arc<Listener>, Address)]) -> Value {
    let each = listeners.iter().map(|(listener, bound)| {
        json!({
            "name": &*listener.config.name,
            "direction": direction_name(listener.config.direction),
            "address": bound,
            "chains": listener.chains.iter().map(chain).collect::<Vec<_>>(),
        })
    });
    json!({ "listeners": each.collect::<Vec<_>>() })
}

fn chain(chain: &Chain) -> Value {
    let http = chain.filter.http();
    let bytes = chain.filter.tcp().and_then(|tcp| tcp.cluster.load_full());
    json!({
        "name": &*chain.name,
        "hosts": http.map(hosts).unwrap_or_default(),
        "bytes": bytes.map(|cluster| cluster.name().to_string()),
    })
}

/// Returns the hosts of the chain's own route table, followed by those discovered on demand.
fn hosts(chain: &Arc<HttpChain>) -> Vec<Value> {
    let mut all = table(&chain.routes.load(), None);
    for (host, found) in chain.on_demand.iter().flat_map(|found| found.hosts()) {
        let bytes = found
            .bytes
            .as_ref()
            .map(|cluster| cluster.name().to_string());
        match &found.table {
            Some(found) => {
                let tables = table(found, Some(&host)).into_iter();
                all.extend(tables.map(|one| with_bytes(one, bytes.as_deref())));
            }
            None => {
                // Neither routes nor a cluster: the control plane has no resource of that name.
                let routes = bytes.is_some().then(Vec::<Value>::new);
                let one = json!({"domains": [host], "discovered": true, "routes": routes});
                all.push(with_bytes(one, bytes.as_deref()));
            }
        }
    }
    all
}

/// Adds to a host the cluster for non-HTTP traffic.
fn with_bytes(mut host: Value, cluster: Option<&str>) -> Value {
    host["bytes"] = cluster.into();
    host
}

fn table(table: &Table, discovered: Option<&str>) -> Vec<Value> {
    let hosts = table.hosts().map(|(domains, host)| {
        let domains = discovered.map_or(domains, |host| vec![host.to_owned()]);
        json!({
            "domains": domains,
            "discovered": discovered.is_some(),
            "routes": host.routes.iter().map(route).collect::<Vec<_>>(),
        })
    });
    hosts.collect()
}

fn route(route: &Route) -> Value {
    let config = &route.config;
    let mut value = json!({"name": &*config.name, "match": config.matches.to_string()});
    match &config.action {
        RouteAction::Direct(direct) => value["respond"] = direct.status.as_u16().into(),
        RouteAction::Forward(forward) => forwards(&mut value, forward),
        RouteAction::Redirect(redirect) => value["redirect"] = redirect.status.as_u16().into(),
    }
    value
}

fn forwards(value: &mut Value, forward: &Forward) {
    let clusters = forward.clusters.iter();
    let clusters =
        clusters.map(|one| json!({"name": one.destination.to_string(), "weight": one.weight}));
    value["clusters"] = clusters.collect();
    let timeout = forward.timeout.map(|timeout| timeout.as_millis());
    value["timeout_ms"] = timeout.and_then(|ms| u64::try_from(ms).ok()).into();
    value["retries"] = forward.retry.policy.attempts.into();
    let mirrors = forward.mirrors.iter().map(|mirror| &*mirror.cluster);
    value["mirrors"] = mirrors.collect();
}
