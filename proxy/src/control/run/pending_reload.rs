//! Failed reloads, which are retried.
//!
//! A reload may fail because of the machine and not the configuration: no descriptor is left, a port is
//! taken, a certificate is about to be written. The configuration does not change when that is over, so that
//! no event would cause another attempt.

use std::time::Duration;

use tokio::time::Instant;

/// Pause before a failed reload is retried: the first and the longest. It doubles in between.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// State of retries.
#[derive(Debug, Default)]
pub(super) struct PendingReload {
    /// Certificates, keys or roots have changed, and their new content is not in force. Kept until a reload
    /// succeeds, even if the configuration file itself has not changed.
    files: bool,
    /// Time of the next attempt, and the pause before it.
    again: Option<(Instant, Duration)>,
}

impl PendingReload {
    /// Returns whether certificates, keys and roots are read again, too.
    pub(super) fn files(&self) -> bool {
        self.files
    }

    /// Returns whether the next attempt is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|(at, _)| at <= now)
    }

    /// Records a failed reload. `files`: it would have read certificates, keys and roots again; `again`: it
    /// was itself a retry.
    pub(super) fn failed(&mut self, files: bool, again: bool, now: Instant) {
        self.files |= files;
        let last = self.again.filter(|_| again);
        let pause = last.map_or(FIRST, |(_, pause)| (2 * pause).min(LONGEST));
        self.again = Some((now + pause, pause));
    }

    /// Records that the wanted configuration is in force.
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
