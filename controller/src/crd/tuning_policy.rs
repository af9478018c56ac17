//! `TuningPolicy`: which services are tuned by observations, within what limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::Shape;
use super::{LabelSelector, SpecError};

mod status;

pub use status::{ServiceTuning, TunedValue, TuningChange, TuningMeasure, TuningPolicyStatus};

/// Tunes services of its namespace by observations (docs/generated.md): replicas, CPU and memory requests, and the
/// callers' limits, timeouts and retries. By default changes are only recommended; with `mode: Apply` they are made,
/// a few at a time, and rolled back if they made a service worse.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "TuningPolicy",
        plural = "tuningpolicies",
        namespaced,
        status = "TuningPolicyStatus",
        schema = "disabled",
        shortname = "tup",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#,
        printcolumn = r#"{"name": "Requested", "type": "string", "jsonPath": ".status.requested"}"#,
        printcolumn = r#"{"name": "Advised", "type": "string", "jsonPath": ".status.advised"}"#,
        printcolumn = r#"{"name": "Changed", "type": "integer", "jsonPath": ".status.changesDone"}"#,
        printcolumn = r#"{"name": "Taken back", "type": "integer", "jsonPath": ".status.takenBack"}"#,
        printcolumn = r#"{"name": "Settled", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Settled\")].status"}"#,
        printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Settled\")].reason"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningPolicySpec {
    /// Whether recommendations are only reported or carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Observe"))]
    pub mode: Option<TuningMode>,
    /// Only services all of whose pods have these labels are tuned. Absent: all services of the namespace. If two
    /// policies select a service, the older one applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// With `mode: Apply`: the parts to set. Absent: all parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub parts: Vec<TuningPart>,
    /// Thresholds (P of the paper's Algorithm 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<TuningThresholds>,
    /// Range of replicas, and conditions for scaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<TuningScaling>,
    /// Resource requests that differ from the recommendation by at most this many percent are not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000), extend("default" = 10))]
    pub margin_percent: Option<u32>,
    /// Interval of the evaluation, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 30))]
    pub round_seconds: Option<u32>,
    /// Time for which a service is observed before it is changed, in seconds. Replicas are added without this delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 604_800), extend("default" = 600))]
    pub observe_seconds: Option<u32>,
    /// Maximum number of changes started in a round. Resource requests are always changed for one service at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 2))]
    pub changes_per_round: Option<u32>,
    /// Time for which a service is not changed after a change, in seconds. Replicas are added without this delay. A
    /// rolled-back change is not repeated for at least half an hour, and for twice as long each further time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400), extend("default" = 600))]
    pub cooldown_seconds: Option<u32>,
    /// Timeout for replicas to become ready after a change, in seconds. After it the change is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 180))]
    pub ready_seconds: Option<u32>,
    /// Evaluation of changes, and the conditions for rolling back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<TuningGuard>,
}

/// Whether recommendations are only reported or carried out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TuningMode {
    /// Carry out recommendations.
    Apply,
    /// Report the totals of current and recommended requests.
    #[default]
    Observe,
    /// Also report each recommended value with its reason, and emit an event when there are recommendations.
    Recommend,
}

/// The parts that can be set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TuningPart {
    /// The number of replicas of a Deployment.
    Replicas,
    /// CPU and memory requests. Changing them replaces the pods.
    Requests,
    /// Limits, timeouts, retries and circuit breakers of callers: a `TrafficPolicy` for each Service.
    Traffic,
}

/// Thresholds (P of the paper's Algorithm 2).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningThresholds {
    /// Mean response time above which a service is slow, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600_000), extend("default" = 500))]
    pub latency_milliseconds: Option<u32>,
    /// Failure rate above which a service gets retries and circuit breakers, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 1))]
    pub error_percent: Option<u32>,
    /// Requests per replica within `withinSeconds` above which another replica may be needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000), extend("default" = 50))]
    pub requests: Option<u32>,
    /// Window of `requests`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30))]
    pub within_seconds: Option<u32>,
}

/// Range of replicas.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningScaling {
    /// Minimum number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000), extend("default" = 1))]
    pub min_replicas: Option<u32>,
    /// Maximum number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000), extend("default" = 10))]
    pub max_replicas: Option<u32>,
    /// Replicas are added only if the current ones use more than this share of their CPU limit, in percent. `0`: by
    /// load alone, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 70))]
    pub cpu_percent: Option<u32>,
    /// Time for which fewer replicas must have been sufficient before replicas are removed, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 300))]
    pub patience_seconds: Option<u32>,
    /// Time in which a new replica's share of requests grows to its full size, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30))]
    pub slow_start_seconds: Option<u32>,
}

/// Evaluation of changes.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningGuard {
    /// Duration of the evaluation, in seconds. A change is kept if the service is not worse by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 600))]
    pub seconds: Option<u32>,
    /// Roll back if the mean response time has increased by more than this, in percent, and by more than 5 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 50))]
    pub latency_percent: Option<u32>,
    /// Roll back if the failure rate has increased by more than this, in percentage points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub failure_percent: Option<u32>,
}

impl TuningPolicySpec {
    /// Returns whether recommendations are only reported or carried out.
    #[must_use]
    pub fn mode(&self) -> TuningMode {
        self.mode.unwrap_or_default()
    }

    /// Returns whether a part may be set.
    #[must_use]
    pub fn sets(&self, part: TuningPart) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
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
        for (path, value, least, most) in self.numbers() {
            if value.is_some_and(|value| !(least..=most).contains(&value)) {
                return Err(wrong(path, format!("must be {least} to {most}")));
            }
        }
        let twice =
            |(at, part): (usize, &TuningPart)| self.parts.iter().take(at).any(|one| one == part);
        if let Some(at) = self.parts.iter().enumerate().position(twice) {
            return Err(wrong(&format!("parts[{at}]"), "duplicate part".to_owned()));
        }
        let scaling = self.scaling.clone().unwrap_or_default();
        let (least, most) = (
            scaling.min_replicas.unwrap_or(1),
            scaling.max_replicas.unwrap_or(10),
        );
        if least > most {
            let message = format!("must not be above scaling.maxReplicas, which is {most}");
            return Err(wrong("scaling.minReplicas", message));
        }
        Ok(())
    }

    /// Returns the numeric fields and their ranges.
    fn numbers(&self) -> [(&'static str, Option<u32>, u32, u32); 18] {
        let limits = self.thresholds.clone().unwrap_or_default();
        let scaling = self.scaling.clone().unwrap_or_default();
        let guard = self.guard.clone().unwrap_or_default();
        let day = 86_400;
        [
            ("marginPercent", self.margin_percent, 0, 1000),
            ("roundSeconds", self.round_seconds, 5, 3600),
            ("observeSeconds", self.observe_seconds, 0, 7 * day),
            ("changesPerRound", self.changes_per_round, 1, 1000),
            ("cooldownSeconds", self.cooldown_seconds, 0, day),
            ("readySeconds", self.ready_seconds, 5, 3600),
            (
                "thresholds.latencyMilliseconds",
                limits.latency_milliseconds,
                1,
                3_600_000,
            ),
            ("thresholds.errorPercent", limits.error_percent, 0, 100),
            ("thresholds.requests", limits.requests, 1, 1_000_000_000),
            ("thresholds.withinSeconds", limits.within_seconds, 1, 3600),
            ("scaling.minReplicas", scaling.min_replicas, 1, 10_000),
            ("scaling.maxReplicas", scaling.max_replicas, 1, 10_000),
            ("scaling.cpuPercent", scaling.cpu_percent, 0, 100),
            ("scaling.patienceSeconds", scaling.patience_seconds, 5, day),
            (
                "scaling.slowStartSeconds",
                scaling.slow_start_seconds,
                1,
                3600,
            ),
            ("guard.seconds", guard.seconds, 5, day),
            ("guard.latencyPercent", guard.latency_percent, 1, 1000),
            ("guard.failurePercent", guard.failure_percent, 1, 100),
        ]
    }
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<TuningPolicySpec, TuningPolicyStatus>();
    shape.spec["properties"]["parts"]["x-kubernetes-list-type"] = "set".into();
    shape.spec["properties"]["scaling"]["x-kubernetes-validations"] = serde_json::json!([{
        "rule": "(has(self.minReplicas) ? self.minReplicas : 1) <= (has(self.maxReplicas) ? self.maxReplicas : 10)",
        "message": "`minReplicas` must not be above `maxReplicas`",
    }]);
    shape.into_schema()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> TuningPolicySpec {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, expected) in [
            ("{roundSeconds: 4}", "spec.roundSeconds: must be 5 to 3600"),
            ("{changesPerRound: 0}", "spec.changesPerRound: must be 1"),
            (
                "{thresholds: {requests: 0}}",
                "spec.thresholds.requests: must be 1",
            ),
            (
                "{scaling: {cpuPercent: 101}}",
                "spec.scaling.cpuPercent: must be 0 to 100",
            ),
            (
                "{scaling: {minReplicas: 11}}",
                "spec.scaling.minReplicas: must not be above",
            ),
            (
                "{guard: {latencyPercent: 0}}",
                "spec.guard.latencyPercent: must be 1",
            ),
            (
                "{parts: [Traffic, Replicas, Traffic]}",
                "spec.parts[2]: duplicate part",
            ),
        ] {
            let error = spec(text).check().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!(serde_yaml::from_str::<TuningPolicySpec>("{mode: Perhaps}").is_err());
        assert!(serde_yaml::from_str::<TuningPolicySpec>("{replicas: 2}").is_err());
        let plain = spec("{}");
        assert_eq!((plain.check(), plain.mode()), (Ok(()), TuningMode::Observe));
        assert!(plain.sets(TuningPart::Requests));
        let some = spec("{mode: Apply, parts: [Traffic], selector: {matchLabels: {app: web}}}");
        assert_eq!((some.check(), some.mode()), (Ok(()), TuningMode::Apply));
        assert!(some.sets(TuningPart::Traffic) && !some.sets(TuningPart::Replicas));
    }
}
