//! The record of a service: everything that must survive a crash.

use std::collections::BTreeMap;

use maglor_balance::Time;

use super::Measured;

/// How far a service is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Stage {
    /// It is where it is wanted, and compared with before.
    Judged,
    /// It is where it is wanted.
    #[default]
    Kept,
    /// It is on its way.
    Moving,
    /// It is where it was, because it was worse off.
    RolledBack,
    /// It is on its way back.
    Undoing,
}

/// Replicas by node.
pub type Spread = BTreeMap<String, u32>;

/// What is remembered of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// How far it is.
    pub stage: Stage,
    /// Where it is wanted.
    pub wanted: Spread,
    /// Where it was before; none where that did not fit, and so is nothing to go back to.
    pub former: Option<Spread>,
    /// How its calls fared before.
    pub before: Option<Measured>,
    /// And afterwards.
    pub after: Option<Measured>,
    /// It is not changed until then.
    pub rests_until: Time,
    /// How often in a row it was moved in vain.
    pub failures: u32,
}
