//! Exemplars: for each bucket of a histogram, the trace of a recent request whose duration is in it.
//!
//! The slots are allocated with the first exemplar, so that a process without traces has none: for each worker one a
//! bucket. Invariant: only worker `w` writes to the slots of worker `w`. A slot is a sequence lock of five words: a reader
//! that meets a writer reads again, so that a trace is never shown with the duration of another.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::trace_context::TraceId;

/// A duration and the trace of its request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exemplar {
    /// The trace.
    pub trace_id: TraceId,
    /// The duration in nanoseconds.
    pub nanos: u64,
    /// The end of the request, in nanoseconds since the Unix epoch.
    pub at: u64,
}

/// As OpenMetrics writes it after a sample.
impl fmt::Display for Exemplar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            nanos,
            at,
        } = self;
        let seconds = *nanos as f64 / 1e9;
        let (at, millis) = (at / 1_000_000_000, at / 1_000_000 % 1000);
        write!(f, "{{trace_id=\"{trace_id}\"}} {seconds} {at}.{millis:03}")
    }
}

/// The slots of one series.
#[derive(Debug)]
pub(crate) struct Exemplars {
    workers: usize,
    buckets: usize,
    slots: OnceLock<Box<[Slot]>>,
}

impl Exemplars {
    pub(crate) fn new(workers: usize, buckets: usize) -> Self {
        Self {
            workers,
            buckets,
            slots: OnceLock::new(),
        }
    }

    /// Replaces the exemplar of a bucket on the shard of the calling worker; without effect for an index that no worker
    /// has.
    pub(crate) fn put(&self, shard: usize, bucket: usize, exemplar: Exemplar) {
        if shard >= self.workers || bucket >= self.buckets {
            return;
        }
        let count = self.workers * self.buckets;
        let slots = self
            .slots
            .get_or_init(|| (0..count).map(|_| Slot::default()).collect());
        if let Some(slot) = slots.get(shard * self.buckets + bucket) {
            slot.put(exemplar);
        }
    }

    /// Returns the latest exemplar of a bucket.
    pub(crate) fn latest(&self, bucket: usize) -> Option<Exemplar> {
        let of_bucket = self.slots.get()?.iter().skip(bucket).step_by(self.buckets);
        of_bucket
            .filter_map(Slot::read)
            .max_by_key(|exemplar| exemplar.at)
    }
}

/// The number of attempts of a reader: a writer is done after a few stores.
const READS: usize = 8;

#[derive(Debug, Default)]
struct Slot {
    /// The number of begun and completed writes: odd while one is under way, 0 before the first one.
    sequence: AtomicU64,
    /// Two words of the trace, the duration and the time.
    words: [AtomicU64; 4],
}

impl Slot {
    fn put(&self, exemplar: Exemplar) {
        let id = u128::from_be_bytes(exemplar.trace_id.to_bytes());
        let words = [(id >> 64) as u64, id as u64, exemplar.nanos, exemplar.at];
        // Relaxed: this thread is the only writer.
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        // No reader sees a new word without the odd number that was stored before.
        fence(Ordering::Release);
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // Release: a reader that sees the even number sees all words.
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }

    fn read(&self) -> Option<Exemplar> {
        (0..READS).find_map(|_| {
            let before = self.sequence.load(Ordering::Acquire);
            let [high, low, nanos, at] = self
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            // The words were read before the number is read again.
            fence(Ordering::Acquire);
            let is_whole =
                before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
            if !is_whole || before == 0 {
                return None;
            }
            let id = u128::from(high) << 64 | u128::from(low);
            Some(Exemplar {
                trace_id: TraceId::new(id.to_be_bytes())?,
                nanos,
                at,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(n: u64) -> Exemplar {
        let id = u128::from(n) << 64 | u128::from(n);
        Exemplar {
            trace_id: TraceId::new(id.to_be_bytes()).unwrap(),
            nanos: n,
            at: n,
        }
    }

    #[test]
    fn the_latest_of_all_workers_is_shown() {
        let exemplars = Exemplars::new(2, 3);
        assert_eq!(exemplars.latest(1), None);
        exemplars.put(0, 1, exemplar(5));
        exemplars.put(1, 1, exemplar(4));
        assert_eq!(exemplars.latest(1), Some(exemplar(5)));
        exemplars.put(1, 1, exemplar(6));
        assert_eq!(exemplars.latest(1), Some(exemplar(6)));
        assert_eq!((exemplars.latest(0), exemplars.latest(2)), (None, None));
        exemplars.put(2, 0, exemplar(7));
        exemplars.put(0, 3, exemplar(7));
        assert_eq!(
            exemplars.latest(0),
            None,
            "neither such a worker nor bucket"
        );
    }

    #[test]
    fn nothing_is_allocated_without_exemplars() {
        let exemplars = Exemplars::new(4, 19);
        assert!(exemplars.slots.get().is_none());
        assert_eq!(exemplars.latest(3), None);
        assert!(exemplars.slots.get().is_none());
    }

    /// A reader during many writes sees only exemplars that were written.
    #[test]
    fn words_of_two_exemplars_are_never_mixed() {
        let exemplars = Exemplars::new(1, 1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..200_000 {
                    exemplars.put(0, 0, exemplar(n));
                }
            });
            while !writer.is_finished() {
                if let Some(read) = exemplars.latest(0) {
                    assert_eq!(read, exemplar(read.nanos));
                }
            }
        });
        assert_eq!(exemplars.latest(0), Some(exemplar(199_999)));
    }

    #[test]
    fn it_is_written_as_openmetrics_defines() {
        let shown = Exemplar {
            nanos: 1_500_000,
            at: 1_700_000_000_007_000_000,
            ..exemplar(1)
        };
        let id = "00000000000000010000000000000001";
        assert_eq!(
            shown.to_string(),
            format!("{{trace_id=\"{id}\"}} 0.0015 1700000000.007")
        );
    }
}
