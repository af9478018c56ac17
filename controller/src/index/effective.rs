//! Which policy holds for a port of a Service: the levels, from the innermost outwards.

use maglor_config::raw;

use super::Index;
use super::facts::{Key, TrafficPolicy};
use crate::crd::{LocalFirst, TrafficPolicySpec, merge_cluster, merge_route};

/// What holds for a port of a Service, all levels merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effective {
    pub(super) cluster: raw::Cluster,
    pub(super) route: raw::Route,
    /// No TLS towards it, mesh or not.
    pub(super) plain_text: bool,
    /// Calls stay on their node as far as the endpoints there can take them.
    pub(super) local_first: Option<LocalFirst>,
}

/// How close a policy is to a port: the closer one wins.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Port,
    Service,
    Namespace,
}

impl Level {
    pub(super) const ALL: [Self; 3] = [Self::Port, Self::Service, Self::Namespace];
}

/// At which level a policy speaks about a port.
fn level(spec: &TrafficPolicySpec, service: &str, port: u16) -> Option<Level> {
    if spec.target_refs.is_empty() {
        return Some(Level::Namespace);
    }
    let targets = spec
        .target_refs
        .iter()
        .filter(|target| target.name == service);
    let levels = targets.filter_map(|target| match target.port {
        None => Some(Level::Service),
        Some(one) => (one == port).then_some(Level::Port),
    });
    levels.min()
}

/// The policy that wins at a level: the oldest of those that can be used.
pub(super) fn winner<'a>(
    index: &'a Index,
    service: &Key,
    port: u16,
    at: Level,
) -> Option<(&'a Key, &'a TrafficPolicy)> {
    let at_level = |policy: &TrafficPolicy| {
        let spec = policy.spec.value.as_ref();
        spec.and_then(|spec| level(spec, &service.name, port)) == Some(at)
    };
    let policies = index.in_namespace(&index.traffic, &service.namespace);
    policies
        .filter(|(_, policy)| at_level(policy))
        .min_by(|(_, one), (_, other)| one.age.cmp(&other.age))
}

/// What holds for a port, or for a part of the pods behind it. A `DestinationRule` of Istio's is between
/// the policies for the Service and those for its namespace.
pub(super) fn of(index: &Index, service: &Key, port: u16, subset: Option<&str>) -> Effective {
    let rule = index.destination_rule(service).map(|(_, rule)| rule);
    let settings = rule.map(|rule| rule.settings(port, subset.and_then(|name| rule.subset(name))));
    let settings = settings.unwrap_or_default();
    let hashing = raw::Route {
        hash_policy: settings.hash_policy,
        ..raw::Route::default()
    };
    let mut effective = Effective {
        plain_text: settings.plain_text,
        ..Effective::default()
    };
    let mut local_first = None;
    let mut inherit = |cluster: Option<&raw::Cluster>, route: Option<&raw::Route>| {
        if let Some(cluster) = cluster {
            merge_cluster(&mut effective.cluster, cluster);
        }
        if let Some(route) = route {
            merge_route(&mut effective.route, route);
        }
    };
    for at in Level::ALL {
        if at == Level::Namespace {
            inherit(Some(&settings.cluster), Some(&hashing));
        }
        if let Some((_, policy)) = winner(index, service, port, at)
            && let Some(spec) = &policy.spec.value
        {
            inherit(spec.cluster.as_ref(), spec.route.as_ref());
            local_first = local_first.or(spec.local_first);
        }
    }
    if let Some(mesh) = index.mesh_spec() {
        inherit(mesh.cluster.as_ref(), mesh.route.as_ref());
        local_first = local_first.or(mesh.local_first);
    }
    effective.local_first = local_first.filter(|wish| wish.enabled);
    effective
}
