//! The record of a change, from which a new leader continues.

use std::time::Duration;

use maglor_balance::Time;

use super::Part;
use crate::advise::{Health, Trial};

/// The stage of a change.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// It is made, and not all replicas are updated.
    Changing,
    /// It is compared with before.
    Judged,
    /// It is kept.
    Kept,
    /// It was worse, or could not be completed: the former settings are restored.
    TakenBack,
}

/// A change of one part of a service.
#[derive(Clone, Debug)]
pub struct Record {
    /// The stage.
    pub stage: Stage,
    /// The beginning of the stage.
    pub since: Time,
    /// The measurements before.
    pub before: Health,
    /// The recent measurements, if it is compared.
    pub after: Option<Health>,
    /// The reason of the change or the rollback.
    pub reason: String,
    /// The evaluation, which decides whether the change may be retried.
    pub trial: Trial,
    /// The number of replicas that were unavailable before: as many are not attributed to the
    /// change.
    pub unavailable: u32,
    /// The time of the last comparison.
    pub(super) looked: Option<Time>,
    /// Whether a rollback is pending.
    pub(super) pending: bool,
    /// Since when not all replicas are updated and available, if they are not.
    unready: Option<Time>,
}

impl Record {
    /// Creates a record with stored values.
    #[must_use]
    pub fn new(stage: Stage, since: Time, before: Health, reason: String, trial: Trial) -> Self {
        Self {
            stage,
            since,
            before,
            after: None,
            reason,
            trial,
            unavailable: 0,
            looked: None,
            pending: false,
            unready: None,
        }
    }

    /// Updates whether all replicas are updated and available, except for those that were not
    /// before; returns whether the service can be evaluated: they are, or have not been for so long
    /// that it is the change's effect.
    pub(super) fn can_be_looked_at(&mut self, complete: bool, now: Time, ready: Duration) -> bool {
        if complete {
            self.unready = None;
            return true;
        }
        let since = *self.unready.get_or_insert(now);
        now.saturating_since(since) >= ready
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Changing | Stage::Judged)
    }

    pub(super) fn enter(&mut self, stage: Stage, now: Time) {
        (self.stage, self.since) = (stage, now);
    }
}

/// The service and the part of a change.
pub type Of = (String, Part);
