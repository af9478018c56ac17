//! The record of a service, which contains everything that must survive a crash.

use std::collections::BTreeMap;

use maglor_balance::Time;

use super::measured::Measured;

/// The stage of a service in a relocation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stage {
    /// The service has reached its target, and is compared with the measurements before.
    Judged,
    /// The service has reached its target and stays there.
    #[default]
    Kept,
    /// The service is moving to its target.
    Moving,
    /// The service is back at its former placement, because the new one was worse.
    RolledBack,
    /// The service is moving back.
    Undoing,
}

/// The number of replicas by node.
pub type Spread = BTreeMap<String, u32>;

/// The stored state of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The present stage.
    pub stage: Stage,
    /// The target placement.
    pub wanted: Spread,
    /// The former placement; `None` if the service did not fit there, so that it cannot be restored.
    pub former: Option<Spread>,
    /// The measurements of the service's calls before the moves; `None` if there are none.
    pub before: Option<Measured>,
    /// The measurements of the service's calls after the moves; `None` if there are none.
    pub after: Option<Measured>,
    /// The time until which the service is not changed.
    pub rests_until: Time,
    /// The number of consecutive relocations that failed or were rolled back.
    pub failures: u32,
}
