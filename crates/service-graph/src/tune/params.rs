//! The parameters of tuning.

use std::time::Duration;

use crate::advise::TrialParams;

const MINUTE: Duration = Duration::from_secs(60);

/// All parameters of a [`Tuning`](super::Tuning).
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The relative difference to the recommendation up to which requests are kept. Default 0.1.
    pub margin: f64,
    /// The maximum number of changes that begin in a round, for all services together. Default 2.
    pub changes: usize,
    /// The time for which a service is observed before it is changed. Replicas are added without this delay. Default 10
    /// min.
    pub observe: Duration,
    /// The time after a change of a service for which it is not changed again, except for adding replicas. Default 10
    /// min.
    pub cool_down: Duration,
    /// The time after which replicas that are not ready count as failed, so that their change is rolled back. Default 3
    /// min.
    pub ready: Duration,
    /// The conditions for a rollback.
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
