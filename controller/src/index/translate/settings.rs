//! The merged policies of a Service's port, or of a subset of the pods behind it.

use maglor_balance::PolicySpec;
use maglor_config::raw;

use super::upstream;
use crate::crd::LocalFirst;
use crate::index::Index;
use crate::index::effective;
use crate::index::facts::{Key, Service, ServicePort};

/// The merged policies of a cluster.
pub(super) struct Settings {
    pub(super) cluster: raw::Cluster,
    pub(super) route: raw::Route,
    pub(super) plain_text: bool,
    /// The slack if calls should stay on their node, otherwise `None`.
    pub(super) local_first: Option<f64>,
}

/// Returns the merged policies of a port, or of a subset of the pods behind it.
pub(super) fn settings(
    index: &Index,
    key: &Key,
    service: &Service,
    port: &ServicePort,
    subset: Option<&str>,
) -> Settings {
    let effective = effective::of(index, key, port.port, subset);
    let (mut cluster, mut route) = (effective.cluster, effective.route);
    cluster.protocol.get_or_insert(upstream(port.protocol));
    if service.client_affinity && cluster.policy.is_none() {
        cluster.policy = "maglev".parse::<PolicySpec>().ok();
        if route.hash_policy.is_empty() {
            route.hash_policy.push(raw::HashPolicy {
                source_address: Some(true),
                ..raw::HashPolicy::default()
            });
        }
    }
    Settings {
        cluster,
        route,
        plain_text: effective.plain_text || index.passes_bytes(key, port.protocol),
        local_first: effective.local_first.map(LocalFirst::slack),
    }
}

/// Returns the merged policies for requests to a port, or to a subset of the pods behind it; empty if there is no
/// such port.
pub(super) fn route_policy(
    index: &Index,
    key: &Key,
    port: u16,
    subset: Option<&str>,
) -> raw::Route {
    let service = index.services.get(key);
    let found = service.and_then(|service| Some((service, service.port(port)?)));
    found.map_or_else(raw::Route::default, |(service, port)| {
        settings(index, key, service, port, subset).route
    })
}
