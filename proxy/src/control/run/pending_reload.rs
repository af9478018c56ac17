//! Failed reloads, which are retried.
//!
//! A reload may fail because of the machine and not the configuration: no descriptor is left, a port is taken, a
//! certificate is not written yet. When such a condition ends, the configuration does not change, so no event would
//! cause another attempt.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest and longest pause before a failed reload is retried. The pause doubles with each failure.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// State of retries.
#[derive(Debug, Default)]
pub(super) struct PendingReload {
    /// Whether certificates, keys or roots have changed and their new content is not applied yet. Kept until a reload
    /// succeeds, even if the configuration file itself has not changed.
    files: bool,
    /// Time of the next attempt, and the pause before it; `None` if no reload has failed.
    again: Option<(Instant, Duration)>,
}

impl PendingReload {
    /// Returns whether the next reload must also reread certificates, keys and roots.
    pub(super) fn files(&self) -> bool {
        self.files
    }

    /// Returns whether the next attempt is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|(at, _)| at <= now)
    }

    /// Records a failed reload. `files`: the reload would also have reread certificates, keys and roots; `again`: it
    /// was itself a retry.
    pub(super) fn failed(&mut self, files: bool, again: bool, now: Instant) {
        self.files |= files;
        let last = self.again.filter(|_| again);
        let pause = last.map_or(FIRST, |(_, pause)| (2 * pause).min(LONGEST));
        self.again = Some((now + pause, pause));
    }

    /// Records that the configuration of the file was applied.
    pub(super) fn settled(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_something_new_is_attempted() {
        let mut pending = PendingReload::default();
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!pending.is_due(after(1000)) && !pending.files());
        pending.failed(false, false, begin);
        assert!(!pending.is_due(begin) && pending.is_due(after(1)));
        pending.failed(true, true, after(1));
        assert!(!pending.is_due(after(2)) && pending.is_due(after(3)));
        for _ in 0..10 {
            pending.failed(false, true, after(3));
        }
        assert!(!pending.is_due(after(32)) && pending.is_due(after(33)));
        assert!(pending.files(), "until they are in force");
        pending.failed(false, false, after(33));
        assert!(pending.is_due(after(34)));
        pending.settled();
        assert!(!pending.is_due(after(1000)) && !pending.files());
    }
}
