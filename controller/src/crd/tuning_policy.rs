//! `TuningPolicy`: which services are configured by what is observed of them, and how carefully.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::Shape;
use super::{LabelSelector, SpecError};

mod status;

pub use status::{ServiceTuning, TunedValue, TuningChange, TuningMeasure, TuningPolicyStatus};

/// Services of its namespace get what they need, by what is observed of them (docs/generated.md): replicas, requests
/// of CPU and memory, and how callers treat them. By default it is only said what would be set; with `mode: Apply` it is
/// set, a few changes at a time, and taken back where that made it worse.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
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
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningPolicySpec {
    /// What is done with advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Observe"))]
    pub mode: Option<TuningMode>,
    /// Only services all of whose pods have these labels. Absent: all of the namespace. Of two policies for one
    /// service the older one holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// With `mode: Apply`: what is set. Absent: all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub parts: Vec<TuningPart>,
    /// Above these there are consequences: P of the paper's Algorithm 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<TuningThresholds>,
    /// How many replicas there may be, and when there are more or fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<TuningScaling>,
    /// Requests that differ from what is advised by no more than so many percent stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000), extend("default" = 10))]
    pub margin_percent: Option<u32>,
    /// How often it is looked at what is observed, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 30))]
    pub round_seconds: Option<u32>,
    /// For how long a service is observed before it is changed, in seconds; replicas are added at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 604_800), extend("default" = 600))]
    pub observe_seconds: Option<u32>,
    /// Changes that are begun a round, at most. What replicas request is changed of one service after the other,
    /// whatever this says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 2))]
    pub changes_per_round: Option<u32>,
    /// For how long nothing of a service is changed after a change, in seconds; replicas are added at once. What was
    /// taken back rests for half an hour at least, and twice as long each further time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400), extend("default" = 600))]
    pub cooldown_seconds: Option<u32>,
    /// How long replicas may take to be ready after a change, in seconds; then it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 3600), extend("default" = 180))]
    pub ready_seconds: Option<u32>,
    /// What is compared before and after, and what makes a change be taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<TuningGuard>,
}

/// What is done with advice.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TuningMode {
    /// It is carried out.
    Apply,
    /// The status says what is requested, and would be.
    #[default]
    Observe,
    /// The status also says each value with its reason, and an event that something is to be changed.
    Recommend,
}

/// What can be set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TuningPart {
    /// How many replicas a Deployment has.
    Replicas,
    /// CPU and memory that they request. They are replaced by others for that.
    Requests,
    /// Limits, timeouts, retries and breakers of callers: a `TrafficPolicy` for each Service.
    Traffic,
}

/// P of the paper's Algorithm 2.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningThresholds {
    /// A mean response time above it is slow, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600_000), extend("default" = 500))]
    pub latency_milliseconds: Option<u32>,
    /// A service that fails more of its calls, in percent, gets retries and breakers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 1))]
    pub error_percent: Option<u32>,
    /// More requests than these, a replica, within `withinSeconds`, may need another replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000), extend("default" = 50))]
    pub requests: Option<u32>,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30))]
    pub within_seconds: Option<u32>,
}

/// How many replicas there may be.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningScaling {
    /// At least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000), extend("default" = 1))]
    pub min_replicas: Option<u32>,
    /// At most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000), extend("default" = 10))]
    pub max_replicas: Option<u32>,
    /// Replicas are added only where those that there are use more of the CPU that they can have, in percent.
    /// `0`: the load alone decides, as the paper says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100), extend("default" = 70))]
    pub cpu_percent: Option<u32>,
    /// Replicas are taken away once fewer have been enough for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 300))]
    pub patience_seconds: Option<u32>,
    /// Within so many seconds a new replica comes to its full share of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30))]
    pub slow_start_seconds: Option<u32>,
}

/// What is compared before and after.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TuningGuard {
    /// What is not found to be worse within so many seconds stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 86_400), extend("default" = 600))]
    pub seconds: Option<u32>,
    /// Worse is a mean response time that is longer by more, in percent, and by more than 5 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 50))]
    pub latency_percent: Option<u32>,
    /// Or so many more of a hundred calls that fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub failure_percent: Option<u32>,
}

impl TuningPolicySpec {
    /// What is done with advice.
    #[must_use]
    pub fn mode(&self) -> TuningMode {
        self.mode.unwrap_or_default()
    }

    /// Whether a part may be set.
    #[must_use]
    pub fn sets(&self, part: TuningPart) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
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
        for (path, value, least, most) in self.numbers() {
            if value.is_some_and(|value| !(least..=most).contains(&value)) {
                return Err(wrong(path, format!("must be {least} to {most}")));
            }
        }
        let twice =
            |(at, part): (usize, &TuningPart)| self.parts.iter().take(at).any(|one| one == part);
        if let Some(at) = self.parts.iter().enumerate().position(twice) {
            return Err(wrong(
                &format!("parts[{at}]"),
                "it is there twice".to_owned(),
            ));
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

    /// Fields that are numbers, and what they may be.
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
                "spec.parts[2]: it is there twice",
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
