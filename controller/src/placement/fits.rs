//! Determines whether a pod can be moved, and to which nodes, by the scheduler's rules that do not depend on other
//! pods. The scheduler itself checks the other rules: if it places the new pod on another node, the move is
//! abandoned.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::PLACEMENT;
use super::pod::{Node, Pod};

/// Reason why a pod cannot be moved.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fixed {
    /// The pod has a required pod affinity or anti-affinity.
    Affinity,
    /// The pod has the setting `maglor.dev/placement: disabled`.
    Disabled,
    /// The pod is excluded from evictions by the cluster autoscaler.
    NotToEvict,
    /// The pod does not belong to a Deployment.
    Owner,
    /// The pod has `topologySpreadConstraints` with `DoNotSchedule`.
    Spread,
    /// The pod has a volume that may be local to its node.
    Volume,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Affinity => "its required pod affinity determines its node",
            Self::Disabled => "maglor.dev/placement: disabled",
            Self::NotToEvict => "cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\"",
            Self::Owner => "only pods of Deployments move",
            Self::Spread => "its topologySpreadConstraints determine its node",
            Self::Volume => "a hostPath or persistentVolumeClaim may be bound to its node",
        })
    }
}

/// The annotation of the cluster autoscaler for pods that must not be evicted.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Effects of taints that prevent scheduling.
const KEEPS_AWAY: [&str; 2] = ["NoExecute", "NoSchedule"];

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns why a pod cannot be moved; `None` if it can.
#[must_use]
pub fn fixed(pod: &Pod) -> Option<Fixed> {
    let says = |name: &str, value: &str| {
        let said = [&pod.labels, &pod.annotations].map(|map| map.get(name));
        said.into_iter().flatten().any(|said| said == value)
    };
    if pod.deployment().is_none() {
        return Some(Fixed::Owner);
    }
    if says(PLACEMENT, "disabled") {
        return Some(Fixed::Disabled);
    }
    if says(SAFE_TO_EVICT, "false") {
        return Some(Fixed::NotToEvict);
    }
    let bound = |volume: &Value| {
        !volume["hostPath"].is_null() || !volume["persistentVolumeClaim"].is_null()
    };
    if list(&pod.spec["volumes"]).any(bound) {
        return Some(Fixed::Volume);
    }
    let hard = |one: &Value| one["whenUnsatisfiable"] == "DoNotSchedule";
    if list(&pod.spec["topologySpreadConstraints"]).any(hard) {
        return Some(Fixed::Spread);
    }
    let required = |kind: &str| {
        let rules = &pod.spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"];
        rules.as_array().is_some_and(|rules| !rules.is_empty())
    };
    let apart = !required("podAntiAffinity") || alone_on_a_node(pod);
    (required("podAffinity") || !apart).then_some(Fixed::Affinity)
}

/// Returns whether the pod's only required rule about other pods is that no two pods of its kind share a node.
#[must_use]
pub fn alone_on_a_node(pod: &Pod) -> bool {
    let rules =
        &pod.spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let own = |rule: &Value| {
        let selector = &rule["labelSelector"];
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut labels = labels.map(|(name, value)| (pod.labels.get(name), value.as_str()));
        rule["topologyKey"] == HOSTNAME
            && selector["matchLabels"].is_object()
            && selector["matchExpressions"].is_null()
            && rule["namespaces"].is_null()
            && rule["namespaceSelector"].is_null()
            && labels.all(|(own, wanted)| own.map(String::as_str) == wanted)
    };
    list(rules).count() == 1 && list(rules).all(own)
}

/// Returns whether a node may run a pod.
#[must_use]
pub fn may_run(pod: &Pod, node: &Node) -> bool {
    let selector = pod.spec["nodeSelector"].as_object().into_iter().flatten();
    let mut selector = selector.map(|(name, value)| (node.labels.get(name), value.as_str()));
    !node.closed
        && selector.all(|(own, wanted)| own.map(String::as_str) == wanted)
        && is_required(pod, node)
        && node.taints.iter().all(|taint| is_tolerated(pod, taint))
}

/// Evaluates `requiredDuringSchedulingIgnoredDuringExecution` of `nodeAffinity`: one of its terms must match.
fn is_required(pod: &Pod, node: &Node) -> bool {
    let affinity = &pod.spec["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    if terms.is_null() {
        return true;
    }
    let name = [("metadata.name".to_owned(), node.name.clone())].into();
    list(terms).any(|term| {
        let said = list(&term["matchExpressions"]).count() + list(&term["matchFields"]).count();
        // An empty term matches nothing.
        said > 0
            && list(&term["matchExpressions"]).all(|one| matches(one, &node.labels))
            && list(&term["matchFields"]).all(|one| matches(one, &name))
    })
}

/// Evaluates a requirement of a node selector.
fn matches(requirement: &Value, labels: &BTreeMap<String, String>) -> bool {
    let own = requirement["key"].as_str().and_then(|key| labels.get(key));
    let among = || list(&requirement["values"]).any(|one| one.as_str() == own.map(String::as_str));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = || {
        let value = requirement["values"][0].as_str();
        Some((number(own.map(String::as_str))?, number(value)?))
    };
    match requirement["operator"].as_str() {
        Some("DoesNotExist") => own.is_none(),
        Some("Exists") => own.is_some(),
        Some("Gt") => compared().is_some_and(|(own, value)| own > value),
        Some("In") => own.is_some() && among(),
        Some("Lt") => compared().is_some_and(|(own, value)| own < value),
        Some("NotIn") => own.is_none() || !among(),
        _ => false,
    }
}

fn is_tolerated(pod: &Pod, taint: &Value) -> bool {
    let effect = taint["effect"].as_str().unwrap_or_default();
    if !KEEPS_AWAY.contains(&effect) {
        return true;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(&pod.spec["tolerations"]).any(|one| {
        let (key, said) = (text(&one["key"]), text(&one["effect"]));
        let exists = one["operator"] == "Exists";
        (said.is_empty() || said == effect)
            && ((key.is_empty() && exists) || key == text(&taint["key"]))
            && (exists || text(&one["value"]) == text(&taint["value"]))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &Value) -> Pod {
        Pod::read(&json!({
            "metadata": {"name": "web-5d4-x", "namespace": "shop", "uid": "u",
                "labels": {"app": "web", "pod-template-hash": "5d4"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d4", "controller": true}]},
            "spec": spec,
        }))
    }

    fn node(labels: &Value, taints: &Value) -> Node {
        Node::read(&json!({
            "metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    #[test]
    fn a_pod_that_stays_gets_the_reason() {
        assert_eq!(fixed(&pod(&json!({}))), None);
        let anti = |key: &str, app: &str| {
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}})
        };
        for (spec, expected) in [
            (json!({"volumes": [{"name": "a", "emptyDir": {}}]}), None),
            (
                json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
                Some(Fixed::Volume),
            ),
            (
                json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]}),
                Some(Fixed::Volume),
            ),
            (
                json!({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}),
                None,
            ),
            (
                json!({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}),
                Some(Fixed::Spread),
            ),
            (
                json!({"affinity": {"podAffinity":
                    {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME}]}}}),
                Some(Fixed::Affinity),
            ),
            (anti(HOSTNAME, "web"), None),
            (anti(HOSTNAME, "db"), Some(Fixed::Affinity)),
            (
                anti("topology.kubernetes.io/zone", "web"),
                Some(Fixed::Affinity),
            ),
        ] {
            assert_eq!(fixed(&pod(&spec)), expected, "{spec}");
        }
        assert!(alone_on_a_node(&pod(&anti(HOSTNAME, "web"))));
        let mut other = pod(&json!({}));
        other
            .annotations
            .insert(PLACEMENT.to_owned(), "disabled".to_owned());
        assert_eq!(fixed(&other), Some(Fixed::Disabled));
        other.owner = Some(("StatefulSet".to_owned(), "web".to_owned()));
        assert_eq!(fixed(&other), Some(Fixed::Owner));
    }

    #[test]
    fn nodes_take_whom_they_would() {
        let plain = node(&json!({"disk": "ssd", "cores": "8"}), &json!([]));
        let required = |expression: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
        };
        for (spec, expected) in [
            (json!({}), true),
            (json!({"nodeSelector": {"disk": "ssd"}}), true),
            (json!({"nodeSelector": {"disk": "hdd"}}), false),
            (
                required(json!({"key": "disk", "operator": "In", "values": ["ssd"]})),
                true,
            ),
            (
                required(json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]})),
                false,
            ),
            (required(json!({"key": "gpu", "operator": "Exists"})), false),
            (
                required(json!({"key": "gpu", "operator": "DoesNotExist"})),
                true,
            ),
            (
                required(json!({"key": "cores", "operator": "Gt", "values": ["4"]})),
                true,
            ),
            (
                required(json!({"key": "cores", "operator": "Lt", "values": ["4"]})),
                false,
            ),
        ] {
            assert_eq!(may_run(&pod(&spec), &plain), expected, "{spec}");
        }
        let taints = json!([{"key": "edge", "value": "far", "effect": "NoSchedule"},
                            {"key": "busy", "effect": "PreferNoSchedule"}]);
        let tainted = node(&json!({}), &taints);
        assert!(!may_run(&pod(&json!({})), &tainted));
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "edge", "operator": "Exists"}), true),
            (
                json!({"key": "edge", "value": "far", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": "edge", "value": "near"}), false),
            (
                json!({"key": "edge", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
        ] {
            let pod = pod(&json!({"tolerations": [toleration]}));
            assert_eq!(may_run(&pod, &tainted), expected, "{:?}", pod.spec);
        }
        let mut closed = plain.clone();
        closed.closed = true;
        assert!(!may_run(&pod(&json!({})), &closed));
    }
}
