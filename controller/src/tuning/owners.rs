//! Other managers of a Deployment: autoscalers, its owner, and users who have opted out.

use maglor_service_graph::tune::{Held, Part};
use serde_json::Value;

use super::text;
use super::workload::Workload;

/// The settings of a service that must not be changed, and their managers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hold {
    /// The settings that are excluded.
    pub held: Held,
    /// The reasons for the exclusions, one message each.
    pub why: Vec<String>,
    /// Whether a HorizontalPodAutoscaler sets the number of replicas.
    pub autoscaled: bool,
}

impl Hold {
    /// Excludes all settings of the Deployment.
    pub fn workload(&mut self, why: String) {
        (self.held.replicas, self.held.cpu, self.held.memory) = (true, true, true);
        self.why.push(why);
    }

    /// Excludes the generated `TrafficPolicy`.
    pub fn traffic(&mut self, why: String) {
        self.held.traffic = true;
        self.why.push(why);
    }
}

/// Returns whether an autoscaler targets a Deployment.
fn is_for(reference: &Value, workload: &Workload) -> bool {
    reference["kind"] == "Deployment" && reference["name"] == workload.key.name.as_str()
}

/// Returns the exclusions of a Deployment: those in its own settings, and those by the autoscalers of its namespace.
#[must_use]
pub fn hold(workload: &Workload, horizontal: &[Value], vertical: &[Value]) -> Hold {
    let mut hold = Hold::default();
    if workload.disabled {
        hold.workload(format!("{}: disabled", super::TUNING));
        hold.held.traffic = true;
    }
    if let Some((kind, name)) = &workload.owner {
        hold.workload(format!("{kind} {name} manages its Deployment"));
    }
    if workload.paused {
        hold.workload("its Deployment is paused".to_owned());
    }
    for part in workload.overridden() {
        let what = match part {
            Part::Replicas => "the number of replicas",
            Part::Requests => "CPU and memory requests",
            Part::Traffic => continue,
        };
        hold.held.replicas |= part == Part::Replicas;
        hold.held.cpu |= part == Part::Requests;
        hold.held.memory |= part == Part::Requests;
        let annotation = super::TUNED;
        hold.why.push(format!(
            "another writer changed {what}; remove the annotation {annotation} to resume tuning"
        ));
    }
    for one in horizontal
        .iter()
        .filter(|one| is_for(&one["spec"]["scaleTargetRef"], workload))
    {
        horizontally(one, &mut hold);
    }
    for one in vertical
        .iter()
        .filter(|one| is_for(&one["spec"]["targetRef"], workload))
    {
        vertically(one, &mut hold);
    }
    hold
}

/// Excludes replicas, and the requests to which the autoscaler's utilization is relative.
fn horizontally(autoscaler: &Value, hold: &mut Hold) {
    let metrics = autoscaler["spec"]["metrics"].as_array();
    let by_memory = metrics.into_iter().flatten().any(|metric| {
        let of = |kind: &str| metric[kind]["name"] == "memory";
        of("resource") || of("containerResource")
    });
    (hold.autoscaled, hold.held.replicas, hold.held.cpu) = (true, true, true);
    hold.held.memory |= by_memory;
    let name = text(&autoscaler["metadata"]["name"]);
    let what = match by_memory {
        true => "replicas, based on CPU and memory requests",
        false => "replicas, based on CPU requests",
    };
    hold.why
        .push(format!("HorizontalPodAutoscaler {name} manages {what}"));
}

/// Excludes requests, unless the autoscaler only recommends.
fn vertically(autoscaler: &Value, hold: &mut Hold) {
    if autoscaler["spec"]["updatePolicy"]["updateMode"] == "Off" {
        return;
    }
    let policies = autoscaler["spec"]["resourcePolicy"]["containerPolicies"].as_array();
    let policies = || policies.into_iter().flatten();
    // Containers without a policy are managed by default.
    let about_all = policies().any(|policy| policy["containerName"] == "*");
    let allows = |policy: &Value, resource: &str| {
        let listed = policy["controlledResources"].as_array();
        policy["mode"] != "Off" && listed.is_none_or(|all| all.iter().any(|one| one == resource))
    };
    let controls = |resource| !about_all || policies().any(|policy| allows(policy, resource));
    let (cpu, memory) = (controls("cpu"), controls("memory"));
    hold.held.cpu |= cpu;
    hold.held.memory |= memory;
    let what = match (cpu, memory) {
        (true, true) => "CPU and memory",
        (true, false) => "CPU",
        (false, true) => "memory",
        (false, false) => return,
    };
    let name = text(&autoscaler["metadata"]["name"]);
    hold.why.push(format!(
        "VerticalPodAutoscaler {name} manages requests of {what}"
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::facts::Key;

    fn web() -> Workload {
        Workload {
            key: Key::new("shop", "web"),
            ..Workload::default()
        }
    }

    fn scaler(target: &str, metrics: &Value) -> Value {
        json!({"metadata": {"name": "h"}, "spec": {"metrics": metrics,
            "scaleTargetRef": {"kind": "Deployment", "name": target}}})
    }

    fn vertical(spec: &Value) -> Value {
        let mut one = json!({"metadata": {"name": "v"}, "spec": spec});
        one["spec"]["targetRef"] = json!({"kind": "Deployment", "name": "web"});
        one
    }

    #[test]
    fn autoscalers_keep_what_is_theirs() {
        let by = |name: &str| json!([{"type": "Resource", "resource": {"name": name}}]);
        let held = |horizontal: &[Value], vertical: &[Value]| {
            let Held {
                replicas,
                cpu,
                memory,
                traffic,
            } = hold(&web(), horizontal, vertical).held;
            (replicas, cpu, memory, traffic)
        };
        assert_eq!(held(&[], &[]), (false, false, false, false));
        assert_eq!(
            held(&[scaler("cart", &by("cpu"))], &[]),
            (false, false, false, false)
        );
        assert_eq!(
            held(&[scaler("web", &by("cpu"))], &[]),
            (true, true, false, false)
        );
        assert_eq!(
            held(&[scaler("web", &by("memory"))], &[]),
            (true, true, true, false)
        );
        let off = json!({"updatePolicy": {"updateMode": "Off"}});
        let memory = json!({"resourcePolicy": {"containerPolicies": [
            {"containerName": "*", "controlledResources": ["memory"]}]}});
        assert_eq!(
            held(&[], &[vertical(&json!({}))]),
            (false, true, true, false)
        );
        assert_eq!(held(&[], &[vertical(&off)]), (false, false, false, false));
        assert_eq!(held(&[], &[vertical(&memory)]), (false, false, true, false));
        let both = hold(&web(), &[scaler("web", &by("cpu"))], &[vertical(&memory)]);
        assert!(both.autoscaled && both.held.replicas && both.held.memory);
        assert_eq!(both.why.len(), 2, "{:?}", both.why);
    }

    #[test]
    fn what_others_keep_is_left_alone() {
        let mut owned = web();
        owned.owner = Some(("Rollout".to_owned(), "web".to_owned()));
        let hold_of = |workload: &Workload| hold(workload, &[], &[]);
        assert_eq!(hold_of(&owned).why, ["Rollout web manages its Deployment"]);
        assert!(!hold_of(&owned).held.traffic);
        let disabled = Workload {
            disabled: true,
            ..web()
        };
        let all = Held {
            replicas: true,
            cpu: true,
            memory: true,
            traffic: true,
        };
        assert_eq!(hold_of(&disabled).held, all);
    }
}
