//! What follows from a window: a limit, a baseline, a measurement.

use std::time::Duration;

use super::ConcurrencyParams;
use super::histogram::Counted;
use crate::{Rng, Time};

/// Standard deviations of a median that are taken for noise: one window in 44 is further off, on one side.
const NOISE: f64 = 2.0;

/// Deviations from which on a window is faster than was believed possible. Windows are many: with those of
/// [`NOISE`] the baseline would sink to the fastest of them.
const CERTAIN: f64 = 4.0;

/// A measurement ends after so many latencies, or after this time.
const MEASURED: u64 = 100;
const LONGEST: Duration = Duration::from_millis(500);

/// The share of slow windows that is noise.
const SLOW: f64 = 0.1;

/// How fast a limit grows that is exhausted, before the first slow window: a service that needs hundreds does not
/// have to wait for seconds.
const SEARCH: f64 = 0.5;

/// The first measurements follow each other faster: a service that has just started is slow, and the first
/// answers are those that take no time.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// The limit with what it is computed from.
#[derive(Debug)]
pub(super) struct Estimate {
    /// Median latency without load, in microseconds, its noise added; `None` before the first window.
    baseline: Option<f64>,
    measure_at: Time,
    interval: Duration,
    /// Whether the baseline was measured; the one of the first window is too low where most answers take
    /// longer than a window, so that the limit does not follow it down.
    measured: bool,
    /// Windows since the last measurement, and those of them that were slow.
    windows: u32,
    slow: u32,
    /// Whether no window was slow yet, so that the limit may grow fast.
    searching: bool,
    phase: Phase,
    /// The limit with its fraction.
    limit: f64,
}

#[derive(Debug)]
enum Phase {
    Adapting,
    /// A lower limit holds; what began under the old one ends.
    Settling(Lowered),
    Measuring(Lowered, Option<Counted>),
}

/// A limit that was lowered to measure.
#[derive(Clone, Copy, Debug)]
struct Lowered {
    to: f64,
    /// When the phase began.
    since: Time,
    /// How long what began before takes, as a guess.
    settles: Duration,
    /// The median under the limit before, its noise taken off: one that is lower now shows that requests waited.
    before: f64,
}

/// What a window has seen.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) latencies: Counted,
    /// The most requests that were in progress when one began.
    pub(super) most: u32,
}

impl Estimate {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            baseline: None,
            measure_at: Time::ZERO,
            interval: FIRST_INTERVAL,
            measured: false,
            windows: 0,
            slow: 0,
            searching: true,
            phase: Phase::Adapting,
            limit: f64::from(limit),
        }
    }

    /// In microseconds.
    pub(super) fn baseline(&self) -> Option<f64> {
        self.baseline
    }

    /// The limit after a window that ends `now`.
    pub(super) fn adapt(
        &mut self,
        window: Window,
        params: &ConcurrencyParams,
        now: Time,
        rng: &mut Rng,
    ) -> u32 {
        let phase = std::mem::replace(&mut self.phase, Phase::Adapting);
        let limit = match phase {
            Phase::Settling(lowered) => self.settle(lowered, now),
            Phase::Measuring(lowered, before) => {
                self.measure(lowered, before.as_ref(), window, params, now)
            }
            Phase::Adapting if self.baseline.is_some() && now >= self.measure_at => {
                self.begin(&window, params, now, rng)
            }
            Phase::Adapting => self.follow(&window, params, now),
        };
        bounded(limit, params)
    }

    /// Lowers the limit, if it makes a difference.
    fn begin(
        &mut self,
        window: &Window,
        params: &ConcurrencyParams,
        now: Time,
        rng: &mut Rng,
    ) -> f64 {
        let extra = params.jitter.get() / 100.0 * rng.unit();
        self.interval = self.interval.min(params.min_rtt_interval);
        self.measure_at = now + self.interval.mul_f64(1.0 + extra);
        self.interval = self.interval.saturating_mul(4);
        // Where hardly a window is slow nothing waits, and with less than half of the limit in progress there is
        // nothing that lowering it would drain.
        let waits = !self.measured || f64::from(self.slow) > SLOW * f64::from(self.windows);
        let used = f64::from(window.most);
        let to = if waits && used * 2.0 > self.limit {
            self.limit / 2.0
        } else {
            self.limit
        };
        (self.windows, self.slow) = (0, 0);
        let settles = window.latencies.quantile(0.9).map_or(LONGEST, micros);
        self.phase = Phase::Settling(Lowered {
            to,
            since: now,
            settles: settles.min(LONGEST),
            before: window.latencies.median(-NOISE).unwrap_or(0.0),
        });
        to
    }

    fn settle(&mut self, lowered: Lowered, now: Time) -> f64 {
        self.phase = if now >= lowered.since + lowered.settles {
            let since = now;
            Phase::Measuring(Lowered { since, ..lowered }, None)
        } else {
            Phase::Settling(lowered)
        };
        lowered.to
    }

    fn measure(
        &mut self,
        lowered: Lowered,
        before: Option<&Counted>,
        window: Window,
        params: &ConcurrencyParams,
        now: Time,
    ) -> f64 {
        let mut counted = window.latencies;
        if let Some(before) = before {
            counted.add(before);
        }
        if counted.len() < MEASURED && now < lowered.since + LONGEST {
            self.phase = Phase::Measuring(lowered, Some(counted));
            return lowered.to;
        }
        let Some(median) = counted.median(NOISE).or_else(|| counted.median(0.0)) else {
            return self.limit;
        };
        let (least, _) = ends(params);
        let had_waited = lowered.to < self.limit && median < lowered.before;
        if had_waited && lowered.to > least {
            // Perhaps something still does.
            let to = (lowered.to / 2.0).max(least);
            let settles = counted.quantile(0.9).map_or(LONGEST, micros);
            self.phase = Phase::Settling(Lowered {
                to,
                since: now,
                settles: settles.min(LONGEST),
                before: counted.median(-NOISE).unwrap_or(0.0),
            });
            return to;
        }
        let known = self.baseline.filter(|_| had_waited);
        let median = known.map_or(median, |known| known.min(median));
        (self.baseline, self.measured) = (Some(median), true);
        self.limit
    }

    /// Follows the gradient.
    fn follow(&mut self, window: &Window, params: &ConcurrencyParams, now: Time) -> f64 {
        let latencies = &window.latencies;
        let (low, high) = (latencies.median(-NOISE), latencies.median(NOISE));
        let tolerance = 1.0 + params.buffer.get() / 100.0;
        let baseline = match (self.baseline, high) {
            (Some(baseline), _) => baseline,
            (None, Some(high)) => {
                self.measure_at = now + self.interval;
                high
            }
            (None, None) => return self.limit,
        };
        let certain = latencies.median(CERTAIN);
        let faster = certain.filter(|certain| certain * tolerance < baseline);
        let baseline = *self.baseline.insert(faster.unwrap_or(baseline));
        let gradient = low.map_or(1.0, |low| (tolerance * baseline / low).clamp(0.5, 1.0));
        let slow = gradient < 1.0;
        self.windows += 1;
        self.slow += u32::from(slow);
        self.searching &= !slow;
        let exhausted = f64::from(window.most) >= self.limit.floor();
        let room = if self.searching && exhausted {
            self.limit * SEARCH
        } else {
            self.limit.sqrt()
        };
        let next = gradient * self.limit + room;
        let in_use = f64::from(window.most) * 2.0 >= self.limit;
        let falls = next < self.limit;
        if (falls && self.measured) || (!falls && in_use) {
            let (least, most) = ends(params);
            self.limit = next.clamp(least, most);
        }
        self.limit
    }
}

fn micros(micros: f64) -> Duration {
    Duration::from_secs_f64(micros / 1e6)
}

fn ends(params: &ConcurrencyParams) -> (f64, f64) {
    let low = f64::from(params.min_limit.max(1));
    (low, f64::from(params.max_limit).max(low))
}

fn bounded(limit: f64, params: &ConcurrencyParams) -> u32 {
    let (low, high) = ends(params);
    limit.clamp(low, high) as u32
}
