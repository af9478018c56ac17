//! Summaries of samples: over a period of a run, or by second.

use std::ops::Range;
use std::time::Duration;

use super::client::Sample;
use crate::stats::quantile;

/// The summary of a period of a run. Latencies are those of successes, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Window {
    pub(super) requests: usize,
    pub(super) ok: usize,
    /// Successes within the limit for good answers; see [`Window::of`].
    pub(super) good: usize,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl Window {
    /// Summarizes the samples; a success is good if it took at most `patience`.
    pub(super) fn of<'a>(
        samples: impl IntoIterator<Item = &'a Sample>,
        patience: Duration,
    ) -> Self {
        let mut window = Self::default();
        let mut latencies = Vec::new();
        for sample in samples {
            window.requests += 1;
            if sample.is_ok() {
                window.ok += 1;
                window.good += usize::from(sample.latency <= patience);
                latencies.push(sample.latency);
            }
        }
        latencies.sort_unstable();
        window.p50 = quantile(&latencies, 0.5);
        window.p95 = quantile(&latencies, 0.95);
        window.p99 = quantile(&latencies, 0.99);
        window
    }

    pub(super) fn failed(&self) -> usize {
        self.requests - self.ok
    }

    pub(super) fn failed_percent(&self) -> f64 {
        100.0 * self.failed() as f64 / self.requests.max(1) as f64
    }
}

/// Returns the samples that were due in `range`, from samples in order.
pub(super) fn due_in(samples: &[Sample], range: Range<Duration>) -> &[Sample] {
    let from = samples.partition_point(|sample| sample.due < range.start);
    let to = samples.partition_point(|sample| sample.due < range.end);
    samples.get(from..to).unwrap_or_default()
}

/// Returns the number of the ordered `times` in `range`.
pub(super) fn count_in(times: &[Duration], range: Range<Duration>) -> usize {
    let below = |border: Duration| times.partition_point(|at| *at < border);
    below(range.end).saturating_sub(below(range.start))
}

/// Returns the second that begins at `second`.
pub(super) fn second(second: u64) -> Range<Duration> {
    Duration::from_secs(second)..Duration::from_secs(second + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(due: u64, latency: u64, status: u16) -> Sample {
        Sample {
            due: Duration::from_millis(due),
            latency: Duration::from_millis(latency),
            status,
        }
    }

    #[test]
    fn windows_count() {
        let samples = [
            sample(0, 10, 200),
            sample(500, 30, 200),
            sample(900, 1, 503),
            sample(1000, 5, 200),
        ];
        let first = due_in(&samples, second(0));
        let window = Window::of(first, Duration::from_millis(20));
        assert_eq!((window.requests, window.ok, window.good), (3, 2, 1));
        assert_eq!(window.failed(), 1);
        assert!((window.p50 - 10.0).abs() < 1e-9 && (window.p95 - 30.0).abs() < 1e-9);
        assert_eq!(due_in(&samples, second(1)).len(), 1);
        assert!(Window::of(&[], Duration::ZERO).p50.is_nan());
    }

    #[test]
    fn times_are_counted() {
        let times = [1, 2, 3].map(Duration::from_secs);
        assert_eq!(count_in(&times, second(2)), 1);
        assert_eq!(count_in(&times, second(9)), 0);
    }
}
