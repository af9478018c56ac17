//! Parameters of tuning.

use std::time::Duration;

use crate::advise::TrialParams;

const MINUTE: Duration = Duration::from_secs(60);

/// All parameters of a [`Tuning`](super::Tuning).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// Requests that differ from what is advised by no more than this, relative, stay. Default 0.1.
    pub margin: f64,
    /// Changes that are begun a round, of all services together. Default 2.
    pub changes: usize,
    /// A service is observed for this long before it is changed; but replicas are added at once. Default 10 min.
    pub observe: Duration,
    /// After a change of a service nothing else of it is changed for this long, but for more replicas. Default 10
    /// min.
    pub cool_down: Duration,
    /// Replicas that are not ready after this are no good: what made them is rolled back. Default 3 min.
    pub ready: Duration,
    /// What makes a change be rolled back.
    pub trial: TrialParams,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            margin: 0.1,
            changes: 2,
            observe: 10 * MINUTE,
            cool_down: 10 * MINUTE,
            ready: 3 * MINUTE,
            trial: TrialParams::default(),
        }
    }
}
