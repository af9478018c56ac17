//! Autoscaling of proxies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Range of the number of proxies, and the metrics by which they are scaled (`autoscaling/v2`).
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Autoscaling {
    /// Minimum number of proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub min_replicas: Option<u32>,
    /// Maximum number of proxies.
    #[schemars(range(min = 1, max = 100))]
    pub max_replicas: u32,
    /// Target CPU utilization in percent of the container's request; requires the cluster's resource metrics.
    /// Default: 70, unless `requestsPerSecond` is set. If both are set, the one that needs more proxies applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub cpu_percent: Option<u32>,
    /// Target requests per second for each proxy; requires the controller's external metrics (`externalMetrics` of
    /// the chart).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: Option<u32>,
    /// Stabilization window for scaling down, in seconds, so that proxies added for a burst are kept for the next
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600), extend("default" = 300))]
    pub stabilization_seconds: Option<u32>,
}

/// Default target CPU utilization, in percent of the container's request.
const CPU_PERCENT: u32 = 70;

impl Autoscaling {
    /// Returns the minimum and the maximum number of proxies.
    #[must_use]
    pub fn range(&self) -> (u32, u32) {
        (self.min_replicas.unwrap_or(1), self.max_replicas)
    }

    /// Returns the target CPU utilization in percent of the container's request; `None` if it is not used.
    #[must_use]
    pub fn cpu_percent(&self) -> Option<u32> {
        let unsaid = self.requests_per_second.is_none();
        self.cpu_percent.or(unsaid.then_some(CPU_PERCENT))
    }

    /// Returns the stabilization window of scaling down, in seconds.
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
