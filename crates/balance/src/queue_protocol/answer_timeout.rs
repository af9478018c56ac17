//! The timeout of queries, and the decision whether to query a host at all; both are learnt from the answers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Time;

/// The timeout in round trips. Since late answers are useless, it is well above the usual spread.
const ROUND_TRIPS: u64 = 4;

/// The bounds of the timeout, and its value before the first answer.
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(50);
const FIRST: Duration = Duration::from_millis(10);

/// The inverse of the weight of a new round trip in the average.
const SMOOTHING: u64 = 8;

/// The number of consecutive timeouts after which the timeout is doubled once, and the maximum number of doublings.
const SILENCES_A_DOUBLING: u32 = 4;
const MAX_DOUBLINGS: u32 = 6;

/// The number of consecutive timeouts after which a host is not queried for a while. One or two occur on lossy links.
const STRIKES: u32 = 3;

/// The length of the first pause, which is doubled with each further strike.
const PAUSE: Duration = Duration::from_millis(250);

/// The maximum number of doublings of the pause, which is then 4 s. For this time, the recovery of a host may stay
/// undetected.
const DOUBLINGS: u32 = 4;

/// The timeout of queries of one kind.
///
/// Accesses are `Relaxed`: a lost update of an average does no harm.
#[derive(Debug, Default)]
pub struct AnswerTimeout {
    /// The average round trip in nanoseconds; 0 before the first answer.
    round_trip: AtomicU64,
    /// The number of timeouts since the last answer.
    silences: AtomicU32,
}

impl AnswerTimeout {
    /// Records a timeout. Several in a row increase the timeout, because otherwise a longer round trip would never be
    /// measured. Single timeouts are losses, and contain no information about time.
    pub fn expired(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the round trip of an answer.
    pub fn learn(&self, asked_at: Time, now: Time) {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let sample = nanos(now.saturating_since(asked_at)).clamp(1, nanos(MOST));
        let old = self.round_trip.load(Ordering::Relaxed);
        let new = match old {
            0 => sample,
            _ => old - old / SMOOTHING + sample / SMOOTHING,
        };
        self.round_trip.store(new.max(1), Ordering::Relaxed);
        if self.silences.load(Ordering::Relaxed) > 0 {
            self.silences.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the time to wait for the next answer.
    pub fn get(&self) -> Duration {
        let usual = match self.round_trip.load(Ordering::Relaxed) {
            0 => FIRST,
            nanos => Duration::from_nanos(nanos * ROUND_TRIPS).clamp(LEAST, MOST),
        };
        let silences = self.silences.load(Ordering::Relaxed);
        let doublings = (silences / SILENCES_A_DOUBLING).min(MAX_DOUBLINGS);
        (usual * (1 << doublings)).min(MOST)
    }
}

/// Whether a host has answered recently, and so may be queried.
#[derive(Debug, Default)]
pub struct Trust {
    strikes: AtomicU32,
    /// When the last strike was counted, in nanoseconds since the epoch.
    struck_at: AtomicU64,
    /// The end of the pause, in nanoseconds since the epoch.
    shunned_until: AtomicU64,
}

impl Trust {
    /// Returns whether to query the host. After the pause, one query per pause is allowed, to detect the host's
    /// recovery.
    pub fn allows(&self, now: Time) -> bool {
        let until = self.shunned_until.load(Ordering::Relaxed);
        if until == 0 {
            return true;
        }
        if now.as_nanos() < until {
            return false;
        }
        // The thread that moves the end of the pause sends the query; the others continue to avoid
        // the host.
        let next = (now + self.pause()).as_nanos();
        let moved =
            self.shunned_until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        moved.is_ok()
    }

    /// Records an answer.
    pub fn answered(&self) {
        // Read first: usually nothing is written to a line that all workers read.
        if self.strikes.load(Ordering::Relaxed) > 0 {
            self.strikes.store(0, Ordering::Relaxed);
            self.shunned_until.store(0, Ordering::Relaxed);
        }
    }

    /// Records that a query sent at `asked_at` has had no answer. Concurrent queries count as one strike: if a host
    /// stalls for a moment, none of them gets an answer.
    pub fn silent(&self, asked_at: Time, now: Time) {
        if asked_at.as_nanos() < self.struck_at.load(Ordering::Relaxed) {
            return;
        }
        self.struck_at.store(now.as_nanos(), Ordering::Relaxed);
        let strikes = self
            .strikes
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if strikes >= STRIKES {
            let until = (now + self.pause()).as_nanos();
            self.shunned_until.store(until, Ordering::Relaxed);
        }
    }

    fn pause(&self) -> Duration {
        let strikes = self.strikes.load(Ordering::Relaxed);
        PAUSE * (1 << strikes.saturating_sub(STRIKES).min(DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn it_follows_the_round_trip_within_bounds() {
        let timeout = AnswerTimeout::default();
        assert_eq!(timeout.get(), FIRST);
        timeout.learn(at(0), at(2));
        assert_eq!(timeout.get(), Duration::from_millis(8));
        for _ in 0..100 {
            timeout.learn(at(5), at(5));
        }
        assert_eq!(timeout.get(), LEAST);
        for _ in 0..100 {
            timeout.learn(at(0), at(1000));
        }
        assert_eq!(timeout.get(), MOST);
    }

    #[test]
    fn a_round_trip_above_the_first_timeout_is_found() {
        let timeout = AnswerTimeout::default();
        let mut waits = 0;
        while timeout.get() < Duration::from_millis(30) {
            timeout.expired();
            waits += 1;
        }
        assert_eq!(waits, 8);
        timeout.learn(at(0), at(2));
        assert_eq!(timeout.get(), Duration::from_millis(8), "no more than that");
    }

    #[test]
    fn questions_that_were_under_way_together_are_one_strike() {
        let trust = Trust::default();
        // A host stalls from 10 to 15 ms; a question every 0.1 ms is given up after 1 ms.
        let micros = |us: u64| Time::from_nanos(us * 1000);
        for asked in (10_000..15_000).step_by(100) {
            if trust.allows(micros(asked)) {
                trust.silent(micros(asked), micros(asked + 1000));
            }
        }
        assert!(trust.allows(at(15 + 250)), "once");
    }

    #[test]
    fn a_silent_host_is_shunned_longer_and_longer_until_it_answers() {
        let trust = Trust::default();
        trust.silent(at(0), at(0));
        trust.silent(at(0), at(0));
        assert!(trust.allows(at(0)), "two losses happen");
        trust.silent(at(0), at(0));
        assert!(!trust.allows(at(249)));
        assert!(trust.allows(at(250)), "one may find out");
        assert!(!trust.allows(at(250)), "and no other");
        trust.silent(at(250), at(252));
        assert!(!trust.allows(at(252 + 499)) && trust.allows(at(252 + 500)));
        trust.answered();
        assert!(trust.allows(at(752)) && trust.allows(at(752)));
    }
}
