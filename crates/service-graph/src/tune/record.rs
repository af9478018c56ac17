//! The record of a change, from which a new leader continues.

use std::time::Duration;

use maglor_balance::Time;

use super::Part;
use crate::advise::{Health, Trial};

/// The stage of a change.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The change is made, but not all replicas are updated.
    Changing,
    /// The service is compared with its measurements before the change.
    Judged,
    /// The change is kept.
    Kept,
    /// The change was worse, or could not be completed, and the former settings are restored.
    TakenBack,
}

/// A change of one part of a service.
#[derive(Clone, Debug)]
pub struct Record {
    /// The present stage.
    pub stage: Stage,
    /// When the present stage began.
    pub since: Time,
    /// The measurements before the change.
    pub before: Health,
    /// The recent measurements; `None` if the service is not compared yet.
    pub after: Option<Health>,
    /// The reason for the change or the rollback.
    pub reason: String,
    /// The evaluation, which decides whether the change may be retried.
    pub trial: Trial,
    /// The number of replicas that were unavailable before the change, and so are not attributed to it.
    pub unavailable: u32,
    /// The time of the last comparison; `None` if there was none.
    pub(super) looked: Option<Time>,
    /// Whether the rollback still has to be made.
    pub(super) pending: bool,
    /// Since when some replicas have not been updated or available; `None` if all are.
    unready: Option<Time>,
}

impl Record {
    /// Creates a record from stored values.
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

    /// Records whether all replicas are updated and available, except for those that were unavailable before the
    /// change. Returns whether the service can be evaluated: either `complete`, or incomplete for so long that this is
    /// an effect of the change.
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

/// The name of a service, and the changed part of its settings.
pub type Of = (String, Part);
