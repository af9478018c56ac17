//! The record of a service: everything that must survive a crash.

use std::collections::BTreeMap;

use maglor_balance::Time;

use super::measured::Measured;

/// The stage of a service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stage {
    /// It has reached its target, and is compared with before.
    Judged,
    /// It has reached its target and stays there.
    #[default]
    Kept,
    /// It is moving.
    Moving,
    /// It is back at its former placement, because the new one was worse.
    RolledBack,
    /// It is moving back.
    Undoing,
}

/// The number of replicas by node.
pub type Spread = BTreeMap<String, u32>;

/// The stored state of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The stage.
    pub stage: Stage,
    /// The target placement.
    pub wanted: Spread,
    /// The former placement; `None` if it did not fit, and so cannot be restored.
    pub former: Option<Spread>,
    /// The measurements of its calls before.
    pub before: Option<Measured>,
    /// The measurements afterwards.
    pub after: Option<Measured>,
    /// The time until which it is not changed.
    pub rests_until: Time,
    /// The number of consecutive moves that failed or were rolled back.
    pub failures: u32,
}
