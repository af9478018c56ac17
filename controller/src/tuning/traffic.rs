//! Generated `TrafficPolicy`s: what they say, what they said before, and who says more.

use std::collections::BTreeMap;

use maglor_config::raw::{self, TimeSpan};
use maglor_service_graph::advise::TrafficAdvice;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{FIELD_MANAGER, FORMER, text};
use crate::crd::{GROUP, TrafficPolicySpec, TuningPolicy, VERSION};
use crate::generated;
use crate::index::facts::policy::TUNED_BY;
use crate::writes::Seen;

/// A `TrafficPolicy` that is ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Which version of it was seen.
    pub seen: Seen,
    /// What it says.
    pub spec: TrafficPolicySpec,
    /// What it said before the last change.
    pub former: Option<TrafficPolicySpec>,
}

/// What there is in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Ours, by Service.
    pub own: BTreeMap<String, Generated>,
    /// Names that others have taken.
    pub taken: Vec<String>,
    /// Our policies changed by another writer, by Service, with the writer.
    pub edited: BTreeMap<String, String>,
    /// What people say: the policy's name, and what it says.
    pub others: Vec<(String, TrafficPolicySpec)>,
}

/// The name of the policy of a Service.
#[must_use]
pub fn name(service: &str) -> String {
    format!("{service}-generated")
}

/// Who else has written the `spec` of a resource (`managedFields`).
fn editor(found: &Value) -> Option<&str> {
    let writers = found["metadata"]["managedFields"].as_array();
    let mut others = writers
        .into_iter()
        .flatten()
        .filter(|one| one["manager"] != FIELD_MANAGER && !one["fieldsV1"]["f:spec"].is_null());
    others.next().map(|one| text(&one["manager"]))
}

/// Whether a `TrafficPolicy` was written by a policy.
#[must_use]
pub fn is_of(found: &Value, policy: &TuningPolicy) -> bool {
    let name = policy.metadata.name.as_deref();
    found["metadata"]["labels"][TUNED_BY].as_str() == name
}

fn spec(value: &Value) -> TrafficPolicySpec {
    // What cannot be read is replaced as if it said nothing.
    TrafficPolicySpec::deserialize(value).unwrap_or_default()
}

impl Policies {
    /// Distinguishes our policies from those of others.
    #[must_use]
    pub fn read(found: &[Value], policy: &TuningPolicy) -> Self {
        let mut policies = Self::default();
        for one in found {
            let meta = &one["metadata"];
            let (own, name) = (is_of(one, policy), text(&meta["name"]).to_owned());
            let service = name.strip_suffix("-generated");
            match service.filter(|_| own) {
                Some(service) => {
                    if let Some(editor) = editor(one) {
                        policies
                            .edited
                            .insert(service.to_owned(), editor.to_owned());
                    }
                    let former = meta["annotations"][FORMER].as_str();
                    let former = former.and_then(|text| serde_json::from_str(text).ok());
                    let generated = Generated {
                        seen: Seen::of_value(one),
                        spec: spec(&one["spec"]),
                        former: former.map(|former: Value| spec(&former)),
                    };
                    policies.own.insert(service.to_owned(), generated);
                }
                None => {
                    if meta["labels"][TUNED_BY].is_null() {
                        policies.others.push((name.clone(), spec(&one["spec"])));
                    }
                    policies.taken.push(name);
                }
            }
        }
        policies
    }

    /// What people say of a Service that is advised, too: that holds, and not what is generated.
    #[must_use]
    pub fn said(&self, service: &str, generated: &TrafficPolicySpec) -> Vec<String> {
        let fields = |spec: &TrafficPolicySpec| -> Vec<String> {
            let blocks = [
                ("cluster", json!(spec.cluster)),
                ("route", json!(spec.route)),
            ];
            let blocks = blocks.into_iter().filter_map(|(block, value)| match value {
                Value::Object(map) => Some((block, map)),
                _ => None,
            });
            let named = blocks.flat_map(|(block, map)| {
                let set = map.into_iter().filter(|(_, value)| !value.is_null());
                set.map(move |(field, _)| format!("{block}.{field}"))
            });
            named.collect()
        };
        let own = fields(generated);
        let about = |spec: &TrafficPolicySpec| {
            spec.target_refs.is_empty() || spec.target_refs.iter().any(|one| one.name == service)
        };
        let others = self.others.iter().filter(|(_, spec)| about(spec));
        let said = others.filter_map(|(name, spec)| {
            let mut both = fields(spec);
            both.retain(|field| own.contains(field));
            let both = (!both.is_empty()).then(|| both.join(", "))?;
            Some(format!(
                "TrafficPolicy {name} sets {both} and takes precedence"
            ))
        });
        said.collect()
    }
}

/// The policy to write for a Service.
#[must_use]
pub fn advised(namespace: &str, service: &str, advice: &TrafficAdvice) -> TrafficPolicySpec {
    generated::traffic_policy(namespace, service, advice).spec
}

/// The least that is said of a Service whose replicas become more: a new one's share grows.
#[must_use]
pub fn slow_start(service: &str, window: std::time::Duration) -> TrafficPolicySpec {
    let cluster = raw::Cluster {
        slow_start: Some(raw::SlowStart {
            window: Some(TimeSpan(window)),
            ..raw::SlowStart::default()
        }),
        ..raw::Cluster::default()
    };
    TrafficPolicySpec {
        target_refs: vec![generated::target(service)],
        cluster: Some(cluster),
        ..TrafficPolicySpec::default()
    }
}

/// Without what is not set: an API server takes no field that a definition does not have, not even as `null`.
fn set(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(name, value)| (name, set(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(set).collect()),
        value => value,
    }
}

/// As it is applied; it goes with the policy that wrote it.
#[must_use]
pub fn document(
    policy: &TuningPolicy,
    service: &str,
    spec: &TrafficPolicySpec,
    former: Option<&TrafficPolicySpec>,
) -> Value {
    let meta = &policy.metadata;
    let mut document = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "TrafficPolicy",
        "metadata": {
            "name": name(service),
            "namespace": meta.namespace,
            "labels": {TUNED_BY: meta.name},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TuningPolicy",
                "name": meta.name, "uid": meta.uid,
            }],
        },
        "spec": set(json!(spec)),
    });
    if let Some(former) = former {
        let former = serde_json::to_string(former).unwrap_or_default();
        document["metadata"]["annotations"] = json!({FORMER: former});
    }
    document
}
