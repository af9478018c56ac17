//! How many proxies there are, where that is not a number that somebody writes down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many proxies there may be, and when there are more (`autoscaling/v2`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Autoscaling {
    /// At least so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub min_replicas: Option<u32>,
    /// At most so many.
    #[schemars(range(min = 1, max = 100))]
    pub max_replicas: u32,
    /// More when their CPU is above this share of what the container asks for, in percent; needs the
    /// cluster's resource metrics. 70 where `requestsPerSecond` is not given either; of both, what asks for
    /// more proxies holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub cpu_percent: Option<u32>,
    /// More when each of them has more requests a second than this; needs the controller's external metrics
    /// (`externalMetrics` of the chart).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: Option<u32>,
    /// There are fewer only when none of the last so many seconds would have asked for more: proxies come for
    /// a burst, and the next one may follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600), extend("default" = 300))]
    pub stabilization_seconds: Option<u32>,
}

/// CPU where nothing is said, in percent of what the container asks for.
const CPU_PERCENT: u32 = 70;

impl Autoscaling {
    /// The least and the most.
    #[must_use]
    pub fn range(&self) -> (u32, u32) {
        (self.min_replicas.unwrap_or(1), self.max_replicas)
    }

    /// In percent of what the container asks for; `None` = it does not count.
    #[must_use]
    pub fn cpu_percent(&self) -> Option<u32> {
        let unsaid = self.requests_per_second.is_none();
        self.cpu_percent.or(unsaid.then_some(CPU_PERCENT))
    }

    /// See the field.
    #[must_use]
    pub fn stabilization_seconds(&self) -> u32 {
        self.stabilization_seconds.unwrap_or(300)
    }

    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let (least, most) = self.range();
        if !(1..=100).contains(&most) {
            return Err(("autoscaling.maxReplicas", "must be 1 to 100"));
        }
        if !(1..=most).contains(&least) {
            return Err(("autoscaling.minReplicas", "must be 1 to maxReplicas"));
        }
        if self
            .cpu_percent
            .is_some_and(|cpu| !(1..=1000).contains(&cpu))
        {
            return Err(("autoscaling.cpuPercent", "must be 1 to 1000"));
        }
        let requests = self.requests_per_second;
        if requests.is_some_and(|rate| !(1..=1_000_000).contains(&rate)) {
            return Err(("autoscaling.requestsPerSecond", "must be 1 to 1000000"));
        }
        if self.stabilization_seconds() > 3600 {
            return Err(("autoscaling.stabilizationSeconds", "must be 0 to 3600"));
        }
        Ok(())
    }
}
