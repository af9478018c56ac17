//! Calls that stay on their node.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls stay on the node that they come from, as far as the endpoints there can take them: each gets up to
/// its fair share of all calls and the slack, by water-filling, and the rest goes where room is left. Who
/// calls from where is known by the communication graph.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalFirst {
    /// Off where a level further out says on. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How far an endpoint may be above its fair share, in percent: 0 to 100. More keeps more calls on their
    /// node and spreads them less evenly. Default: 20.
    #[serde(default = "slack")]
    #[schemars(range(max = 100))]
    pub slack_percent: u8,
}

fn yes() -> bool {
    true
}

fn slack() -> u8 {
    20
}

impl LocalFirst {
    /// The slack as a part of a fair share, 0 to 1.
    #[must_use]
    pub fn slack(self) -> f64 {
        f64::from(self.slack_percent.min(100)) / 100.0
    }
}
