//! `PlacementPolicy`: which services may be moved between nodes, with what objective and limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::Shape;
use super::{Condition, LabelSelector, SpecError, is_zero};
use crate::names::is_label;

/// Places services so that few calls cross nodes (docs/placement.md). By default moves are only recommended. With
/// `mode: Apply` pods are moved, a few at a time, and moved back if their services became worse.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
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
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementPolicySpec {
    /// Whether plans are only reported or carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Observe"))]
    pub mode: Option<PlacementMode>,
    /// Namespaces whose services may be moved. Services in other namespaces are not moved, but their calls count. If
    /// two policies select a service, the older one applies.
    #[schemars(length(min = 1, max = 64))]
    pub namespaces: Vec<String>,
    /// Only services all of whose pods have these labels are moved. Absent: all services of the namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The objective to minimize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Traffic"))]
    pub objective: Option<PlacementObjective>,
    /// With `objective: Latency`: delays between nodes, which override those that proxies measure. Other pairs of
    /// nodes have the measured delay, or 0 if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub delays: Vec<NodeDelay>,
    /// Nodes to use, and how to balance them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeSelection>,
    /// Maximum share of a service's replicas on one node, in percent; the number of replicas is rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 100))]
    pub max_share_percent: Option<u32>,
    /// Interval between plans, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 60))]
    pub round_seconds: Option<u32>,
    /// Number of consecutive rounds in which a plan must be worthwhile before it is carried out (m).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 3))]
    pub windows: Option<u32>,
    /// Minimum gain of a plan in addition to the cost of its moves, in percent of the current traffic across nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 20))]
    pub margin_percent: Option<u32>,
    /// Minimum gain of a plan in percent of all calls, so that small improvements are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 1))]
    pub floor_percent: Option<u32>,
    /// Time for which a plan is expected to remain good, in seconds. The gain during this time is compared with the
    /// cost of the moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000), extend("default" = 3600))]
    pub horizon_seconds: Option<u32>,
    /// Cost of moving a pod, in seconds: the mean traffic of a replica across nodes during this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 2_592_000), extend("default" = 900))]
    pub move_cost_seconds: Option<u32>,
    /// Maximum number of moves started in a round (B).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 1))]
    pub moves_per_round: Option<u32>,
    /// Timeout for the replacement pod to become ready, in seconds. After it the old pod stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 180))]
    pub ready_seconds: Option<u32>,
    /// Time for which a moved service is not moved again, in seconds. It doubles after each unsuccessful move, up to
    /// a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400), extend("default" = 600))]
    pub cooldown_seconds: Option<u32>,
    /// Evaluation of moves, and the conditions for moving back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<PlacementGuard>,
}

/// Whether plans are only reported or carried out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PlacementMode {
    /// Carry out plans.
    Apply,
    /// Report the current and the planned traffic across nodes.
    #[default]
    Observe,
    /// Also report the planned placement of each service, and emit an event when a plan is worth it.
    Recommend,
}

/// The objective to minimize.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PlacementObjective {
    /// Bytes per second across nodes.
    Bytes,
    /// Calls across nodes times the delay between the nodes.
    Latency,
    /// Calls per second across nodes.
    #[default]
    Traffic,
}

/// Delay between two nodes, in both directions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeDelay {
    /// The first node.
    #[schemars(length(min = 1, max = 253))]
    pub from: String,
    /// The second node.
    #[schemars(length(min = 1, max = 253))]
    pub to: String,
    /// One-way delay.
    #[schemars(range(min = 0, max = 60_000))]
    pub milliseconds: f64,
}

/// Nodes to use, and how to balance them.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelection {
    /// Maximum number of nodes to use; those with the most free capacity are chosen. Absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub top: Option<u32>,
    /// Whether to use as few nodes as possible, starting with those with the most free capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub fewest: Option<bool>,
    /// How far a node may exceed its share, in percent; a node's share is proportional to its capacity. Absent: up to
    /// its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub slack_percent: Option<u32>,
}

/// Evaluation of changes.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementGuard {
    /// Duration of the evaluation, in seconds. It starts when the averages of the graph no longer include values from
    /// before the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 180))]
    pub seconds: Option<u32>,
    /// Move back if the mean response time of a service's calls has increased by more than this, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 20))]
    pub latency_percent: Option<u32>,
    /// Move back if the failure rate has increased by more than this, in percentage points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub failure_percent: Option<u32>,
}

/// Observations, current plan, and moves.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementPolicyStatus {
    /// `Accepted`: whether the policy is valid; `Settled`: whether no moves are pending, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Calls per second in the graph.
    pub calls_per_second: f64,
    /// Current calls per second across nodes.
    pub cross_node_calls_per_second: f64,
    /// Calls per second across nodes according to the last plan.
    pub predicted_cross_node_calls_per_second: f64,
    /// Number of replicas that the plan moves.
    pub planned_moves: u32,
    /// Number of pods moved since the policy was created.
    pub moves_done: u32,
    /// Number of moves that were abandoned or reverted.
    pub moves_failed: u32,
    /// Number of services moved back because they had become worse.
    pub rolled_back: u32,
    /// Start of the current evaluation of moves (RFC 3339); absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub judged_since: Option<String>,
    /// At most 500 services, moving ones first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServicePlacement>,
    /// Number of services that are not listed.
    pub services_left_out: u32,
}

/// Current and planned placement of a service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePlacement {
    /// Name of the service, `NAMESPACE/NAME`.
    pub name: String,
    /// State of the service: `Fixed` (cannot be moved), `Free`, `Planned`, `Moving`, `Judged` (under evaluation),
    /// `Kept`, `Undoing` (being moved back) or `RolledBack`.
    pub state: String,
    /// Why the service cannot be moved, what a move waits for, or why a move was reverted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Deployments of the service's pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<String>,
    /// Current number of replicas by node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
    /// Planned number of replicas by node. With `mode: Apply`, new pods get a matching node preference.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wanted: BTreeMap<String, u32>,
    /// Number of replicas by node before the move, while the move can be reverted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<String, u32>,
    /// Statistics of the service's calls before the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<PlacementMeasure>,
    /// Statistics of the service's calls after the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<PlacementMeasure>,
    /// Time until which the service is not moved again (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub rests_until: Option<String>,
    /// Number of consecutive unsuccessful moves.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
}

/// Statistics of the calls from and to a service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementMeasure {
    /// Calls per second (λ).
    pub calls_per_second: f64,
    /// Mean response time in milliseconds (r).
    pub response_milliseconds: f64,
    /// Failure rate, in percent.
    pub failure_percent: f64,
    /// Estimated share of calls across nodes, in percent, from the distribution of replicas.
    pub cross_node_percent: f64,
}

impl PlacementPolicyStatus {
    /// Returns whether the policy is valid.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        let refuses = |one: &Condition| one.r#type == "Accepted" && one.status == "False";
        !self.conditions.iter().any(refuses)
    }
}

impl PlacementPolicySpec {
    /// Returns whether plans are only reported or carried out.
    #[must_use]
    pub fn mode(&self) -> PlacementMode {
        self.mode.unwrap_or_default()
    }

    /// Validates the constraints of the schema, for objects that no API server has validated, and constraints that a
    /// schema cannot express.
    ///
    /// # Errors
    /// If a field is invalid; the error describes the first one.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |path: &str, message: String| SpecError::Value {
            path: format!("spec.{path}"),
            message,
        };
        if self.namespaces.is_empty() {
            let message =
                "list at least one namespace; only pods of listed namespaces are moved".to_owned();
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
            let message = "set `top` or `fewest`, not both".to_owned();
            return Err(wrong("nodes", message));
        }
        self.check_delays(&wrong)
    }

    fn check_delays(&self, wrong: &dyn Fn(&str, String) -> SpecError) -> Result<(), SpecError> {
        let by_latency = self.objective == Some(PlacementObjective::Latency);
        if !by_latency && !self.delays.is_empty() {
            let message = "requires `objective: Latency`; remove it";
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

    /// Returns the numeric fields and their ranges.
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
        "message": "set `top` or `fewest`, not both",
    }]);
    shape.spec["x-kubernetes-validations"] = json!([{
        "rule": "(has(self.objective) && self.objective == 'Latency') || \
                 !has(self.delays) || size(self.delays) == 0",
        "message": "`delays` requires `objective: Latency`",
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
                "spec.nodes: set `top`",
            ),
            (
                "{namespaces: [shop], delays: [{from: a, to: b, milliseconds: 1}]}",
                "spec.delays: requires `objective: Latency`",
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
