//! The shared proxies of a group of Services.
//!
//! There is one Deployment for all members, created by the first and removed with the last. When a Service joins or
//! leaves, only the Deployment's owners change, so no proxy is restarted: ports are configured by discovery, from the
//! target Services of the members.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::front::SHARED_LABELS;
use super::manifests::{Owned, account_name, marked, pod_labels, text};
use super::observed::{Claim, Observed};
use super::ports::{Shared, allot, shared_of};
use super::refusal::Refusal;
use super::{LABEL, Settings, container};
use crate::crd::ProxyServiceSpec;
use crate::proxy_pod;

/// The observed state of a group, from the view of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The `ProxyService`s in it, the oldest first: valid ones that apply to their Services and are not being
    /// deleted.
    pub claims: Vec<Claim>,
    /// The target Services of the other members, including joining and leaving ones.
    pub targets: Vec<Value>,
    /// `NAMESPACE/POD` of the proxies that are ready and not terminating.
    pub ready: BTreeSet<String>,
    /// The ports on which proxies report to listen, by `NAMESPACE/POD`.
    pub listening: BTreeMap<String, BTreeSet<u16>>,
}

/// Returns a field of `spec` that must be equal in a group, but differs between two members. The older one decides; a
/// younger one may omit the field.
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
    /// Observes the group from the view of one member. `claims` are all of the namespace, the oldest first, and
    /// `targets` all target Services of the group; `listening` is left empty.
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
        // Of two for one Service the older one applies.
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
    fn listens(&self, ports: &Shared) -> bool {
        let listens = |proxy: &String| {
            let there = self.listening.get(proxy);
            there.is_some_and(|there| ports.values().all(|port| there.contains(port)))
        };
        !self.ready.is_empty() && self.ready.iter().all(listens)
    }

    /// Returns why a Service cannot be a member, if it wants to be one.
    pub(super) fn refusal(&self, seen: &Observed, claim: &Claim) -> Option<Refusal> {
        let wanted = claim.spec.as_ref().ok()?.group.as_deref();
        wanted.filter(|_| wanted == seen.front.group())?;
        let own = seen.selected().unwrap_or_default().own;
        if !own.keys().any(|key| SHARED_LABELS.contains(&key.as_str())) {
            return Some(Refusal::UncommonLabels(seen.name.clone()));
        }
        let oldest = self
            .claims
            .first()
            .filter(|oldest| oldest.uid != claim.uid)?;
        let (older, younger) = (oldest.spec.as_ref().ok()?, claim.spec.as_ref().ok()?);
        let field = contradicts(older, younger)?;
        Some(Refusal::Contradiction {
            field,
            older: oldest.key.name.clone(),
        })
    }

    /// Returns a member's specification with the fields that are common to the group.
    fn spec(&self, own: &ProxyServiceSpec) -> ProxyServiceSpec {
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

    /// Returns all related Services as owners of the shared objects, which are deleted with the last of them.
    fn owners(&self, own: Value) -> Vec<Value> {
        let others = self.targets.iter();
        let others = others.filter_map(|target| target["metadata"]["ownerReferences"].as_array());
        let all = others.flatten().map(owner).chain([own]);
        let by_uid = all.map(|owner| (text(&owner["uid"]).to_owned(), owner));
        by_uid.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Returns the ports of other members. If two members have the same port, the first by name keeps it.
    fn taken(&self, name: &str, before: &Shared) -> BTreeSet<u16> {
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

impl Observed {
    /// Returns the specification in force for the proxies of a Service.
    pub(super) fn in_force(&self, own: &ProxyServiceSpec) -> ProxyServiceSpec {
        match &self.group {
            Some(group) => group.spec(own),
            None => own.clone(),
        }
    }

    /// Returns the owner of the proxies' objects.
    pub(super) fn owned(&self, service: &Value) -> Owned {
        let own = Owned::by_service(self.front.clone(), service);
        match &self.group {
            Some(group) => Owned {
                owners: own
                    .owners
                    .into_iter()
                    .flat_map(|own| group.owners(own))
                    .collect(),
                ..own
            },
            None => own,
        }
    }

    /// Returns the shared proxies' ports for a Service, which has its own target ports; empty if it has dedicated
    /// proxies.
    pub(super) fn allotted(&self, service: &Value) -> Shared {
        let Some(group) = &self.group else {
            return Shared::new();
        };
        let target = self.ours(self.target.as_ref());
        let mut before = target.map(shared_of).unwrap_or_default();
        if let Some(selected) = self.selected() {
            // Clients may already be sent to these.
            before.extend(selected.ports.shared);
        }
        allot(service, &before, &group.taken(&self.name, &before))
    }

    /// Returns whether every proxy would accept a connection to the ports.
    pub(super) fn listens(&self, ports: &Shared) -> bool {
        self.group.as_ref().is_none_or(|group| group.listens(ports))
    }
}

/// Returns the Deployment of a group's proxies.
pub(super) fn deployment(owned: &Owned, claim: &ProxyServiceSpec, settings: &Settings) -> Value {
    let (label, group) = owned.front.label();
    let labels = pod_labels(&owned.front, SHARED_LABELS);
    let proxies = json!({label: group});
    let container = container::shared(claim, settings);
    let mut pod = proxy_pod::pod(&proxies, claim.drain_seconds(), &container);
    if let Some(account) = account_name(&owned.front, claim, settings) {
        pod["serviceAccountName"] = json!(account);
    }
    let [identity, cache] = maglor_inject::volumes();
    // Its ports are configured like those of a workload; without an identity it accepts the clients' protocol.
    let (injected, volumes) = match settings.trust_domain.is_some() {
        true => ("true", vec![identity, cache]),
        false => ("outbound", vec![cache]),
    };
    pod["volumes"] = json!(volumes);
    let annotations = json!({maglor_inject::INJECTED: injected});
    let meta = json!({"labels": labels, "annotations": annotations});
    let mut deployment = owned.resource("apps/v1", "Deployment");
    deployment["spec"] = proxy_pod::rollout(&proxies, &meta, &pod);
    if claim.autoscaling.is_none() {
        deployment["spec"]["replicas"] = json!(claim.replicas());
    }
    marked(deployment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_service::Front;

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
            // These are each one's own.
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
    fn proxies_do_not_depend_on_the_members() {
        let settings = Settings {
            trust_domain: Some("mesh.example".into()),
            ..Settings::default()
        };
        let owned = |names: &[&str]| Owned {
            front: Front::Group("low".into()),
            namespace: json!("shop"),
            owners: names.iter().map(|name| json!({"name": name})).collect(),
        };
        let one = deployment(&owned(&["web"]), &spec(", replicas: 2"), &settings);
        let two = deployment(&owned(&["cart", "web"]), &spec(", replicas: 2"), &settings);
        assert_eq!(one["spec"], two["spec"]);
        assert_ne!(
            one["metadata"]["ownerReferences"],
            two["metadata"]["ownerReferences"]
        );
        assert_eq!(one["metadata"]["name"], "low-proxy-group");
        let template = &one["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["app"], "low.group");
        assert_eq!(template["spec"]["serviceAccountName"], "low-proxy-group");
        let container = &template["spec"]["containers"][0];
        assert!(container["ports"].is_null(), "they come and go");
        let args = container["args"].to_string();
        assert!(
            args.contains("--cache-dir") && !args.contains("--forward"),
            "{args}"
        );
        let plain = deployment(&owned(&["web"]), &spec(""), &Settings::default());
        let args = plain["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        assert!(
            args.contains("--plain-text") && args.contains("--cache-dir"),
            "{args}"
        );
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
        // What cart has is cart's; what zoo has taken since is abandoned by zoo.
        assert_eq!(
            group.taken("web", &before),
            BTreeSet::from([20_001, 20_003])
        );
        assert_eq!(group.taken("web", &Shared::new()).len(), 3);
    }
}
