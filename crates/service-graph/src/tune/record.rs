//! The record of a change, from which a new leader continues.

use std::time::Duration;

use maglor_balance::Time;

use super::Part;
use crate::advise::{Health, Trial};

/// How far a change is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// It is made, and not all replicas are as they are to be.
    Changing,
    /// It is compared with before.
    Judged,
    /// It stays.
    Kept,
    /// It was worse, or could not be: what was there before is there again.
    TakenBack,
}

/// A change of one part of a service.
#[derive(Clone, Debug)]
pub struct Record {
    /// How far it is.
    pub stage: Stage,
    /// Since when.
    pub since: Time,
    /// How the service fared before.
    pub before: Health,
    /// And lately, where it is compared.
    pub after: Option<Health>,
    /// Why it was changed, or rolled back.
    pub reason: String,
    /// Whether it may be retried.
    pub trial: Trial,
    /// Replicas that were not available before: the change is not blamed for as many.
    pub unavailable: u32,
    /// When it was compared the last time.
    pub(super) looked: Option<Time>,
    /// It was to be rolled back, and could not be yet.
    pub(super) pending: bool,
    /// Since when not all replicas are as they are to be, if they are not.
    unready: Option<Time>,
}

impl Record {
    /// A change as it was written down.
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

    /// Takes over whether all replicas are as they should be, those apart that were not before either; returns
    /// whether the service can be judged: they are, or have not been for this long that it is the change's effect.
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

/// Whose change it is.
pub type Of = (String, Part);
