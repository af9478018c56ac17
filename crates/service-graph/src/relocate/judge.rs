//! The guard: compares a service's calls before and after its replicas were moved.

use std::time::Duration;

use maglor_balance::Time;

use super::measured::Measured;
use super::record::Record;

/// The parameters of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// The time after the last move for which nothing is evaluated, because averages still contain older calls.
    pub settle: Duration,
    /// The duration of the evaluation. The measurements before the moves are averaged over about the same time.
    pub window: Duration,
    /// The relative increase of the mean response time above which a service is worse.
    pub latency: f64,
    /// The increase of the share of failed calls above which a service is worse, 0–1.
    pub failures: f64,
}

impl Default for Guard {
    /// # Defaults
    /// * `settle`: 1 min, `window`: 3 min
    /// * `latency`: 0.2, `failures`: 0.01
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(60),
            window: Duration::from_secs(180),
            latency: 0.2,
            failures: 0.01,
        }
    }
}

/// The measurement that is worse than before the moves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// The share of failed calls.
    Failures,
    /// The mean response time.
    Latency,
    /// The share of remote calls, which is no lower than it would be without the moves.
    Remote,
}

impl Judgement {
    /// Returns a description of the measurement, for users.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failures => "more calls fail than before",
            Self::Latency => "responses take longer than before",
            Self::Remote => "traffic across nodes has not decreased",
        }
    }
}

/// The difference of response times, in milliseconds, below which it is ignored.
const NEGLIGIBLE_MS: f64 = 0.1;
/// The minimum number of samples for a judgement.
const LOOKS: u32 = 2;

/// Averaged measurements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    mean: Measured,
    looks: u32,
    last: Option<Time>,
}

impl Tally {
    /// Adds a sample. With `evenly`, all samples have equal weights; otherwise, a sample of age `window` has weight
    /// 1/e.
    pub(super) fn add(&mut self, now: Time, measured: Measured, window: Duration, evenly: bool) {
        let age = self.last.map(|last| now.saturating_since(last));
        self.looks = self.looks.saturating_add(1);
        let keep = match age {
            None => 0.0,
            Some(_) if evenly => 1.0 - 1.0 / f64::from(self.looks),
            Some(age) => (-age.as_secs_f64() / window.as_secs_f64().max(1e-9)).exp(),
        };
        let old = Measured {
            rps: self.mean.rps * keep,
            ..self.mean
        };
        let new = Measured {
            rps: measured.rps * (1.0 - keep),
            ..measured
        };
        self.mean = old.plus(new);
        self.last = Some(now);
    }

    pub(super) fn mean(&self) -> Measured {
        self.mean
    }

    pub(super) fn is_ripe(&self) -> bool {
        self.looks >= LOOKS
    }
}

/// Returns the measurement that is worse for all services together; `None` if none is.
pub(super) fn together<'a>(
    records: impl Iterator<Item = &'a Record>,
    guard: &Guard,
) -> Option<Judgement> {
    let (mut before, mut after) = (Measured::default(), Measured::default());
    for record in records {
        let (Some(was), Some(is)) = (record.before, record.after) else {
            continue;
        };
        (before, after) = (before.plus(was), after.plus(is));
    }
    worse(&before, &after, guard)
}

/// Returns the measurement that is worse for one service alone; `None` if none is.
pub(super) fn alone(record: &Record, guard: &Guard) -> Option<Judgement> {
    worse(&record.before?, &record.after?, guard)
}

fn worse(before: &Measured, after: &Measured, guard: &Guard) -> Option<Judgement> {
    if before.rps <= 0.0 || after.rps <= 0.0 {
        return None;
    }
    if after.failures > before.failures + guard.failures {
        return Some(Judgement::Failures);
    }
    let longest = before.latency_ms * (1.0 + guard.latency) + NEGLIGIBLE_MS;
    (after.latency_ms > longest).then_some(Judgement::Latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn measured(rps: f64, latency_ms: f64) -> Measured {
        Measured {
            rps,
            latency_ms,
            ..Measured::default()
        }
    }

    #[test]
    fn a_mean_is_by_calls() {
        let window = Duration::from_secs(60);
        let mut even = Tally::default();
        assert!(!even.is_ripe());
        for (second, rps, latency) in [(0, 10.0, 4.0), (10, 30.0, 8.0)] {
            even.add(at(second), measured(rps, latency), window, true);
        }
        assert!(even.is_ripe());
        assert!((even.mean().rps - 20.0).abs() < 1e-9);
        assert!((even.mean().latency_ms - 7.0).abs() < 1e-9);
        // What is older than the window counts 1/e.
        let mut decayed = Tally::default();
        decayed.add(at(0), measured(10.0, 4.0), window, false);
        decayed.add(at(60), measured(0.0, 0.0), window, false);
        assert!((decayed.mean().rps - 10.0 * (-1.0_f64).exp()).abs() < 1e-9);
        assert!((decayed.mean().latency_ms - 4.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_worse_is_named() {
        let guard = Guard::default();
        let judge = |before: Measured, after: Measured| {
            let record = Record {
                before: Some(before),
                after: Some(after),
                ..Record::default()
            };
            (
                alone(&record, &guard),
                together([&record].into_iter(), &guard),
            )
        };
        let with = |latency_ms, failures| Measured {
            rps: 10.0,
            latency_ms,
            failures,
            remote: 0.0,
        };
        let before = with(10.0, 0.0);
        assert_eq!(judge(before, with(11.9, 0.01)), (None, None));
        let late = Some(Judgement::Latency);
        assert_eq!(judge(before, with(12.2, 0.0)), (late, late));
        let failing = Some(Judgement::Failures);
        assert_eq!(judge(before, with(5.0, 0.02)), (failing, failing));
        // Of what is not called nothing is known.
        assert_eq!(judge(before, Measured::default()), (None, None));
    }
}
