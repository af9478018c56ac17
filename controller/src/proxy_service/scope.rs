//! Resolves `ProxyService`s without a `targetRef`: they apply to all Services of their namespace or, in the
//! controller's namespace, of the mesh. Determines which `ProxyService` applies to a Service, and which Services each
//! one affects.
//!
//! The order of precedence is: a Service's own `ProxyService`, one of its namespace, one of the mesh. If two have the
//! same scope, the older one takes precedence.

use std::collections::{BTreeMap, BTreeSet};

use maglor_service_graph::policy_choice::Choice;
use serde_json::Value;

use super::fields::text;
use super::observed::{Claim, Observed};
use super::refusal::{self, Refusal};
use super::selector::selected;
use super::sidecars::{self, is_about, policy_name};
use super::{LABEL, target_name};
use crate::crd::ProxyServiceSpec;
use crate::index::facts::Key;

/// The annotation that, with the value `disabled`, excludes a Service from all of them, or a namespace from those of
/// the mesh. Existing proxies are removed.
pub const OPT_OUT: &str = maglor_manifests::inject::keys::AUTO_PROXIES;

/// Returns whether a Service or namespace is excluded.
pub(super) fn opts_out(resource: &Value) -> bool {
    resource["metadata"]["annotations"][OPT_OUT] == "disabled"
}

/// Returns the key of an object.
pub(super) fn key(resource: &Value) -> Key {
    let meta = &resource["metadata"];
    Key::new(text(&meta["namespace"]), text(&meta["name"]))
}

/// Returns the claims that apply to a Service, in order of precedence. `claims` are sorted by age; `root` is the
/// controller's namespace; `closed` is true if the namespace of the Service is excluded.
#[must_use]
pub fn holding(claims: Vec<Claim>, service: &Value, root: &str, closed: bool) -> Vec<Claim> {
    let of = key(service);
    let (wide, own): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|one| one.is_wide);
    let mut holding: Vec<Claim> = own
        .into_iter()
        .filter(|one| one.key.namespace == of.namespace && one.service == of.name)
        .collect();
    let alone = holding.is_empty();
    // An invalid claim changes nothing where it may apply, and is ignored elsewhere.
    let usable = |one: &&Claim| one.spec.is_ok() || alone;
    let wide: Vec<&Claim> = wide.iter().filter(usable).collect();
    let near = |one: &Claim| one.key.namespace == of.namespace;
    for is_near in [true, false] {
        let wide = wide.iter().filter(|one| near(one) == is_near);
        let wide = wide.filter(|one| holds(one, service, root, closed));
        holding.extend(wide.map(|one| (*one).clone()));
    }
    holding
}

fn holds(claim: &Claim, service: &Value, root: &str, closed: bool) -> bool {
    let namespace = text(&service["metadata"]["namespace"]);
    let from = &claim.key.namespace;
    // The mesh's own components must not depend on the mesh.
    let within = match from == root {
        true => namespace != root && !closed,
        false => namespace == from,
    };
    let ours = service["metadata"]["labels"][LABEL].is_string();
    within && !claim.deleting && !ours && !opts_out(service) && selects(claim, service)
}

fn selects(claim: &Claim, service: &Value) -> bool {
    let selector = claim.spec.as_ref().ok();
    let Some(selector) = selector.and_then(|spec| spec.selector.as_ref()) else {
        return true;
    };
    let labels = &service["metadata"]["labels"];
    let there = |(name, value): (&String, &String)| labels[name] == value.as_str();
    selector.match_labels.iter().all(there)
}

/// All Services to which `ProxyService`s without a `targetRef` may apply, observed at once.
#[derive(Clone, Debug, Default)]
pub struct Land {
    /// All `ProxyService`s of the cluster, oldest first.
    pub claims: Vec<Claim>,
    /// Services of all namespaces in the scope of any of them.
    pub services: Vec<Value>,
    /// `TrafficPolicy`s of these namespaces.
    pub policies: Vec<Value>,
    /// Namespaces that are excluded.
    pub closed: BTreeSet<String>,
    /// The controller's namespace, whose `ProxyService`s apply to the mesh.
    pub root: String,
}

/// A Service, and the `ProxyService` that applies to it.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) key: Key,
    pub(super) service: &'a Value,
    pub(super) claim: &'a Claim,
    pub(super) spec: &'a ProxyServiceSpec,
    /// Whether objects were created for the Service: proxies, or a policy of callers' sidecars.
    pub(super) made: bool,
    /// The current balancing mode of the Service.
    pub(super) current: Choice,
    /// Whether another policy sets the load balancing of the Service.
    pub(super) spoken_for: bool,
}

impl Candidate<'_> {
    /// Returns why the Service cannot have proxies, as far as this can be determined from the Service itself.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        refusal::of(&Observed {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            service: Some(self.service.clone()),
            ..Observed::default()
        })
    }
}

/// Returns the current balancing mode of a Service. `policies` are those of the Service's namespace.
fn current(service: &Value, target: Option<&Value>, policies: &[&Value]) -> Choice {
    let name = text(&service["metadata"]["name"]);
    let ours = |resource: &&Value| resource["metadata"]["labels"][LABEL] == name;
    if selected(service, target.filter(ours)).proxied {
        return Choice::ProxyService;
    }
    let policy = policy_name(name);
    let mut policies = policies.iter().copied().filter(ours);
    let policy = policies.find(|one| one["metadata"]["name"] == policy.as_str());
    policy.and_then(sidecars::choice).unwrap_or(Choice::Local)
}

impl Land {
    /// Returns the claims without a `targetRef`.
    pub(super) fn wide(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.is_wide)
    }

    /// Returns the Services for which objects were created.
    pub(super) fn made(&self) -> BTreeSet<Key> {
        let ours = |resource: &Value| {
            let meta = &resource["metadata"];
            let service = meta["labels"][LABEL].as_str()?;
            let target = target_name(service);
            let named = [target, policy_name(service)];
            let ours = named.iter().any(|name| meta["name"] == name.as_str());
            ours.then(|| Key::new(text(&meta["namespace"]), service))
        };
        let all = self.services.iter().chain(&self.policies);
        all.filter_map(ours).collect()
    }

    /// Returns the Services to which a claim without a `targetRef` applies, ordered by name.
    pub(super) fn candidates(&self) -> Vec<Candidate<'_>> {
        let (made, owned) = (self.made(), self.owned());
        let mut policies: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for policy in &self.policies {
            let namespace = text(&policy["metadata"]["namespace"]);
            policies.entry(namespace).or_default().push(policy);
        }
        let all = self.services.iter().map(|service| (key(service), service));
        let services: BTreeMap<Key, &Value> = all.collect();
        let candidate = |service| {
            let key = key(service);
            let claim = self.holder(service).filter(|_| !owned.contains(&key))?;
            let beside = policies.get(&*key.namespace).map_or(&[][..], Vec::as_slice);
            let target = Key::new(&key.namespace, &target_name(&key.name));
            Some(Candidate {
                spec: claim.spec.as_ref().ok()?,
                made: made.contains(&key),
                current: current(service, services.get(&target).copied(), beside),
                spoken_for: beside.iter().any(|policy| is_about(policy, &key.name)),
                claim,
                service,
                key,
            })
        };
        let mut all: Vec<Candidate<'_>> = self.services.iter().filter_map(candidate).collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// Returns the Services that have their own `ProxyService`.
    pub(super) fn owned(&self) -> BTreeSet<Key> {
        let own = self.claims.iter().filter(|claim| !claim.is_wide);
        own.map(|claim| Key::new(&claim.key.namespace, &claim.service))
            .collect()
    }

    /// Returns the first claim without a `targetRef` that applies to a Service, even if it is invalid.
    fn holder(&self, service: &Value) -> Option<&Claim> {
        let namespace = text(&service["metadata"]["namespace"]);
        let closed = self.closed.contains(namespace);
        let holding = |near: bool| {
            let mut wide = self
                .wide()
                .filter(|one| (one.key.namespace == namespace) == near);
            wide.find(|one| holds(one, service, &self.root, closed))
        };
        holding(true).or_else(|| holding(false))
    }

    /// Returns the Services with created objects that are no longer wanted.
    #[must_use]
    pub fn left(&self) -> BTreeSet<Key> {
        let owned = self.owned();
        let mut left = self.made();
        left.retain(|key| !owned.contains(key));
        for service in &self.services {
            if self.holder(service).is_some() {
                left.remove(&key(service));
            }
        }
        left
    }

    /// Returns the claims without a `targetRef` that are being deleted and have no created objects left.
    #[must_use]
    pub fn finished(&self) -> Vec<&Claim> {
        let left = self.left();
        let done = |claim: &&Claim| {
            let reaches = |key: &Key| {
                let from = &claim.key.namespace;
                *from == self.root || *from == key.namespace
            };
            claim.deleting && claim.held && !left.iter().any(reaches)
        };
        self.wide().filter(done).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(namespace: &str, name: &str, spec: &Value) -> Claim {
        Claim::read(&json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("u-{namespace}-{name}")},
            "spec": spec,
        }))
    }

    fn wide(namespace: &str, name: &str) -> Claim {
        claim(namespace, name, &json!({"mode": "Auto"}))
    }

    fn own(namespace: &str, service: &str) -> Claim {
        claim(namespace, service, &json!({"targetRef": {"name": service}}))
    }

    fn service(namespace: &str, name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"tier": "web"}},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "name": "http"}]},
        })
    }

    fn target(namespace: &str, name: &str) -> Value {
        let mut target = service(namespace, &target_name(name));
        target["metadata"]["labels"][LABEL] = json!(name);
        target
    }

    fn land(claims: Vec<Claim>, services: Vec<Value>) -> Land {
        Land {
            claims,
            services,
            root: "maglor".into(),
            ..Land::default()
        }
    }

    fn held(land: &Land) -> Vec<(String, String)> {
        let candidates = land.candidates();
        let one = |one: &Candidate<'_>| (one.key.to_string(), one.claim.key.to_string());
        candidates.iter().map(one).collect()
    }

    fn pair(service: &str, claim: &str) -> (String, String) {
        (service.to_owned(), claim.to_owned())
    }

    #[test]
    fn the_nearest_and_oldest_holds() {
        let services = vec![
            service("shop", "web"),
            service("shop", "cart"),
            service("bank", "web"),
            service("maglor", "controller"),
            target("shop", "cart"),
        ];
        let claims = vec![
            wide("maglor", "mesh"),
            wide("shop", "first"),
            wide("shop", "second"),
            own("shop", "cart"),
        ];
        let land = land(claims, services);
        let expected = [
            pair("bank/web", "maglor/mesh"),
            pair("shop/web", "shop/first"),
        ];
        assert_eq!(held(&land), expected);
        // The operator, which considers a single Service, comes to the same result.
        for service in &land.services[..3] {
            let holding = holding(land.claims.clone(), service, &land.root, false);
            let first = holding.first().map(|one| one.key.to_string());
            let expected = match key(service).to_string().as_str() {
                "shop/web" => "shop/first",
                "shop/cart" => "shop/cart",
                _ => "maglor/mesh",
            };
            assert_eq!(first.as_deref(), Some(expected));
        }
    }

    #[test]
    fn who_opts_out_is_left_alone() {
        let mut out = service("shop", "web");
        out["metadata"]["annotations"] = json!({OPT_OUT: "disabled"});
        let selector = json!({"mode": "Auto", "selector": {"matchLabels": {"tier": "db"}}});
        let claims = vec![wide("maglor", "mesh"), claim("bank", "db", &selector)];
        let mut land = land(
            claims,
            vec![out, service("shop", "cart"), service("bank", "web")],
        );
        let expected = [
            pair("bank/web", "maglor/mesh"),
            pair("shop/cart", "maglor/mesh"),
        ];
        assert_eq!(held(&land), expected);
        land.closed.insert("shop".to_owned());
        assert_eq!(held(&land), expected[..1]);
        // Existing objects are removed.
        land.services.push(target("shop", "web"));
        assert_eq!(land.left(), [Key::new("shop", "web")].into());
        // A Service with its own ProxyService cannot opt out.
        land.claims.push(own("shop", "web"));
        assert_eq!(land.left(), BTreeSet::new());
    }

    #[test]
    fn one_goes_when_nothing_is_left_of_it() {
        let mut mesh = wide("maglor", "mesh");
        (mesh.deleting, mesh.held) = (true, true);
        let services = vec![service("shop", "web"), target("shop", "web")];
        let mut land = land(vec![mesh], services);
        assert_eq!(land.left(), [Key::new("shop", "web")].into());
        assert!(land.finished().is_empty());
        // Another ProxyService applies instead.
        land.claims.push(wide("shop", "own"));
        assert_eq!(land.finished().len(), 1);
        land.claims.pop();
        land.services.pop();
        assert_eq!(land.finished().len(), 1);
    }

    #[test]
    fn it_is_seen_how_each_is_balanced() {
        let mut web = service("shop", "web");
        web["spec"]["selector"] = json!({"app": "web.proxy"});
        let mut behind = target("shop", "web");
        behind["spec"]["selector"] = json!({"app": "web"});
        let mut land = land(
            vec![wide("shop", "all")],
            vec![web, behind, service("shop", "cart")],
        );
        let shop = service("shop", "cart");
        land.policies.push(sidecars::policy(&shop, Choice::Bounce));
        let own = json!({"metadata": {"name": "mine", "namespace": "shop"},
                         "spec": {"targetRefs": [{"name": "web"}], "cluster": {"policy": "random"}}});
        land.policies.push(own);
        let candidates = land.candidates();
        let seen = candidates.iter();
        let seen: Vec<_> = seen
            .map(|one| (&*one.key.name, one.current, one.made, one.spoken_for))
            .collect();
        let expected = [
            ("cart", Choice::Bounce, true, false),
            ("web", Choice::ProxyService, true, true),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn one_that_cannot_be_used_changes_nothing() {
        let bad = claim("shop", "all", &json!({"mode": "Auto", "replicas": 0}));
        assert!(bad.spec.is_err());
        let services = vec![service("shop", "web"), target("shop", "web")];
        let land = land(vec![bad.clone()], services);
        assert!(held(&land).is_empty() && land.left().is_empty());
        let holding = |claims| holding(claims, &land.services[0], "maglor", false);
        let held = holding(vec![bad.clone()]);
        assert_eq!(held.first(), Some(&bad));
        // It does not keep the objects that a Service's own ProxyService releases.
        let mut gone = own("shop", "web");
        gone.deleting = true;
        assert_eq!(holding(vec![gone.clone(), bad]), [gone]);
    }

    #[test]
    fn what_the_service_itself_says_against_it_is_known_at_once() {
        let mut sticky = service("shop", "web");
        sticky["spec"]["sessionAffinity"] = json!("ClientIP");
        let land = land(
            vec![wide("shop", "all")],
            vec![sticky, service("shop", "cart")],
        );
        let candidates = land.candidates();
        let current = candidates.iter().map(|one| (one.current, one.made));
        assert!(current.eq([(Choice::Local, false); 2]));
        assert_eq!(candidates[0].refusal(), None);
        let refusal = candidates[1].refusal().unwrap();
        assert_eq!(refusal.reason(), "SessionAffinity");
    }
}
