//! The results of a run: counts, quantiles of the measured part, and a row for each second.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::load_generator::{Observer, Sample};

/// The longest latency.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many kinds of failures are distinguished.
const KINDS: usize = 20;
/// The kind of all others.
const OTHER: &str = "other failures";
/// The kind of requests that were due and not sent.
const MISSED: &str = "not sent: too many requests were waiting";

/// Latencies of successful requests, in nanoseconds with three digits; those above an hour count as an hour.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, nanos(LONGEST), 3);
        Self(histogram.expect("the bounds and the digits are in the ranges of the histogram"))
    }
}

impl Latencies {
    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns a quantile in milliseconds; 0 if there is no latency.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }

    /// Returns the mean in milliseconds; 0 if there is no latency.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.mean() / 1e6
    }

    /// Returns the greatest in milliseconds; 0 if there is no latency.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1e6
    }

    /// Adds one.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(nanos(latency));
    }
}

/// The requests that ended in one second of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Successful ones.
    pub succeeded: u64,
    /// Failed ones.
    pub failed: u64,
    /// The median latency of the successful ones, ms.
    pub p50_ms: f64,
    /// Their 99th percentile, ms.
    pub p99_ms: f64,
    /// Their greatest, ms.
    pub max_ms: f64,
}

/// The results so far. Its memory grows by a row each second.
#[derive(Debug)]
pub struct Record {
    began: Instant,
    measured_from: Instant,
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Of requests that were due in the measured part.
    measured: Latencies,
    failures: BTreeMap<String, u64>,
    seconds: Vec<Second>,
    /// Of the second in progress.
    current: Latencies,
    second: Second,
}

impl Record {
    /// Creates an empty record of a run that begins now, and is measured from `skipped` on.
    #[must_use]
    pub fn new(began: Instant, skipped: Duration) -> Self {
        Self {
            began,
            measured_from: began + skipped,
            inner: RefCell::new(Inner {
                measured: Latencies::default(),
                failures: BTreeMap::new(),
                seconds: Vec::new(),
                current: Latencies::default(),
                second: Second::default(),
            }),
        }
    }

    /// Returns the latencies of the measured part.
    #[must_use]
    pub fn measured(&self) -> Latencies {
        self.inner.borrow().measured.clone()
    }

    /// Returns the failures of the measured part, by kind.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<String, u64> {
        self.inner.borrow().failures.clone()
    }

    /// Returns the rows of all seconds until `now`, from the beginning of the run.
    pub fn seconds(&self, now: Instant) -> Vec<Second> {
        let mut inner = self.inner.borrow_mut();
        inner.advance(self.second_of(now));
        inner.seconds.clone()
    }

    /// Adds failures of the measured part that no session has seen: requests without a response at the end.
    pub fn fail(&self, kind: &str, count: u64) {
        self.inner.borrow_mut().fail(kind, count);
    }

    fn second_of(&self, at: Instant) -> usize {
        let seconds = at.saturating_duration_since(self.began).as_secs();
        usize::try_from(seconds).unwrap_or(usize::MAX)
    }
}

impl Inner {
    /// Ends the seconds before `second`.
    fn advance(&mut self, second: usize) {
        while self.seconds.len() < second {
            let row = Second {
                p50_ms: self.current.quantile(0.5),
                p99_ms: self.current.quantile(0.99),
                max_ms: self.current.max(),
                ..std::mem::take(&mut self.second)
            };
            self.seconds.push(row);
            self.current.0.reset();
        }
    }

    fn fail(&mut self, kind: &str, count: u64) {
        let known = self.failures.contains_key(kind) || self.failures.len() < KINDS;
        let kind = if known { kind } else { OTHER };
        *self.failures.entry(kind.to_owned()).or_default() += count;
    }
}

impl Observer for Record {
    fn ended<E: fmt::Display>(&self, sample: Sample, result: Result<(), E>) -> ControlFlow<()> {
        let mut inner = self.inner.borrow_mut();
        inner.advance(self.second_of(sample.ended));
        let is_measured = sample.due >= self.measured_from;
        match result {
            Ok(()) => {
                inner.second.succeeded += 1;
                inner.current.add(sample.latency());
                if is_measured {
                    inner.measured.add(sample.latency());
                }
            }
            Err(error) => {
                inner.second.failed += 1;
                if is_measured {
                    inner.fail(&error.to_string(), 1);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn missed(&self, due: Instant) {
        let mut inner = self.inner.borrow_mut();
        inner.second.failed += 1;
        if due >= self.measured_from {
            inner.fail(MISSED, 1);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(began: Instant, due_ms: u64, ended_ms: u64) -> Sample {
        Sample {
            due: began + Duration::from_millis(due_ms),
            ended: began + Duration::from_millis(ended_ms),
        }
    }

    #[test]
    fn seconds_and_the_measured_part_are_counted_separately() {
        let began = Instant::now();
        let record = Record::new(began, Duration::from_secs(1));
        let ok = Ok::<(), &str>(());
        let _ = record.ended(sample(began, 100, 300), ok);
        let _ = record.ended(sample(began, 900, 2100), ok);
        let _ = record.ended(sample(began, 1000, 2200), ok);
        let _ = record.ended(sample(began, 1500, 2300), Err("status 503"));
        let seconds = record.seconds(began + Duration::from_secs(3));
        let counts: Vec<_> = seconds.iter().map(|s| (s.succeeded, s.failed)).collect();
        assert_eq!(counts, [(1, 0), (0, 0), (2, 1)]);
        assert!((seconds[0].max_ms - 200.0).abs() < 1.0, "{seconds:?}");
        assert!(seconds[1].max_ms < 1e-9, "{seconds:?}");
        assert_eq!(record.measured().count(), 1);
        assert!((record.measured().quantile(0.5) - 1200.0).abs() < 2.0);
        assert_eq!(record.failures().get("status 503"), Some(&1));
    }

    #[test]
    fn kinds_of_failures_are_bounded() {
        let record = Record::new(Instant::now(), Duration::ZERO);
        for kind in 0..100 {
            record.fail(&format!("status {kind}"), 1);
        }
        assert_eq!(record.failures().len(), KINDS + 1);
        assert_eq!(record.failures()[OTHER], 100 - KINDS as u64);
    }
}
