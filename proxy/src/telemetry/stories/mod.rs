//! Stories: what is kept of requests that failed and of the slowest, for `maglor why`.
//!
//! Most requests cost a comparison at their end ([`Stories::wants`]). The few that are kept are written as JSON
//! ([`maglor_telemetry::story`]) into a ring of bounded memory, from which the admin server reads them.

mod ring;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maglor_balance::Time;
use maglor_balance::guard::Percent;
use maglor_balance::guard::rate::{RateParams, TokenBucket};
use maglor_telemetry::story::Story;

use self::ring::Ring;
use crate::protocol::response_flag::ResponseFlag;
use crate::telemetry::metrics::StoryMetrics;
use crate::telemetry::record::Slowest;

/// How long a story is kept.
const KEPT: Duration = Duration::from_secs(600);
/// Memory for stories of failures, and of slow requests and clients that left. They are apart, so that neither displaces
/// the other.
const FAILED_BYTES: usize = 640 * 1024;
const SLOW_BYTES: usize = 256 * 1024;
/// How many stories of failures are written a second: more than the ring has room for at first, and later so few that a
/// flood of failures costs no measurable share of a processor.
const FAILED_RATE: RateParams = RateParams {
    requests: 100,
    per: Duration::from_secs(1),
    burst: 2000,
};
/// The same for slow requests, a share of all requests of any load.
const SLOW_RATE: RateParams = RateParams {
    requests: 20,
    per: Duration::from_secs(1),
    burst: 500,
};
/// Share of requests that are the slowest.
const SLOWEST_PERCENT: u8 = 1;

/// The stories of a process.
#[derive(Debug)]
pub(crate) struct Stories {
    is_on: AtomicBool,
    slowest: Option<Slowest>,
    failed_permits: TokenBucket,
    slow_permits: TokenBucket,
    rings: Mutex<Rings>,
    /// Number of the next story whose request has no identifier.
    next: AtomicU64,
    metrics: Arc<StoryMetrics>,
}

#[derive(Debug)]
struct Rings {
    failed: Ring,
    slow: Ring,
}

impl Stories {
    pub(crate) fn new(workers: usize, metrics: Arc<StoryMetrics>) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            slowest: Slowest::new(Percent::whole(SLOWEST_PERCENT), workers),
            failed_permits: TokenBucket::new(FAILED_RATE),
            slow_permits: TokenBucket::new(SLOW_RATE),
            rings: Mutex::new(Rings {
                failed: Ring::new(FAILED_BYTES),
                slow: Ring::new(SLOW_BYTES),
            }),
            next: AtomicU64::new(1),
            metrics,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        // Relaxed, here and below: a request may be recorded by the setting before.
        self.is_on.load(Ordering::Relaxed)
    }

    /// Begins or ends to keep stories. Those that are kept are forgotten at the end.
    pub(super) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            let rings = &mut *self.rings();
            rings.failed.clear();
            rings.slow.clear();
        }
    }

    /// Returns whether a request is one of the slowest.
    #[inline]
    pub(crate) fn is_slow(&self, took: Duration, shard: usize) -> bool {
        let slowest = self.slowest.as_ref();
        slowest.is_some_and(|slowest| slowest.contains(took, shard))
    }

    /// Returns whether another story, of a failure or of a slow request, may be written now; otherwise it is counted as
    /// dropped.
    pub(crate) fn permits(&self, failed: bool, now: Time) -> bool {
        let permits = match failed {
            true => &self.failed_permits,
            false => &self.slow_permits,
        };
        let allowed = permits.take(now).allowed;
        if !allowed {
            self.metrics.dropped_rate.add_shared(1);
        }
        allowed
    }

    /// Returns an identifier for a story whose request has none.
    pub(crate) fn next_id(&self) -> String {
        format!("#{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a story.
    pub(crate) fn keep(&self, story: &Story, now: Time) {
        // Serializing such values does not fail.
        let Ok(text) = serde_json::to_vec(story) else {
            return;
        };
        let rings = &mut *self.rings();
        // Clients of streams leave all the time.
        let ring = match story.is_slow_only() || story.flag == ResponseFlag::ClientGone.as_str() {
            true => &mut rings.slow,
            false => &mut rings.failed,
        };
        let kept = match story.is_slow_only() {
            true => &self.metrics.slow,
            false => &self.metrics.failed,
        };
        let dropped = ring.push(text.into(), now);
        kept.add_shared(1);
        self.metrics.dropped_room.add_shared(dropped);
    }

    /// Frees stories that are too old; called about once a second.
    pub(crate) fn expire(&self, now: Time) {
        let rings = &mut *self.rings();
        rings.failed.expire(now);
        rings.slow.expire(now);
    }

    /// Returns the stories, the newest first.
    pub(crate) fn all(&self) -> Vec<Story> {
        let mut texts: Vec<_> = {
            let rings = self.rings();
            rings.failed.iter().chain(rings.slow.iter()).collect()
        };
        texts.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let texts = texts.iter();
        texts
            .filter_map(|(_, text)| serde_json::from_slice(text).ok())
            .collect()
    }

    /// Returns how many stories had no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.metrics.dropped_room.value() + self.metrics.dropped_rate.value()
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        // A panic leaves whole stories.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use maglor_telemetry::story::Request;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn story(id: usize, status: u16) -> Story {
        Story {
            id: format!("request-{id}"),
            flag: "-".into(),
            request: Some(Request {
                status,
                target: "/".repeat(500),
                ..Request::default()
            }),
            ..Story::default()
        }
    }

    fn ids(stories: &Stories) -> Vec<String> {
        stories.all().into_iter().map(|story| story.id).collect()
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_room_is_counted() {
        let stories = Stories::new(1, Arc::clone(&Metrics::new(1).stories));
        for id in 0..5000 {
            stories.keep(&story(id, 503), Time::from_nanos(id as u64));
        }
        stories.keep(&story(5000, 200), Time::from_nanos(5000));
        let kept = ids(&stories);
        assert_eq!(kept[..2], ["request-5000", "request-4999"]);
        assert_eq!(kept.len() as u64 + stories.dropped(), 5001);
        let rings = stories.rings();
        let bytes = rings.failed.bytes() + rings.slow.bytes();
        assert!((FAILED_BYTES - 2000..1 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_story_is_kept_for_ten_minutes() {
        let stories = Stories::new(1, Arc::clone(&Metrics::new(1).stories));
        stories.keep(&story(1, 503), Time::ZERO);
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        stories.keep(&story(2, 503), at(300));
        stories.expire(at(599));
        assert_eq!(ids(&stories), ["request-2", "request-1"]);
        stories.expire(at(601));
        assert_eq!(ids(&stories), ["request-2"]);
        assert_eq!(stories.dropped(), 0);
        stories.set(false);
        assert!(ids(&stories).is_empty());
    }

    #[test]
    fn a_flood_of_failures_is_not_written_in_full() {
        let stories = Stories::new(1, Arc::clone(&Metrics::new(1).stories));
        let permitted = |failed| {
            let permits = (0..10_000).filter(|_| stories.permits(failed, Time::ZERO));
            permits.count()
        };
        // Slow requests take no permits of failures.
        assert_eq!((permitted(false), permitted(true)), (500, 2000));
        assert_eq!(stories.dropped(), 17_500);
    }
}
