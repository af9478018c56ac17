//! Preference for endpoints on the caller's node.

use maglor_service_graph::LocalShares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prefers endpoints on the caller's node as far as they have capacity. Each endpoint gets up to its fair share of
/// all calls plus the slack, by water-filling; the remaining calls go to other endpoints. The communication graph
/// provides the nodes of the callers.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalFirst {
    /// Whether the preference is enabled; `false` disables a preference that an outer level enables. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How far an endpoint may exceed its fair share, in percent, 0 to 100. Higher values keep more calls on their
    /// node and spread them less evenly. Default: 20.
    #[serde(default = "slack")]
    #[schemars(range(max = 100))]
    pub slack_percent: u8,
}

fn yes() -> bool {
    true
}

fn slack() -> u8 {
    LocalShares::SLACK_PERCENT
}

impl LocalFirst {
    /// Returns the slack as a fraction of the fair share, 0 to 1.
    #[must_use]
    pub fn slack(self) -> f64 {
        f64::from(self.slack_percent.min(100)) / 100.0
    }
}
