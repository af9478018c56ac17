//! Invalid policies fail closed at every replica, regardless of the versions that it has seen before.

use maglor_config::raw::{AuthorizationAction, Effect, MeshMode};
use maglor_controller::index::facts::{Key, Kind, Object};
use maglor_controller::index::{Inbound, Index, Resource};
use serde_json::{Value, json};

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: cart-0, namespace: shop, labels: {app: cart}, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: cart}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: web}
---
apiVersion: v1
kind: Pod
metadata: {name: other-0, namespace: other, labels: {app: cart}, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: cart}
";

/// A replica of the controller.
struct Replica(Index);

impl Replica {
    fn start() -> Self {
        let mut index = Index::default();
        for object in crate::support::objects(PODS) {
            index.apply(object);
        }
        Self(index)
    }

    fn apply(&mut self, policy: &Value) {
        self.0.apply(Object::read(policy).unwrap());
        self.0.changes();
    }

    /// An index with only the stored objects.
    fn of(policy: &Value) -> Self {
        let mut replica = Self::start();
        replica.apply(policy);
        replica
    }

    fn inbound(&self, pod: &str) -> &Inbound {
        let mut all = self.0.resources();
        let found = all.find_map(|(id, resource)| match resource {
            Resource::Inbound(inbound) if *id.name == *pod => Some(&**inbound),
            _ => None,
        });
        found.unwrap()
    }

    /// The configuration of a pod's proxy: everything denied, the allowed namespaces, or none.
    fn rules(&self, pod: &str) -> Option<String> {
        let authorization = self.inbound(pod).authorization.as_ref()?;
        let words = authorization.rules.iter().map(|rule| {
            let everything = rule.from.is_empty() && rule.to.is_empty();
            match (rule.action, everything) {
                (Some(AuthorizationAction::Deny), true) => "closed".to_owned(),
                (None, _) => {
                    let names = rule.from.iter().filter_map(|one| one.namespaces.clone());
                    names
                        .flat_map(|names| names.0)
                        .collect::<Vec<_>>()
                        .join(" ")
                }
                _ => format!("{rule:?}"),
            }
        });
        Some(words.collect::<Vec<_>>().join(", "))
    }

    /// The status as the replica that writes puts it into the resource.
    fn written(&self, policy: &Value) -> Value {
        let key = Key::new("shop", policy["metadata"]["name"].as_str().unwrap());
        let status = self
            .0
            .statuses()
            .find(|(kind, of, _)| *kind == Kind::AuthorizationPolicy && **of == key);
        let mut written = policy.clone();
        written["status"] = status.unwrap().2.to_json();
        written
    }
}

fn policy(generation: i64, spec: &Value) -> Value {
    json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "AuthorizationPolicy",
           "metadata": {"name": "cart", "namespace": "shop", "generation": generation}, "spec": spec})
}

fn allowing(namespace: &str) -> Value {
    json!({"selector": {"matchLabels": {"app": "cart"}},
           "rules": [{"from": [{"namespaces": [namespace]}]}]})
}

/// An unknown keyword.
fn unusable() -> Value {
    json!({"selector": {"matchLabels": {"app": "cart"}},
           "rules": [{"from": [{"namespaces": ["shop"], "moon_phase": "full"}]}]})
}

fn condition(policy: &Value) -> (&str, &str, &str) {
    let condition = &policy["status"]["conditions"][0];
    let text = |name: &str| condition[name].as_str().unwrap();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn a_policy_that_cannot_be_used_closes_what_it_selects() {
    for (what, spec, cart, web) in [
        ("an unknown word", unusable(), true, false),
        (
            "a selector of a later version",
            json!({"selector": {"matchLabels": {"app": "cart"}, "matchExpressions": []}, "rules": []}),
            true,
            false,
        ),
        (
            "no labels that can be read",
            json!({"selector": {"matchExpressions": []}}),
            true,
            true,
        ),
        (
            "no selector that can be read",
            json!({"selector": 5}),
            true,
            true,
        ),
        (
            "no selector",
            json!({"rules": [{"from": [{"networks": ["nowhere"]}]}]}),
            true,
            true,
        ),
        ("nothing that can be read", json!("nonsense"), true, true),
        (
            "one in audit mode",
            json!({"audit": true, "rules": [{"from": [{"networks": ["nowhere"]}]}]}),
            false,
            false,
        ),
    ] {
        let replica = Replica::of(&policy(1, &spec));
        let closed = |pod: &str| replica.rules(pod).as_deref() == Some("closed");
        assert_eq!(
            (closed("shop/cart-0"), closed("shop/web-0")),
            (cart, web),
            "{what}"
        );
        assert_eq!(replica.rules("other/other-0"), None, "{what}");
        let written = replica.written(&policy(1, &spec));
        let (status, reason, message) = condition(&written);
        assert_eq!((status, reason), ("False", "Invalid"), "{what}");
        assert_eq!(
            message.contains("all requests to its pods are denied"),
            cart,
            "{message}"
        );
        assert!(written["status"].get("inForce").is_none());
    }
}

/// Beside another one that allows: what the one that cannot be used would have denied is not known.
#[test]
fn no_other_policy_opens_what_is_closed() {
    let mut replica = Replica::of(&policy(1, &unusable()));
    let mut other = policy(1, &allowing("other"));
    other["metadata"]["name"] = json!("another");
    replica.apply(&other);
    let authorization = replica
        .inbound("shop/cart-0")
        .authorization
        .as_ref()
        .unwrap();
    assert_eq!(authorization.rules.len(), 2);
    let closed = |rule: &&maglor_config::raw::AuthorizationRule| {
        rule.action == Some(AuthorizationAction::Deny) && rule.from.is_empty() && rule.to.is_empty()
    };
    let closed = authorization.rules.iter().find(closed).unwrap();
    assert_eq!(closed.name.as_deref(), Some("cart/unusable"));
    assert_ne!(authorization.default, Some(Effect::Allow));
}

#[test]
fn the_last_good_rules_survive_restarts_and_all_replicas_agree() {
    let good = policy(1, &allowing("shop"));
    let mut old = Replica::of(&good);
    assert_eq!(old.rules("shop/cart-0").as_deref(), Some("shop"));
    let good = old.written(&good);
    assert_eq!(condition(&good).1, "Accepted");
    // The status alone changes nothing.
    old.apply(&good);
    // Stored while the webhook was unavailable.
    let mut bad = policy(2, &unusable());
    bad["status"] = good["status"].clone();
    old.apply(&bad);
    let restarted = Replica::of(&bad);
    for replica in [&old, &restarted] {
        assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("shop"));
        let written = replica.written(&bad);
        let (status, reason, message) = condition(&written);
        assert_eq!((status, reason), ("False", "Invalid"));
        assert!(
            message.ends_with("the rules of generation 1 stay in force"),
            "{message}"
        );
        assert_eq!(written["status"]["inForce"], good["status"]["inForce"]);
    }
    // Once that is written, one that starts, one that has seen everything, and one that has missed the last good one
    // agree.
    let bad = old.written(&bad);
    old.apply(&bad);
    let mut missed = Replica::of(&policy(0, &allowing("other")));
    missed.apply(&bad);
    for replica in [&old, &missed, &Replica::of(&bad)] {
        assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("shop"));
        assert_eq!(replica.written(&bad), bad);
    }
    // The recorded version is also validated: another version may have written it.
    let mut broken = bad;
    broken["status"]["inForce"]["spec"] = unusable();
    assert_eq!(
        Replica::of(&broken).rules("shop/cart-0").as_deref(),
        Some("closed")
    );
}

/// Fields that the API server has dropped.
#[test]
fn an_older_definition_makes_no_rule_wider() {
    let field = Some("spec.rules[].to[].headers".to_owned());
    let outdated = || {
        let mut replica = Replica::start();
        replica.0.set_pruned(field.clone());
        replica
    };
    // Policies accepted before an update of the controller stay in effect.
    let before = Replica::of(&policy(1, &allowing("shop")));
    let good = before.written(&policy(1, &allowing("shop")));
    let mut replica = outdated();
    replica.apply(&good);
    assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("shop"));
    // A version written now may lack its conditions.
    let mut next = policy(2, &allowing("other"));
    next["status"] = good["status"].clone();
    replica.apply(&next);
    assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("shop"));
    let written = replica.written(&next);
    let (status, reason, message) = condition(&written);
    assert_eq!((status, reason), ("False", "DefinitionOutdated"));
    for part in [
        "`spec.rules[].to[].headers`",
        "maglor-controller crds",
        "maglor.dev/confirmed-generation=2",
        "the rules of generation 1 stay in force",
    ] {
        assert!(message.contains(part), "{message}");
    }
    // So with one that is new, which has no rules to continue with.
    let mut new = outdated();
    new.apply(&policy(1, &allowing("shop")));
    assert_eq!(new.rules("shop/cart-0").as_deref(), Some("closed"));
    assert_eq!(new.rules("shop/web-0"), None);
    // Definitions are installed: previously stored objects still lack the fields, at each replica.
    let mut later = Replica::of(&written);
    assert_eq!(later.rules("shop/cart-0").as_deref(), Some("shop"));
    assert_eq!(later.written(&written), written);
    // It is written again, or confirmed.
    let mut again = policy(3, &allowing("other"));
    again["status"] = written["status"].clone();
    later.apply(&again);
    assert_eq!(later.rules("shop/cart-0").as_deref(), Some("other"));
    let mut confirmed = written;
    confirmed["metadata"]["annotations"] = json!({"maglor.dev/confirmed-generation": "2"});
    replica.apply(&confirmed);
    assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("other"));
    assert_eq!(condition(&replica.written(&confirmed)).0, "True");
    confirmed["metadata"]["generation"] = json!(3);
    let mut other = outdated();
    other.apply(&confirmed);
    assert_eq!(
        other.rules("shop/cart-0").as_deref(),
        Some("shop"),
        "of another version"
    );
}

#[test]
fn istios_policies_that_cannot_be_used_close_what_they_select() {
    let istio = |spec: Value| {
        json!({"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
               "metadata": {"name": "cart", "namespace": "shop"}, "spec": spec})
    };
    let selector = json!({"matchLabels": {"app": "cart"}});
    let custom = istio(json!({"selector": selector, "action": "CUSTOM",
        "provider": {"name": "opa"}, "rules": [{}]}));
    let mut replica = Replica::of(&istio(json!({"selector": selector,
        "rules": [{"from": [{"source": {"namespaces": ["shop"]}}]}]})));
    assert_ne!(replica.rules("shop/cart-0").as_deref(), Some("closed"));
    replica.apply(&custom);
    for replica in [&replica, &Replica::of(&custom)] {
        assert_eq!(replica.rules("shop/cart-0").as_deref(), Some("closed"));
        assert_eq!(replica.rules("shop/web-0"), None);
    }
    let of_gateway =
        istio(json!({"targetRefs": [{"kind": "Gateway", "name": "door"}], "action": "CUSTOM"}));
    assert_eq!(Replica::of(&of_gateway).rules("shop/cart-0"), None);
}

/// A replica that starts does not take plain text because something else cannot be used.
#[test]
fn a_mesh_config_that_cannot_be_used_lets_in_no_plain_text() {
    let mode = |spec: Value| {
        let config = json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "MeshConfig",
            "metadata": {"name": "default"}, "spec": spec});
        let replica = Replica::of(&config);
        let domain = replica.0.trust_domain().to_owned();
        (replica.inbound("shop/cart-0").mtls, domain)
    };
    let bad = json!({"limits": {"max_requests": 0}});
    let of = |mode, domain: &str| (mode, domain.to_owned());
    assert_eq!(
        mode(json!({"mtls": "strict", "trustDomain": "mesh.example", "cluster": bad})),
        of(MeshMode::Strict, "mesh.example")
    );
    assert_eq!(
        mode(json!({"mtls": "moon", "cluster": bad})),
        of(MeshMode::Strict, "cluster.local")
    );
    assert_eq!(
        mode(json!({"mtls": "permissive", "trustDomain": "A B", "cluster": bad})),
        of(MeshMode::Permissive, "cluster.local")
    );
}

/// Pods with an invalid PeerAuthentication accept no plain text, regardless of the previous version.
#[test]
fn a_peer_authentication_that_cannot_be_used_lets_in_no_plain_text() {
    let peers = |spec: Value| {
        json!({"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
               "metadata": {"name": "peers", "namespace": "shop", "generation": 1}, "spec": spec})
    };
    let cart = json!({"matchLabels": {"app": "cart"}});
    let good = peers(json!({"selector": cart, "mtls": {"mode": "PERMISSIVE"}}));
    for (what, spec, web) in [
        (
            "an unknown mode",
            json!({"selector": cart, "mtls": {"mode": "MOON"}}),
            false,
        ),
        (
            "a port that is none",
            json!({"selector": cart, "mtls": {"mode": "PERMISSIVE"}, "portLevelMtls": {"a": {"mode": "STRICT"}}}),
            false,
        ),
        ("no selector that can be read", json!({"selector": 5}), true),
        ("no selector", json!({"mtls": {"mode": "MOON"}}), true),
    ] {
        let mut replica = Replica::of(&good);
        assert_eq!(replica.inbound("shop/cart-0").mtls, MeshMode::Permissive);
        let bad = peers(spec);
        replica.apply(&bad);
        for replica in [&replica, &Replica::of(&bad)] {
            let is_strict = |pod: &str| replica.inbound(pod).mtls == MeshMode::Strict;
            assert_eq!(
                (is_strict("shop/cart-0"), is_strict("shop/web-0")),
                (true, web),
                "{what}"
            );
            assert!(!is_strict("other/other-0"), "{what}");
            let mut all = replica.0.statuses();
            let status = all.find(|(kind, ..)| *kind == Kind::PeerAuthentication);
            let status = status.unwrap().2.to_json();
            let message = status["conditions"][0]["message"].as_str().unwrap();
            assert!(
                message.ends_with("until it is valid, its pods accept only mutual TLS"),
                "{message}"
            );
        }
    }
}
