//! A group of Services that share proxies, from the point of view of one member.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::LABEL;
use super::claim::Claim;
use super::fields::text;
use super::ports::{Shared, shared_of};
use crate::crd::ProxyServiceSpec;

/// The observed state of a group, from the point of view of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The `ProxyService`s of the group, oldest first. They are valid, apply to their Services and are not being
    /// deleted.
    pub claims: Vec<Claim>,
    /// The target Services of the other members, including those that are joining or leaving.
    pub targets: Vec<Value>,
    /// `NAMESPACE/POD` of the proxies that are ready and not terminating.
    pub ready: BTreeSet<String>,
    /// Ports on which proxies report that they listen, by `NAMESPACE/POD`.
    pub listening: BTreeMap<String, BTreeSet<u16>>,
}

/// Returns a field of `spec` that must be equal in a group, but differs between two members. The value of the older
/// member applies; a younger one may omit the field.
#[must_use]
pub fn contradicts(older: &ProxyServiceSpec, younger: &ProxyServiceSpec) -> Option<&'static str> {
    let count = younger.replicas.filter(|count| {
        let fixed = older.autoscaling.is_none();
        !fixed || *count != older.replicas()
    });
    let (scaled, asked) = (&younger.autoscaling, &younger.resources);
    let drain = younger.drain_seconds.is_some();
    let (account, own) = (&older.service_account_name, &younger.service_account_name);
    [
        (
            "autoscaling",
            scaled.is_some() && *scaled != older.autoscaling,
        ),
        (
            "drainSeconds",
            drain && younger.drain_seconds() != older.drain_seconds(),
        ),
        ("replicas", count.is_some()),
        ("resources", asked.is_some() && *asked != older.resources),
        ("serviceAccountName", own.is_some() && own != account),
    ]
    .into_iter()
    .find_map(|(field, differs)| differs.then_some(field))
}

impl Group {
    /// Observes the group from the point of view of one member. `claims` are all of the namespace, oldest first, and
    /// `targets` are all target Services of the group. `listening` is left empty.
    #[must_use]
    pub fn of(
        service: &str,
        group: &str,
        claims: Vec<Claim>,
        targets: Vec<Value>,
        ready: BTreeSet<String>,
    ) -> Self {
        let mut services = BTreeSet::new();
        let own = claims.into_iter();
        let own = own.filter(|claim| !claim.is_wide && !claim.deleting);
        // If two are for the same Service, the older one applies.
        let holding = own.filter(|claim| services.insert(claim.service.clone()));
        let is_member = |claim: &Claim| {
            let spec = claim.spec.as_ref().ok();
            spec.is_some_and(|spec| spec.group.as_deref() == Some(group))
        };
        let is_other = |target: &Value| {
            let of = target["metadata"]["labels"][LABEL].as_str();
            of.is_some_and(|of| of != service)
        };
        Self {
            claims: holding.filter(is_member).collect(),
            targets: targets.into_iter().filter(is_other).collect(),
            ready,
            listening: BTreeMap::new(),
        }
    }

    /// Returns whether the proxies have no other owner.
    pub(super) fn is_alone(&self) -> bool {
        self.targets.is_empty()
    }

    /// Returns whether all proxies that receive requests listen on the ports.
    pub(super) fn listens(&self, ports: &Shared) -> bool {
        let listens = |proxy: &String| {
            let there = self.listening.get(proxy);
            there.is_some_and(|there| ports.values().all(|port| there.contains(port)))
        };
        !self.ready.is_empty() && self.ready.iter().all(listens)
    }

    /// Returns a member's specification with the fields that are common to the group.
    pub(super) fn spec(&self, own: &ProxyServiceSpec) -> ProxyServiceSpec {
        let oldest = self
            .claims
            .first()
            .and_then(|claim| claim.spec.as_ref().ok());
        let Some(oldest) = oldest.cloned() else {
            return own.clone();
        };
        ProxyServiceSpec {
            autoscaling: oldest.autoscaling,
            drain_seconds: oldest.drain_seconds,
            replicas: oldest.replicas,
            resources: oldest.resources,
            service_account_name: oldest.service_account_name,
            ..own.clone()
        }
    }

    /// Returns the owners of the shared objects: all related Services. The objects are deleted with the last of them.
    pub(super) fn owners(&self, own: Value) -> Vec<Value> {
        let others = self.targets.iter();
        let others = others.filter_map(|target| target["metadata"]["ownerReferences"].as_array());
        let all = others.flatten().map(owner).chain([own]);
        let by_uid = all.map(|owner| (text(&owner["uid"]).to_owned(), owner));
        by_uid.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Returns the ports of other members. If two members have the same port, the first one by name keeps it.
    pub(super) fn taken(&self, name: &str, before: &Shared) -> BTreeSet<u16> {
        let kept = |target: &Value, port: u16| {
            let first = text(&target["metadata"]["labels"][LABEL]) < name;
            first || !before.values().any(|own| *own == port)
        };
        let ports = self.targets.iter().flat_map(|target| {
            let ports = shared_of(target).into_values();
            ports.filter(move |port| kept(target, *port))
        });
        ports.collect()
    }
}

/// Reduces an owner reference to its identity.
fn owner(reference: &Value) -> Value {
    json!({
        "apiVersion": reference["apiVersion"],
        "kind": reference["kind"],
        "name": reference["name"],
        "uid": reference["uid"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(more: &str) -> ProxyServiceSpec {
        serde_yaml::from_str(&format!("{{targetRef: {{name: web}}, group: low{more}}}")).unwrap()
    }

    #[test]
    fn members_hold_for_their_services() {
        let claim = |name: &str, service: &str, group: Value| {
            Claim::read(&json!({
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"targetRef": {"name": service}, "group": group},
            }))
        };
        let claims = vec![
            claim("a", "web", json!("low")),
            claim("b", "cart", json!(null)),
            claim("c", "cart", json!("low")),
            claim("d", "db", json!("other")),
            claim("e", "mail", json!("low")),
        ];
        let target = |of: &str| json!({"metadata": {"labels": {LABEL: of}}});
        let targets = vec![target("web"), target("mail")];
        let group = Group::of("web", "low", claims, targets, BTreeSet::new());
        let names: Vec<&str> = group.claims.iter().map(|one| &*one.key.name).collect();
        assert_eq!(names, ["a", "e"]);
        assert_eq!(group.targets, [target("mail")]);
        assert!(!group.is_alone());
    }

    #[test]
    fn a_conflicting_field_is_named() {
        for (older, younger, field) in [
            ("", "", None),
            (", replicas: 2", "", None),
            (", replicas: 2", ", replicas: 2", None),
            ("", ", replicas: 1, drainSeconds: 30", None),
            ("", ", replicas: 2", Some("replicas")),
            (
                ", autoscaling: {maxReplicas: 3}",
                ", replicas: 1",
                Some("replicas"),
            ),
            ("", ", autoscaling: {maxReplicas: 3}", Some("autoscaling")),
            (
                ", drainSeconds: 60",
                ", drainSeconds: 30",
                Some("drainSeconds"),
            ),
            ("", ", resources: {requests: {cpu: 50m}}", Some("resources")),
            ("", ", serviceAccountName: edge", Some("serviceAccountName")),
            // Each member has its own value of these fields.
            (", policy: random", ", policy: lor(choices=all)", None),
        ] {
            assert_eq!(
                contradicts(&spec(older), &spec(younger)),
                field,
                "{older}; {younger}"
            );
        }
    }

    #[test]
    fn all_that_are_ready_have_to_listen() {
        let group = |ready: &[&str], listening: &[(&str, u16)]| Group {
            ready: ready.iter().map(|one| (*one).to_owned()).collect(),
            listening: listening
                .iter()
                .map(|(one, port)| ((*one).to_owned(), BTreeSet::from([*port])))
                .collect(),
            ..Group::default()
        };
        let ports = Shared::from([(80, 20_001)]);
        assert!(group(&["a"], &[("a", 20_001), ("b", 1)]).listens(&ports));
        assert!(!group(&["a", "b"], &[("a", 20_001), ("b", 1)]).listens(&ports));
        assert!(!group(&["a", "b"], &[("a", 20_001)]).listens(&ports));
        assert!(!group(&[], &[("a", 20_001)]).listens(&ports));
    }

    #[test]
    fn a_port_is_the_first_ones() {
        let target = |name: &str, ports: &str| {
            let annotations = json!({crate::index::facts::service::PROXY_PORTS: ports});
            json!({"metadata": {"labels": {LABEL: name}, "annotations": annotations}})
        };
        let group = Group {
            targets: vec![
                target("cart", "80=20001"),
                target("zoo", "80=20002,81=20003"),
            ],
            ..Group::default()
        };
        let before = Shared::from([(80, 20_001), (81, 20_002)]);
        // Cart keeps its ports; zoo abandons the ports that it has taken since.
        assert_eq!(
            group.taken("web", &before),
            BTreeSet::from([20_001, 20_003])
        );
        assert_eq!(group.taken("web", &Shared::new()).len(), 3);
    }
}
