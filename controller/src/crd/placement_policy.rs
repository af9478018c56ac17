//! `PlacementPolicy`: which services may run elsewhere than they do, for what, and how carefully.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::Shape;
use super::{Condition, LabelSelector, SpecError, is_zero};
use crate::names::is_label;

/// Services run where few of their calls leave a node (docs/placement.md). By default it is only said what
/// would run elsewhere; with `mode: Apply` pods are moved, a few at a time, and back where that was no good.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "maglor.dev",
    version = "v1alpha1",
    kind = "PlacementPolicy",
    plural = "placementpolicies",
    status = "PlacementPolicyStatus",
    schema = "disabled",
    shortname = "pp",
    category = "maglor",
    derive = "PartialEq",
    derive = "Default",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#,
    printcolumn = r#"{"name": "Calls/s", "type": "number", "jsonPath": ".status.callsPerSecond"}"#,
    printcolumn = r#"{"name": "Cross-node", "type": "number", "jsonPath": ".status.crossNodeCallsPerSecond"}"#,
    printcolumn = r#"{"name": "Predicted", "type": "number", "jsonPath": ".status.predictedCrossNodeCallsPerSecond"}"#,
    printcolumn = r#"{"name": "Moved", "type": "integer", "jsonPath": ".status.movesDone"}"#,
    printcolumn = r#"{"name": "Settled", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Settled\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Settled\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementPolicySpec {
    /// What is done with a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Observe"))]
    pub mode: Option<PlacementMode>,
    /// The namespaces whose services may move. All others stay where they are, and count. Of two policies for
    /// one service the older one holds.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// Only services all of whose pods have these labels. Absent: all of the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What is to become small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Traffic"))]
    pub objective: Option<PlacementObjective>,
    /// With `objective: Latency`: how far nodes are apart, where that is not to be what proxies measure. Pairs of
    /// which nothing is said are as far apart as measured; where nothing is measured at all, at 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub delays: Vec<NodeDelay>,
    /// Which nodes are used, and how evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeSelection>,
    /// At most this share of a service's replicas on one node, in percent, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 100))]
    pub max_share_percent: Option<u32>,
    /// How often a plan is made, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 60))]
    pub round_seconds: Option<u32>,
    /// For how many rounds on end a plan has to be worth it (m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub windows: Option<u32>,
    /// What a plan has to win, in percent of what leaves its node now, and above what its moves cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 20))]
    pub margin_percent: Option<u32>,
    /// What a plan has to win, in percent of all calls, so that a small rest is not chased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 1))]
    pub floor_percent: Option<u32>,
    /// For how long a plan is expected to be good, in seconds: what it wins in this time is compared with what
    /// its moves cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000), extend("default" = 3600))]
    pub horizon_seconds: Option<u32>,
    /// What moving a pod costs: as much as if a replica's mean traffic left its node for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_592_000), extend("default" = 900))]
    pub move_cost_seconds: Option<u32>,
    /// Moves that are begun a round, at most (B).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub moves_per_round: Option<u32>,
    /// How long a pod may take to be ready where it is wanted, in seconds; then its predecessor stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 180))]
    pub ready_seconds: Option<u32>,
    /// For how long a service that has been moved stays, in seconds; one that was moved in vain, twice as long
    /// each further time, up to a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400), extend("default" = 600))]
    pub cooldown_seconds: Option<u32>,
    /// What is compared before and after, and what makes moves be taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<PlacementGuard>,
}

/// What is done with a plan.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PlacementMode {
    /// It is carried out.
    Apply,
    /// The status says what leaves its node now, and would by the plan.
    #[default]
    Observe,
    /// The status also says where each service would run, and an event that it is worth it.
    Recommend,
}

/// What is to become small.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PlacementObjective {
    /// Bytes a second that leave their node.
    Bytes,
    /// Calls that leave their node times the delay between the nodes.
    Latency,
    /// Calls a second that leave their node.
    #[default]
    Traffic,
}

/// How far two nodes are apart, both ways.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeDelay {
    /// A node.
    #[schemars(length(min = 1, max = 253))]
    pub from: String,
    /// Another one.
    #[schemars(length(min = 1, max = 253))]
    pub to: String,
    /// What a message takes, one way.
    #[schemars(range(min = 0, max = 60_000))]
    pub milliseconds: f64,
}

/// Which nodes are used, and how evenly.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelection {
    /// At most so many nodes, those with most room. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub top: Option<u32>,
    /// As few nodes as possible, those with most room first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub fewest: Option<bool>,
    /// How far a node may be above its part, which is in the ratio of what nodes have, in percent. Absent: as
    /// far as it has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub slack_percent: Option<u32>,
}

/// What is compared before and after.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementGuard {
    /// For how long it is looked at, in seconds, once the averages of the graph hold nothing from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 180))]
    pub seconds: Option<u32>,
    /// Moves are taken back where the mean response time of a service's calls is longer than before by more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 20))]
    pub latency_percent: Option<u32>,
    /// Or where so many more of a hundred calls fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub failure_percent: Option<u32>,
}

/// What is seen, planned and done.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementPolicyStatus {
    /// `Accepted`: it can be used, or why not; `Settled`: nothing is to move, or what is done, or waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Calls a second that the plan knows of.
    pub calls_per_second: f64,
    /// Those of them that leave their node as things run now.
    pub cross_node_calls_per_second: f64,
    /// And by the plan that was made last.
    pub predicted_cross_node_calls_per_second: f64,
    /// Replicas that would run elsewhere by that plan.
    pub planned_moves: u32,
    /// Pods that have been moved, since the resource is there.
    pub moves_done: u32,
    /// Moves that were given up, and moves that were taken back.
    pub moves_failed: u32,
    /// Services that were moved back because they were worse off.
    pub rolled_back: u32,
    /// Since when moves are judged (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub judged_since: Option<String>,
    /// The services; at most 500, those that move first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServicePlacement>,
    /// Services that are not listed.
    pub services_left_out: u32,
}

/// Where a service runs, and where it is to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePlacement {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// `Fixed`: it stays; `Free`; `Planned`; `Moving`; `Judged`: compared with before; `Kept`; `Undoing`: on its
    /// way back; `RolledBack`.
    pub state: String,
    /// Why it stays, what a move waits for, or why it was taken back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The Deployments of its pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<String>,
    /// Replicas by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
    /// As they are wanted. With `mode: Apply` new pods are asked to run so.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wanted: BTreeMap<String, u32>,
    /// As they were before it was moved, while that may be taken back.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<String, u32>,
    /// How its calls fared before it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<PlacementMeasure>,
    /// And afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<PlacementMeasure>,
    /// It is left alone until then (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rests_until: Option<String>,
    /// How often on end it was moved in vain.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
}

/// How a service's calls fare, those that it makes and those that it takes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementMeasure {
    /// λ: calls a second.
    pub calls_per_second: f64,
    /// r: mean response time in milliseconds.
    pub response_milliseconds: f64,
    /// The part of them that fails, in percent.
    pub failure_percent: f64,
    /// The part of them that leaves its node, in percent, as replicas are spread.
    pub cross_node_percent: f64,
}

impl PlacementPolicyStatus {
    /// Whether nothing is said against using the policy.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        let refuses = |one: &Condition| one.r#type == "Accepted" && one.status == "False";
        !self.conditions.iter().any(refuses)
    }
}

impl PlacementPolicySpec {
    /// What is done with a plan.
    #[must_use]
    pub fn mode(&self) -> PlacementMode {
        self.mode.unwrap_or_default()
    }

    /// Checks what the schema says, for those who have not asked it, and what it cannot say.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |path: &str, message: String| SpecError::Value {
            path: format!("spec.{path}"),
            message,
        };
        if self.namespaces.is_empty() {
            let message = "name a namespace: nothing else moves".to_owned();
            return Err(wrong("namespaces", message));
        }
        if let Some(at) = self.namespaces.iter().position(|name| !is_label(name)) {
            let message = "must be the name of a namespace: a-z, 0-9 and `-`".to_owned();
            return Err(wrong(&format!("namespaces[{at}]"), message));
        }
        for (path, value, least, most) in self.numbers() {
            if value.is_some_and(|value| !(least..=most).contains(&value)) {
                return Err(wrong(path, format!("must be {least} to {most}")));
            }
        }
        let both = |nodes: &NodeSelection| nodes.top.is_some() && nodes.fewest == Some(true);
        if self.nodes.as_ref().is_some_and(both) {
            let message = "say `top` or `fewest`, not both".to_owned();
            return Err(wrong("nodes", message));
        }
        self.check_delays(&wrong)
    }

    fn check_delays(&self, wrong: &dyn Fn(&str, String) -> SpecError) -> Result<(), SpecError> {
        let by_latency = self.objective == Some(PlacementObjective::Latency);
        if !by_latency && !self.delays.is_empty() {
            let message = "only `objective: Latency` goes by them; remove them";
            return Err(wrong("delays", message.to_owned()));
        }
        for (at, delay) in self.delays.iter().enumerate() {
            if !(0.0..=60_000.0).contains(&delay.milliseconds) {
                let path = format!("delays[{at}].milliseconds");
                return Err(wrong(&path, "must be 0 to 60000".to_owned()));
            }
            if delay.from.is_empty() || delay.to.is_empty() || delay.from == delay.to {
                let message = "name two different nodes".to_owned();
                return Err(wrong(&format!("delays[{at}]"), message));
            }
        }
        Ok(())
    }

    /// Fields that are numbers, and what they may be.
    fn numbers(&self) -> [(&'static str, Option<u32>, u32, u32); 15] {
        let nodes = self.nodes.clone().unwrap_or_default();
        let guard = self.guard.clone().unwrap_or_default();
        let day = 86_400;
        [
            ("maxSharePercent", self.max_share_percent, 1, 100),
            ("roundSeconds", self.round_seconds, 5, day),
            ("windows", self.windows, 1, 1000),
            ("marginPercent", self.margin_percent, 0, 100),
            ("floorPercent", self.floor_percent, 0, 100),
            ("horizonSeconds", self.horizon_seconds, 60, 30 * day),
            ("moveCostSeconds", self.move_cost_seconds, 0, 30 * day),
            ("movesPerRound", self.moves_per_round, 1, 1000),
            ("readySeconds", self.ready_seconds, 5, 3600),
            ("cooldownSeconds", self.cooldown_seconds, 0, day),
            ("nodes.top", nodes.top, 1, 10_000),
            ("nodes.slackPercent", nodes.slack_percent, 0, 1000),
            ("guard.seconds", guard.seconds, 5, day),
            ("guard.latencyPercent", guard.latency_percent, 1, 1000),
            ("guard.failurePercent", guard.failure_percent, 1, 100),
        ]
    }
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<PlacementPolicySpec, PlacementPolicyStatus>();
    shape.spec["required"] = json!(["namespaces"]);
    shape.spec["properties"]["namespaces"]["items"] = json!({
        "type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    });
    shape.spec["properties"]["namespaces"]["x-kubernetes-list-type"] = json!("set");
    shape.spec["properties"]["delays"]["items"]["required"] = json!(["from", "to", "milliseconds"]);
    shape.spec["properties"]["nodes"]["x-kubernetes-validations"] = json!([{
        "rule": "!(has(self.top) && has(self.fewest) && self.fewest)",
        "message": "say `top` or `fewest`, not both",
    }]);
    shape.spec["x-kubernetes-validations"] = json!([{
        "rule": "(has(self.objective) && self.objective == 'Latency') || \
                 !has(self.delays) || size(self.delays) == 0",
        "message": "only `objective: Latency` goes by `delays`",
    }]);
    shape.into_schema()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> PlacementPolicySpec {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, expected) in [
            ("{namespaces: []}", "spec.namespaces: "),
            ("{namespaces: [shop, Shop]}", "spec.namespaces[1]: "),
            (
                "{namespaces: [shop], roundSeconds: 4}",
                "spec.roundSeconds: must be 5 to 86400",
            ),
            (
                "{namespaces: [shop], movesPerRound: 0}",
                "spec.movesPerRound: must be 1 to 1000",
            ),
            (
                "{namespaces: [shop], guard: {seconds: 1}}",
                "spec.guard.seconds: must be 5",
            ),
            (
                "{namespaces: [shop], nodes: {top: 2, fewest: true}}",
                "spec.nodes: say `top`",
            ),
            (
                "{namespaces: [shop], delays: [{from: a, to: b, milliseconds: 1}]}",
                "spec.delays: only `objective: Latency`",
            ),
            (
                "{namespaces: [shop], objective: Latency, delays: [{from: a, to: a, milliseconds: 1}]}",
                "spec.delays[0]: name two",
            ),
            (
                "{namespaces: [shop], objective: Latency, delays: [{from: a, to: b, milliseconds: -1}]}",
                "spec.delays[0].milliseconds: must be 0",
            ),
        ] {
            let error = spec(text).check().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        let plain = spec("{namespaces: [shop]}");
        assert_eq!(
            (plain.check(), plain.mode()),
            (Ok(()), PlacementMode::Observe)
        );
        let measured = spec("{namespaces: [shop], objective: Latency}");
        assert_eq!(measured.check(), Ok(()));
        let full = spec(
            "{mode: Apply, namespaces: [shop], objective: Latency, nodes: {fewest: true, slackPercent: 10},
              delays: [{from: a, to: b, milliseconds: 2.5}], guard: {latencyPercent: 30}}",
        );
        assert_eq!((full.check(), full.mode()), (Ok(()), PlacementMode::Apply));
    }
}
