//! Decides which of two servers is faster, as far as their reports show it.
//!
//! A server's pace, the mean time between ends of requests while the server is busy, is known only from its own
//! samples, and a server that is considered slow gets few of them. So a comparison of averages is not sufficient: an
//! average that is too high by chance would stay so, because no further sample corrects it. Each pace has bounds, which
//! follow from the variation of the group's paces and from the number of its samples; samples lose their weight over
//! time. A server is considered faster than another one only if the bounds do not overlap. So a slow server still gets
//! a request now and then, which shows when it is no longer slow.
//!
//! Invariant: `low ≤ mean ≤ high`; the bounds of an unknown pace exclude nothing.

use std::time::Duration;

use crate::Time;

/// The maximum number of samples in an average.
const MOST_SAMPLES: f64 = 1024.0;

/// About the number of samples that each report averages. The first reports of a server that has just started contain
/// little information.
const SETTLING: f64 = 16.0;

/// The ratio of the variance of single samples to that of the reported averages, (2 − α) / α with α = 1/16.
const SMOOTHED: f64 = 31.0;

/// The maximum number of reports in the average of the group's variance. It is large because service times with a long
/// tail show their variance rarely. The first report counts as this number of exponential service times.
const MOST_REPORTS: f64 = 4096.0;
const FIRST_REPORTS: f64 = 64.0;

/// The maximum squared deviation of a report that is accepted: one server with absurd values must not hide the reports
/// of the others.
const MOST_DEVIATION: f64 = 16.0;

/// The number of samples below which a pace counts as unknown, because a single long request would dominate the mean.
const LEAST_SAMPLES: f64 = 32.0;

/// Half the width of the bounds, in standard deviations. Since each of two compared servers has its own bounds, these
/// are together as wide as 4.2 deviations of the difference.
const DEVIATIONS: f64 = 3.0;

/// The minimum ratio, between the bounds, by which the pace of the preferred one of two equally loaded servers is
/// shorter. With 1024 exponential samples each, it is reached by a server that is 1.32 times as fast.
const CLEARLY_FASTER: f64 = 1.1;

/// The number of mean service times after which a sample has lost all but e⁻¹ of its weight. A server of half the speed
/// of the others then keeps a tenth of its share where it would not be used otherwise.
const FORGET: u32 = 1024;

/// The number of times that the bounds are computed while samples lose their weight.
const STEPS: u32 = 32;

/// A server's pace and its uncertainty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The mean in nanoseconds.
    mean: f64,
    /// The number of samples as of `at`; negative before [`SETTLING`] samples.
    samples: f64,
    at: Time,
    low: f64,
    high: f64,
}

/// The statistics of the paces of a group.
#[derive(Clone, Debug)]
pub(super) struct Paces {
    /// The mean pace of the group's servers, in which all samples have the same weight; zero while unknown.
    pub(super) mean: Duration,
    /// The squared coefficient of variation of single samples.
    variance: f64,
    /// The number of reports from which `variance` is computed.
    reports: f64,
    /// When the bounds have to be computed again.
    due: Time,
}

impl Pace {
    pub(super) const UNKNOWN: Self = Self {
        mean: 0.0,
        samples: -SETTLING,
        at: Time::ZERO,
        low: 0.0,
        high: f64::INFINITY,
    };

    /// Adds a report about an ended request.
    pub(super) fn learn(&mut self, reported: Duration, now: Time, group: &mut Paces) {
        let sample = reported.as_nanos() as f64;
        if sample <= 0.0 {
            return;
        }
        group.learn(reported);
        if self.samples > 0.0 {
            self.samples *= group.left_of(self.at, now);
            group.vary((sample / self.mean - 1.0).powi(2));
        }
        self.samples = (self.samples + 1.0).min(MOST_SAMPLES);
        self.at = now;
        // While it settles the mean is the latest value.
        self.mean += (sample - self.mean) / self.samples.max(1.0);
        self.bound(now, group);
    }

    /// Computes the bounds as of `now`.
    pub(super) fn bound(&mut self, now: Time, group: &Paces) {
        let samples = self.samples * group.left_of(self.at, now);
        if samples < LEAST_SAMPLES {
            (self.low, self.high) = (0.0, f64::INFINITY);
            return;
        }
        let width = 1.0 + DEVIATIONS * (group.variance / samples).sqrt();
        self.low = self.mean / width;
        self.high = self.mean * width;
    }

    /// Returns whether the server is clearly faster than the other one.
    pub(super) fn beats(&self, other: &Self) -> bool {
        self.high * CLEARLY_FASTER < other.low
    }
}

impl Paces {
    pub(super) fn new() -> Self {
        Self {
            mean: Duration::ZERO,
            variance: 1.0,
            reports: FIRST_REPORTS,
            due: Time::ZERO,
        }
    }

    /// Adds a pace to the mean. The first one counts in full: if the mean began at zero, all servers would be audited
    /// at once.
    fn learn(&mut self, pace: Duration) {
        self.mean = if self.mean.is_zero() {
            pace
        } else {
            (self.mean * 63 + pace) / 64
        };
    }

    fn vary(&mut self, of_report: f64) {
        self.reports = (self.reports + 1.0).min(MOST_REPORTS);
        let of_sample = SMOOTHED * of_report.min(MOST_DEVIATION);
        self.variance += (of_sample - self.variance) / self.reports;
    }

    /// Returns the weight that is left of samples taken at `at`.
    fn left_of(&self, at: Time, now: Time) -> f64 {
        let lasts = self.mean.as_secs_f64() * f64::from(FORGET);
        (-now.saturating_since(at).as_secs_f64() / lasts).exp()
    }

    /// Returns whether the bounds have to be computed again.
    pub(super) fn are_due(&mut self, now: Time) -> bool {
        let due = !self.mean.is_zero() && self.due <= now;
        if due {
            self.due = now + self.mean * (FORGET / STEPS);
        }
        due
    }
}
