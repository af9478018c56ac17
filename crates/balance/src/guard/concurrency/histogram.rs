//! A histogram of the latencies of a window, with classes 6 to 12 % wide.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of classes per octave.
const STEPS: u32 = 8;
/// The number of octaves: from one microsecond to 2³¹, which is 36 minutes.
const OCTAVES: u32 = 31;
const CLASSES: usize = (STEPS * OCTAVES) as usize;

/// The counts, incremented by all threads.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: Box<[AtomicU32]>,
}

/// The counts of a finished window.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    counts: Box<[u32]>,
    all: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self {
            counts: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    #[inline]
    pub(super) fn add(&self, micros: u64) {
        // Relaxed: a counter.
        self.counts[class(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Removes and returns all counts.
    pub(super) fn take(&self) -> Counted {
        let counts: Box<[u32]> = self
            .counts
            .iter()
            .map(|count| count.swap(0, Ordering::Relaxed))
            .collect();
        let all = counts.iter().map(|count| u64::from(*count)).sum();
        Counted { counts, all }
    }
}

impl Counted {
    pub(super) fn len(&self) -> u64 {
        self.all
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (own, count) in self.counts.iter_mut().zip(&other.counts) {
            *own = own.saturating_add(*count);
        }
        self.all += other.all;
    }

    /// Returns the median shifted by `deviations` of its standard deviations, in microseconds. This holds for any
    /// distribution: of n latencies, the number of those below the true median is binomial, with standard deviation √n
    /// / 2. `None` if the shifted median is beyond all latencies.
    pub(super) fn median(&self, deviations: f64) -> Option<f64> {
        let n = self.all as f64;
        self.at_rank(n / 2.0 + deviations * n.sqrt() / 2.0)
    }

    /// Returns the latency, in microseconds, below which this share of all latencies lies; `None` without any
    /// latencies.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        self.at_rank(self.all as f64 * share)
    }

    /// Returns the value below which this number of latencies lies, interpolated within a class.
    fn at_rank(&self, rank: f64) -> Option<f64> {
        if !(rank >= 0.0 && rank <= self.all as f64) {
            return None;
        }
        let mut below = 0.0;
        for (class, count) in self.counts.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= rank {
                let (low, high) = (bound(class), bound(class + 1));
                return Some(low + (high - low) * (rank - below) / count);
            }
            below += count;
        }
        None
    }
}

fn class(micros: u64) -> usize {
    let micros = micros.max(1);
    let octave = micros.ilog2();
    // The three bits below the highest one.
    let step = if octave >= 3 {
        micros >> (octave - 3)
    } else {
        micros << (3 - octave)
    } as usize
        - STEPS as usize;
    ((octave * STEPS) as usize + step).min(CLASSES - 1)
}

/// Returns the lower bound of a class, in microseconds.
fn bound(class: usize) -> f64 {
    let (octave, step) = (class as u32 / STEPS, class as u32 % STEPS);
    f64::from(STEPS + step) / f64::from(STEPS) * f64::from(octave).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_times() {
        for micros in (0..5000).chain([1 << 20, (1 << 31) - 1]) {
            let class = class(micros);
            let value = micros.max(1) as f64;
            assert!(
                bound(class) <= value && value < bound(class + 1),
                "{micros}"
            );
            assert!(value < 8.0 || bound(class + 1) <= 1.13 * bound(class));
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn a_median_lies_where_half_is_below() {
        let histogram = Histogram::new();
        assert_eq!(histogram.take().median(1.0), None);
        for micros in 1..=10_000 {
            histogram.add(micros);
        }
        let counted = histogram.take();
        let within = |deviations, exact: f64| {
            let found = counted.median(deviations).unwrap();
            assert!((found / exact - 1.0).abs() < 0.01, "{found} for {exact}");
        };
        within(0.0, 5000.0);
        within(2.0, 5100.0);
        within(-2.0, 4900.0);
        assert_eq!(counted.median(101.0), None);
        assert_eq!(histogram.take().len(), 0);
        let mut twice = counted.clone();
        twice.add(&counted);
        assert_eq!(twice.len(), 20_000);
        assert_eq!(twice.median(0.0), counted.median(0.0));
    }
}
