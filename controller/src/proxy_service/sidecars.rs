//! Policies based on true queue lengths in the callers' sidecars, instead of proxies (`mode: Auto` with
//! `sidecarPolicies`), set by a generated `TrafficPolicy`. The order of steps does not matter, since requests in
//! flight succeed under any policy of a Service.

use maglor_service_graph::policy_choice::Choice;
use serde_json::{Value, json};

use super::manifests::{marked, of_service};
use crate::crd::{GROUP, VERSION};

/// The policies that can be chosen.
const CHOICES: [Choice; 2] = [Choice::Bounce, Choice::Ledger];

/// Returns the name of the generated policy.
pub(super) fn policy_name(service: &str) -> String {
    format!("{service}-sidecars")
}

/// Returns the policy by which callers' sidecars choose among the endpoints.
pub(super) fn policy(service: &Value, choice: Choice) -> Value {
    let version = format!("{GROUP}/{VERSION}");
    let mut policy = of_service(service, &version, "TrafficPolicy", policy_name);
    let targets = json!([{"name": service["metadata"]["name"]}]);
    policy["spec"] = json!({"targetRefs": targets, "cluster": {"policy": choice.policy()}});
    marked(policy)
}

/// Returns the balancing mode that such a policy sets; `None` if it sets another one.
pub(super) fn choice(policy: &Value) -> Option<Choice> {
    let chosen = policy["spec"]["cluster"]["policy"].as_str()?;
    let mut choices = CHOICES.into_iter();
    choices.find(|choice| choice.policy() == chosen)
}

/// Returns whether a policy of another writer sets how callers of a Service in its namespace balance.
pub(super) fn is_about(policy: &Value, service: &str) -> bool {
    if policy["metadata"]["name"] == policy_name(service).as_str()
        || policy["spec"]["cluster"]["policy"].is_null()
    {
        return false;
    }
    let targets = policy["spec"]["targetRefs"].as_array();
    targets.is_none_or(|targets| targets.iter().any(|target| target["name"] == service))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_what_it_chooses() {
        let service = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}});
        for one in CHOICES {
            assert_eq!(choice(&policy(&service, one)), Some(one));
        }
        assert_eq!(choice(&policy(&service, Choice::Local)), None);
    }

    #[test]
    fn who_says_how_callers_balance() {
        let policy = |spec: Value| json!({"metadata": {"name": "own"}, "spec": spec});
        let cluster = json!({"policy": "random"});
        for (spec, expected) in [
            (json!({"cluster": cluster}), true),
            (
                json!({"cluster": cluster, "targetRefs": [{"name": "web"}]}),
                true,
            ),
            (
                json!({"cluster": cluster, "targetRefs": [{"name": "cart"}]}),
                false,
            ),
            (json!({"route": {"timeout": "1s"}}), false),
        ] {
            assert_eq!(is_about(&policy(spec.clone()), "web"), expected, "{spec}");
        }
    }
}
