//! Limits on frames that are cheap to send but cost the receiver work: control frames, empty frames, and requests
//! that are reset as soon as they are sent.
//!
//! Each kind has an allowance of frames that a peer may send at once; it is refilled by useful work of the
//! connection, and by time. The rates follow Envoy's limits: 100 `PRIORITY` frames for each stream
//! (`max_inbound_priority_frames_per_stream`), 10 `WINDOW_UPDATE` frames for each DATA frame that was sent
//! (`max_inbound_window_update_frames_per_data_frame_sent`), 500 early resets
//! (`overload.premature_reset_total_stream_count`). The clock is read only when streams begin or are reset, and
//! when an allowance is exhausted.

use std::time::Duration;

use tokio::time::Instant;

/// Allowed control frames for each stream.
const BY_STREAM: u32 = 100;
/// Allowed control frames for each DATA frame that is sent.
const BY_DATA_SENT: u32 = 10;
/// Allowed control frames for each DATA frame that is received: a peer may measure its bandwidth with PINGs.
const BY_DATA_RECEIVED: u32 = 1;
/// Maximum number of consecutive empty frames.
const EMPTY: u32 = 16;
/// Age of a stream below which its reset counts as early. The number of older streams is bounded by the limit of
/// concurrent streams.
const EARLY: Duration = Duration::from_millis(50);

/// Remaining number of frames of one kind, refilled by work and time.
#[derive(Debug)]
struct Allowance {
    left: u32,
    most: u32,
    by_second: u32,
    since: Option<Instant>,
}

impl Allowance {
    const fn new(left: u32, most: u32, by_second: u32) -> Self {
        Self {
            left,
            most,
            by_second,
            since: None,
        }
    }

    fn add(&mut self, frames: u32) {
        self.left = self.left.saturating_add(frames).min(self.most);
    }

    fn take(&mut self) -> bool {
        if self.left == 0 {
            let now = Instant::now();
            let passed = self
                .since
                .replace(now)
                .map_or(1.0, |since| now.duration_since(since).as_secs_f64());
            // At most the limit, which is far below 2³².
            self.add((passed * f64::from(self.by_second)).min(f64::from(self.most)) as u32);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

/// The frames that the peer of one connection may still send.
#[derive(Debug)]
pub(crate) struct FloodLimits {
    control: Allowance,
    resets: Allowance,
    empty: u32,
    ages: Ages,
}

/// Distinguishes new streams from older ones, which have smaller numbers.
#[derive(Debug, Default)]
struct Ages {
    last: u32,
    /// Number of the latest stream that is older than [`EARLY`].
    old: u32,
    /// Number of the latest stream at the time `marked`.
    middle: u32,
    marked: Option<Instant>,
}

impl Ages {
    fn advance(&mut self, now: Instant) {
        let passed = self.marked.map(|marked| now.duration_since(marked));
        if passed.is_some_and(|passed| passed < EARLY) {
            return;
        }
        self.old = match passed {
            Some(passed) if passed < 2 * EARLY => self.middle,
            _ => self.last,
        };
        self.middle = self.last;
        self.marked = Some(now);
    }
}

impl Default for FloodLimits {
    fn default() -> Self {
        Self {
            control: Allowance::new(1000, 10_000, 200),
            resets: Allowance::new(500, 500, 100),
            empty: 0,
            ages: Ages::default(),
        }
    }
}

impl FloodLimits {
    /// Records that the peer has begun a stream.
    pub(crate) fn opened(&mut self, stream: u32, now: Instant) {
        self.ages.advance(now);
        self.ages.last = self.ages.last.max(stream);
        self.control.add(BY_STREAM);
    }

    /// Records that a response was sent completely.
    pub(crate) fn answered(&mut self) {
        self.resets.add(1);
    }

    /// Records that the peer has reset a stream that it began; returns whether this is allowed.
    pub(crate) fn allows_reset(&mut self, stream: u32, now: Instant) -> bool {
        self.ages.advance(now);
        stream <= self.ages.old || self.resets.take()
    }

    /// Records that a DATA frame was sent.
    pub(crate) fn data_sent(&mut self) {
        self.control.add(BY_DATA_SENT);
    }

    /// Records that a DATA frame with bytes was received.
    pub(crate) fn data_received(&mut self) {
        self.empty = 0;
        self.control.add(BY_DATA_RECEIVED);
    }

    /// Records that an empty frame was received; returns whether this is allowed.
    pub(crate) fn allows_empty(&mut self) -> bool {
        self.empty += 1;
        self.empty <= EMPTY && self.control.take()
    }

    /// Records that a frame for the connection itself, or of an unknown type, was received; returns whether this is
    /// allowed.
    pub(crate) fn allows_control(&mut self) -> bool {
        self.control.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(mut one: impl FnMut() -> bool) -> u32 {
        (0..1_000_000).take_while(|_| one()).count() as u32
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_bounded_by_time_and_work() {
        let mut flood = FloodLimits::default();
        assert_eq!(
            allowed(|| flood.allows_control()),
            1200,
            "and those of a second"
        );
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(allowed(|| flood.allows_control()), 100);
        flood.data_sent();
        assert_eq!(allowed(|| flood.allows_control()), BY_DATA_SENT);
        flood.opened(1, Instant::now());
        assert_eq!(allowed(|| flood.allows_control()), BY_STREAM);
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_of_years_is_no_flood() {
        let mut flood = FloodLimits::default();
        for _ in 0..100_000 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(flood.allows_control());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resets_are_bounded_where_they_come_at_once() {
        let mut flood = FloodLimits::default();
        let mut stream = 0;
        let mut early = || {
            stream += 2;
            flood.opened(stream, Instant::now());
            flood.allows_reset(stream, Instant::now())
        };
        assert_eq!(allowed(&mut early), 600, "and those of a second");
        flood.answered();
        stream += 2;
        assert!(flood.allows_reset(stream, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_have_lived_may_be_reset_all_at_once() {
        let mut flood = FloodLimits::default();
        for stream in 1..=5000 {
            flood.opened(stream, Instant::now());
        }
        tokio::time::advance(EARLY * 2).await;
        for stream in 1..=5000 {
            assert!(flood.allows_reset(stream, Instant::now()));
        }
        // Other streams begin in the meantime.
        for stream in 5001..=10_000 {
            flood.opened(stream, Instant::now());
            tokio::time::advance(Duration::from_millis(1)).await;
            let older = stream - 101;
            assert!(flood.allows_reset(older, Instant::now()), "{stream}");
        }
    }

    #[test]
    fn empty_frames_need_others_between_them() {
        let mut flood = FloodLimits::default();
        for _ in 0..100 {
            assert!(flood.allows_empty());
            flood.data_received();
        }
        assert_eq!(allowed(|| flood.allows_empty()), EMPTY);
    }
}
