//! Reloads that have failed and are to be repeated.
//!
//! Why a reload fails may have to do with the machine and not with what was to be read: there is no descriptor
//! left, a port is taken, a certificate is about to be written. Nothing about the configuration changes when that
//! is over, so nobody would say that it is time to try again.

use std::time::Duration;

use tokio::time::Instant;

/// The pause before a failed reload is retried: at first, and at most. It doubles in between.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct PendingReload {
    /// Certificates, keys or roots have changed, and what they hold now is not in force. A file that turns out to
    /// say what is in force already does not pay for that.
    files: bool,
    /// When the next attempt is due, and the pause before it.
    again: Option<(Instant, Duration)>,
}

impl PendingReload {
    /// Whether files are to be read again besides the configuration.
    pub(super) fn files(&self) -> bool {
        self.files
    }

    /// Whether it is time to try again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|(at, _)| at <= now)
    }

    /// A reload has failed, which was to read `files` again, too; `again`: it was a further attempt.
    pub(super) fn failed(&mut self, files: bool, again: bool, now: Instant) {
        self.files |= files;
        let last = self.again.filter(|_| again);
        let pause = last.map_or(FIRST, |(_, pause)| (2 * pause).min(LONGEST));
        self.again = Some((now + pause, pause));
    }

    /// What is wanted is in force.
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
