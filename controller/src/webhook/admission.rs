//! The decisions of the webhooks. Pure.

use k8s_openapi::api::core::v1::ObjectReference;
use maglor_manifests::inject::review::{Review, Verdict};
use maglor_manifests::inject::{Namespace, Outcome, Settings, keys, patch};

use serde_json::Value;

use crate::crd::operated;
use crate::index::facts::{Facts, Object};
use crate::placement::affinity::{Place, ask};
use crate::revision::Revision;

/// A response to the API server, and its label in metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The response.
    pub verdict: Verdict,
    /// The outcome, as a label.
    pub word: Word,
}

/// The outcome of a decision, as a label: `injected`, a reason of [`maglor_manifests::inject::Skip`], `accepted`, `refused`,
/// `warned`.
pub type Word = &'static str;

fn denied(reason: String) -> Decision {
    Decision {
        verdict: Verdict::Denied { reason },
        word: "refused",
    }
}

/// Returns the event for the owner of a pod, which contains the reason why the pod has no sidecar or was rejected.
/// The pod itself does not exist yet, so it cannot have events. A dry run causes no event (`sideEffects: None`).
pub(super) fn event<'a>(
    review: &Review,
    decision: &'a Decision,
) -> Option<(ObjectReference, &'static str, &'a str)> {
    let (reason, why) = match &decision.verdict {
        Verdict::Denied { reason } => ("SidecarRefused", reason),
        Verdict::Allowed { patch, warnings } if patch.is_empty() => {
            ("SidecarSkipped", warnings.first()?)
        }
        Verdict::Allowed { .. } => return None,
    };
    let owner = owner(review).filter(|_| !review.dry_run)?;
    Some((owner, reason, why))
}

/// Returns the controller that owns a pod.
fn owner(review: &Review) -> Option<ObjectReference> {
    let owners = review.object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|one| one["controller"] == true)?;
    let text = |name: &str| owner[name].as_str().map(str::to_owned);
    Some(ObjectReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: Some(text("name")?),
        uid: text("uid"),
        namespace: Some(review.namespace.clone()),
        ..ObjectReference::default()
    })
}

/// Injects a sidecar into a pod, and adds the placement preference to a pod with a sidecar.
#[must_use]
pub fn inject(
    review: &Review,
    namespace: &Namespace,
    settings: &Settings,
    place: Option<&Place>,
) -> Decision {
    let placed = |mut pod: Value| {
        if let Some(place) = place {
            ask(&mut pod, place);
        }
        patch(&review.object, &pod)
    };
    let with = |injected: maglor_manifests::inject::Injected, word| Decision {
        verdict: Verdict::Allowed {
            patch: placed(injected.pod),
            warnings: injected.notes,
        },
        word,
    };
    match maglor_manifests::inject::inject(&review.object, namespace, settings) {
        Err(refusal) => denied(format!("cannot inject a sidecar: {refusal}")),
        Ok(Outcome::Injected(injected)) => with(injected, "injected"),
        Ok(Outcome::Repaired(injected)) => with(injected, "repaired"),
        Ok(Outcome::Skipped(why)) => Decision {
            verdict: Verdict::Allowed {
                patch: match why {
                    maglor_manifests::inject::Skip::AlreadyInjected => {
                        placed(review.object.clone())
                    }
                    _ => Vec::new(),
                },
                warnings: match why {
                    // A user may rely on the missing sidecar.
                    maglor_manifests::inject::Skip::HostNetwork
                    | maglor_manifests::inject::Skip::OtherSystem => {
                        vec![format!("no sidecar injected: {why}")]
                    }
                    _ => Vec::new(),
                },
            },
            word: why.word(),
        },
    }
}

/// Validates the mesh's labels and annotations of an object: unknown ones cause a warning, invalid ones are rejected.
///
/// An error that the object already had is only a warning, so that other changes remain possible.
#[must_use]
pub(super) fn keys(review: &Review) -> Decision {
    let before = keys::check(&review.old_object);
    let findings = keys::check(&review.object);
    let mut new = findings.iter().filter(|one| !before.contains(one));
    if let Some(wrong) = new.find(|one| one.is_error()) {
        return denied(wrong.to_string());
    }
    Decision {
        word: match findings.is_empty() {
            true => "accepted",
            false => "warned",
        },
        verdict: Verdict::Allowed {
            patch: Vec::new(),
            warnings: findings.iter().map(ToString::to_string).collect(),
        },
    }
}

/// Returns the revision that a namespace names; `None` if it named the same one before.
pub(super) fn new_revision(review: &Review) -> Option<Revision> {
    let named = |object: &Value| {
        object["metadata"]["labels"][keys::REVISION]
            .as_str()
            .map(str::to_owned)
    };
    let is_namespace = review.object["kind"] == "Namespace";
    let new = named(&review.object).filter(|_| is_namespace)?;
    let is_new = named(&review.old_object).as_ref() != Some(&new);
    new.parse().ok().filter(|_| is_new)
}

/// Validates one of the mesh's own resources by the proxy's rules.
///
/// An object with an unchanged `spec` is always accepted; otherwise it would be impossible to remove a finalizer or a
/// label.
#[must_use]
pub fn validate(review: &Review) -> Decision {
    let accepted = Decision {
        verdict: Verdict::Allowed {
            patch: Vec::new(),
            warnings: Vec::new(),
        },
        word: "accepted",
    };
    let (new, old) = (&review.object, &review.old_object);
    if new.is_null() || (!old.is_null() && new["spec"] == old["spec"]) {
        return accepted;
    }
    let checked = operated::check(new);
    if let Some(checked) = checked {
        return match checked {
            Err(problem) => denied(problem.to_string()),
            Ok(()) => accepted,
        };
    }
    match Object::read(new) {
        Err(error) => denied(error.to_string()),
        Ok(object) => match problem(&object.facts) {
            Some(problem) => denied(problem.to_owned()),
            None => accepted,
        },
    }
}

/// Returns the error in one of the mesh's own resources; `None` if it is valid.
fn problem(facts: &Facts) -> Option<&str> {
    let problem = match facts {
        Facts::AuthorizationPolicy(policy) => &policy.spec.problem,
        Facts::MeshConfig(config) => &config.spec.problem,
        Facts::TrafficPolicy(policy) => &policy.spec.problem,
        _ => &None,
    };
    problem.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::admissions::decisions;

    fn review(object: Value, old_object: Value) -> Review {
        Review {
            uid: "u".into(),
            operation: "CREATE".into(),
            namespace: "shop".into(),
            name: "x".into(),
            object,
            old_object,
            dry_run: false,
        }
    }

    fn policy(cluster: &Value) -> Value {
        json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"name": "x", "namespace": "shop"}, "spec": {"cluster": cluster}})
    }

    #[test]
    fn a_pods_controller_gets_the_event() {
        let mut owners = json!([{"kind": "X", "name": "x"}, {"apiVersion": "apps/v1",
            "kind": "ReplicaSet", "name": "web-1", "uid": "u1", "controller": true}]);
        let pod = |owners: &Value| json!({"metadata": {"ownerReferences": owners}});
        let reported = owner(&review(pod(&owners), Value::Null)).unwrap();
        assert_eq!(reported.kind.as_deref(), Some("ReplicaSet"));
        assert_eq!(reported.namespace.as_deref(), Some("shop"));
        assert_eq!(reported.uid.as_deref(), Some("u1"));
        let refused = denied("why".to_owned());
        let mut asked = review(pod(&owners), Value::Null);
        let (_, reason, why) = event(&asked, &refused).unwrap();
        assert_eq!((reason, why), ("SidecarRefused", "why"));
        asked.dry_run = true;
        assert!(event(&asked, &refused).is_none(), "nothing comes of it");
        owners[1]["controller"] = json!(false);
        assert!(owner(&review(pod(&owners), Value::Null)).is_none());
    }

    fn reason(decision: Decision) -> String {
        match decision.verdict {
            Verdict::Denied { reason } => reason,
            Verdict::Allowed { .. } => panic!("{decision:?}"),
        }
    }

    #[test]
    fn what_the_proxy_would_refuse_is_refused_with_the_field() {
        let good = policy(&json!({"policy": "lor(choices=3)"}));
        assert_eq!(
            validate(&review(good.clone(), Value::Null)).word,
            "accepted"
        );
        let bad = policy(&json!({"limits": {"max_requests": 0}}));
        let text = reason(validate(&review(bad.clone(), good)));
        assert!(
            text.starts_with("spec.cluster.limits.max_requests: "),
            "{text}"
        );
        let text = reason(validate(&review(json!([1]), Value::Null)));
        assert!(text.contains("is not supported"), "{text}");
        // Objects that existed before the webhook can still be changed and deleted.
        assert_eq!(validate(&review(bad.clone(), bad.clone())).word, "accepted");
        assert_eq!(validate(&review(Value::Null, bad)).word, "accepted");
    }

    #[test]
    fn a_proxy_service_is_refused_as_its_operator_would() {
        let with = |spec: Value| {
            json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "ProxyService",
                "metadata": {"name": "x", "namespace": "shop"}, "spec": spec})
        };
        let asked = |spec: Value| validate(&review(with(spec), Value::Null));
        let good = json!({"targetRef": {"name": "web"}, "policy": "lor(choices=all)"});
        assert_eq!(asked(good).word, "accepted");
        for (spec, expected) in [
            (
                json!({"targetRef": {"name": "web"}, "policy": "nonsense"}),
                "spec.policy: ",
            ),
            (
                json!({"targetRef": {"name": "web"}, "replicas": 0}),
                "spec.replicas: ",
            ),
            (json!({"targetRef": {"name": ""}}), "spec.targetRef.name: "),
            (
                json!({"targetRef": {"name": "web"}, "replica": 1}),
                "replica",
            ),
        ] {
            let text = reason(asked(spec));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_placement_policy_is_refused_as_its_operator_would() {
        let with = |spec: Value| {
            json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "PlacementPolicy",
                "metadata": {"name": "x"}, "spec": spec})
        };
        let asked = |spec: Value| validate(&review(with(spec), Value::Null));
        assert_eq!(
            asked(json!({"namespaces": ["shop"], "mode": "Apply"})).word,
            "accepted"
        );
        for (spec, expected) in [
            (json!({}), "namespaces"),
            (json!({"namespaces": []}), "spec.namespaces: "),
            (
                json!({"namespaces": ["shop"], "mode": "Perhaps"}),
                "Perhaps",
            ),
            (
                json!({"namespaces": ["shop"], "windows": 0}),
                "spec.windows: ",
            ),
            (json!({"namespaces": ["shop"], "moves": 1}), "moves"),
        ] {
            let text = reason(asked(spec));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_tuning_policy_is_refused_as_its_operator_would() {
        let with = |spec: Value| {
            json!({"apiVersion": "maglor.dev/v1alpha1", "kind": "TuningPolicy",
                "metadata": {"name": "x", "namespace": "shop"}, "spec": spec})
        };
        let asked = |spec: Value| validate(&review(with(spec), Value::Null));
        assert_eq!(asked(json!({"mode": "Apply"})).word, "accepted");
        for (spec, expected) in [
            (json!({"mode": "Perhaps"}), "Perhaps"),
            (json!({"roundSeconds": 1}), "spec.roundSeconds: "),
            (json!({"namespaces": ["shop"]}), "namespaces"),
        ] {
            let text = reason(asked(spec));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn misspelt_keys_are_warned_of_and_wrong_values_refused_when_they_are_new() {
        let namespace = |annotations: Value| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "shop", "annotations": annotations}})
        };
        let fine = namespace(json!({"maglor.dev/mtls": "strict"}));
        let misspelt = namespace(json!({"maglor.dev/mlts": "strict"}));
        let wrong = namespace(json!({"maglor.dev/mtls": "stict"}));
        assert_eq!(keys(&review(fine.clone(), Value::Null)).word, "accepted");
        assert_eq!(keys(&review(Value::Null, wrong.clone())).word, "accepted");
        let warned = keys(&review(misspelt, fine.clone()));
        assert_eq!(warned.word, "warned");
        let Verdict::Allowed { warnings, .. } = warned.verdict else {
            panic!("it is allowed")
        };
        assert!(warnings[0].ends_with("did you mean `maglor.dev/mtls`?"));
        let text = reason(keys(&review(wrong.clone(), fine)));
        assert!(text.starts_with("metadata.annotations.maglor.dev/mtls: unknown value `stict`"));
        assert_eq!(keys(&review(wrong.clone(), wrong)).word, "warned");
        for word in ["accepted", "refused", "warned"] {
            assert!(decisions().any(|known| known == ("keys", word)));
        }
    }

    /// Regardless of other decisions, the preference is added only to pods with a sidecar, and only once.
    #[test]
    fn pods_are_asked_to_run_where_they_are_wanted() {
        let place = Place {
            node: "n2".to_owned(),
            why: "why".to_owned(),
        };
        let shop = Namespace {
            enabled: Some(true),
            ..Namespace::default()
        };
        let settings = Settings::default();
        let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web"}]}});
        let asked = |pod: &Value, namespace: &Namespace| {
            let review = review(pod.clone(), Value::Null);
            match inject(&review, namespace, &settings, Some(&place)).verdict {
                Verdict::Allowed { patch, .. } => patch,
                Verdict::Denied { reason } => panic!("{reason}"),
            }
        };
        let path = |patch: &[Value], path: &str| patch.iter().any(|one| one["path"] == path);
        assert!(path(&asked(&pod, &shop), "/spec/affinity"));
        assert!(
            asked(&pod, &Namespace::default()).is_empty(),
            "it gets no sidecar"
        );
        // A pod that `maglor inject` has injected, without the webhook.
        let Ok(Outcome::Injected(mut injected)) =
            maglor_manifests::inject::inject(&pod, &shop, &settings)
        else {
            panic!("nothing is against it")
        };
        assert!(path(&asked(&injected.pod, &shop), "/spec/affinity"));
        assert!(ask(&mut injected.pod, &place));
        assert!(
            asked(&injected.pod, &shop).is_empty(),
            "it is asked already"
        );
    }

    #[test]
    fn pods_get_sidecars_or_hear_why_not() {
        let pod = |spec: Value| json!({"metadata": {"name": "web"}, "spec": spec});
        let shop = Namespace {
            enabled: Some(true),
            ..Namespace::default()
        };
        let settings = Settings::default();
        let asked = |spec: Value| inject(&review(pod(spec), Value::Null), &shop, &settings, None);
        let injected = asked(json!({"containers": [{"name": "web"}]}));
        assert_eq!(injected.word, "injected");
        let Verdict::Allowed { patch, .. } = injected.verdict else {
            panic!("it is allowed")
        };
        assert!(!patch.is_empty());
        let host = asked(json!({"containers": [{"name": "web"}], "hostNetwork": true}));
        assert_eq!(host.word, "host-network");
        let Verdict::Allowed { warnings, .. } = host.verdict else {
            panic!("it is allowed")
        };
        assert!(warnings[0].contains("hostNetwork"), "{warnings:?}");
        let text = reason(asked(json!({"containers": 1})));
        assert_eq!(
            text,
            "cannot inject a sidecar: spec.containers: must be a list"
        );
        for word in [injected.word, host.word, "refused"] {
            assert!(decisions().any(|known| known == ("inject", word)));
        }
    }
}
