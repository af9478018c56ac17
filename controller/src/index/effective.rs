//! Computes the effective policy of a port of a Service: merges the levels, beginning with the innermost.

use maglor_config::raw;

use super::Index;
use super::facts::{Key, TrafficPolicy};
use crate::crd::{LocalFirst, merge_cluster, merge_route};

/// The effective policy of a port: all levels merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Effective {
    pub(super) cluster: raw::Cluster,
    pub(super) route: raw::Route,
    /// Whether connections to the port use no TLS, even inside the mesh.
    pub(super) plain_text: bool,
    /// Preference for endpoints on the caller's node; `None` if it is disabled.
    pub(super) local_first: Option<LocalFirst>,
}

/// The distance of a policy from a port. The closest policy wins.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Port,
    Service,
    Namespace,
    /// Generated from observations (`TuningPolicy`). Applies only where no policy of a user does, at any level.
    Generated,
}

impl Level {
    pub(super) const ALL: [Self; 4] = [Self::Port, Self::Service, Self::Namespace, Self::Generated];

    /// Returns the level of a policy for a Service as a whole, or for one of its ports.
    pub(super) fn of_target(policy: &TrafficPolicy, port: Option<u16>) -> Self {
        match (policy.generated, port) {
            (true, _) => Self::Generated,
            (false, None) => Self::Service,
            (false, Some(_)) => Self::Port,
        }
    }
}

/// Returns the level of a policy for a port; `None` if the policy does not apply to the port.
fn level(policy: &TrafficPolicy, service: &str, port: u16) -> Option<Level> {
    let spec = policy.spec.value.as_ref()?;
    if spec.target_refs.is_empty() {
        return Some(Level::Namespace);
    }
    let targets = spec
        .target_refs
        .iter()
        .filter(|target| target.name == service);
    let about = targets.filter(|target| target.port.is_none_or(|one| one == port));
    let levels = about.map(|target| Level::of_target(policy, target.port));
    levels.min()
}

/// Returns the winning policy of a level: the oldest valid one.
pub(super) fn winner<'a>(
    index: &'a Index,
    service: &Key,
    port: u16,
    at: Level,
) -> Option<(&'a Key, &'a TrafficPolicy)> {
    let at_level = |policy: &TrafficPolicy| level(policy, &service.name, port) == Some(at);
    let policies = index.in_namespace(&index.traffic, &service.namespace);
    policies
        .filter(|(_, policy)| at_level(policy))
        .min_by(|(_, one), (_, other)| one.age.cmp(&other.age))
}

/// Returns the effective policy of a port, or of a subset of the pods behind it. The level of an Istio
/// `DestinationRule` is between the policies for the Service and those for its namespace.
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
    reconcile(&mut effective.cluster);
    effective
}

/// Removes settings of one level that are invalid in combination with another level, because proxies would reject the
/// whole cluster.
fn reconcile(cluster: &mut raw::Cluster) {
    let by_grpc = |check: &mut raw::Short<raw::HealthCheck>| check.0.grpc.is_some();
    if cluster.protocol == Some(raw::UpstreamProtocol::Http1) {
        cluster.health_check.take_if(by_grpc);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::index::facts::{Kind, Object};
    use crate::index::status;

    fn policy(name: &str, generated: bool, spec: &Value) -> Value {
        let labels = match generated {
            true => json!({"maglor.dev/tuned-by": "shop"}),
            false => json!({}),
        };
        json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "TrafficPolicy",
               "metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": spec})
    }

    /// Policies of users take precedence over generated ones field by field, regardless of age and level.
    #[test]
    fn generated_settings_apply_by_default() {
        let mut index = Index::default();
        let mut apply = |value: &Value| {
            index.apply(Object::read(value).unwrap());
            let effective = of(&index, &Key::new("shop", "web"), 80, None);
            let limits = effective
                .cluster
                .limits
                .and_then(|limits| limits.max_requests);
            let timeout = effective.route.timeout.map(|span| span.0.as_secs());
            let reported = |name| status::of(&index, Kind::TrafficPolicy, &Key::new("shop", name));
            let reported = reported("a-generated").map(|status| status.to_json());
            let reported = reported.map_or(json!(null), |reported| {
                reported["conditions"][0]["reason"].clone()
            });
            (limits, timeout, reported)
        };
        apply(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}));
        let web = json!([{"name": "web"}]);
        let both = json!({"targetRefs": web, "cluster": {"limits": {"max_requests": 32}},
                          "route": {"timeout": "1s"}});
        let accepted = json!("Accepted");
        let seen = apply(&policy("a-generated", true, &both));
        assert_eq!(seen, (Some(32), Some(1), accepted.clone()));
        let own = json!({"targetRefs": web, "route": {"timeout": "2s"}});
        let seen = apply(&policy("own", false, &own));
        assert_eq!(seen, (Some(32), Some(2), accepted.clone()));
        let all = json!({"cluster": {"limits": {"max_requests": 64}}, "route": {"timeout": "3s"}});
        let seen = apply(&policy("z", false, &all));
        assert_eq!(seen, (Some(64), Some(2), accepted.clone()));
        let mesh = json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "MeshConfig",
            "metadata": {"name": "default"}, "spec": {"route": {"timeout": "4s"}}});
        assert_eq!(apply(&mesh), (Some(64), Some(2), accepted));
    }
}
