//! Computes the limit, the baseline and the schedule of measurements from a window.

use std::time::Duration;

use super::ConcurrencyParams;
use super::histogram::Counted;
use crate::{Rng, Time};

/// The number of standard deviations of the difference between two medians that counts as noise:
/// one window in 44 exceeds it, on one side.
const NOISE: f64 = 2.0;

/// The number of standard deviations from which on a window is certainly faster than the baseline. Since there are many
/// windows, the baseline would sink to the fastest of them with [`NOISE`].
const CERTAIN: f64 = 4.0;

/// The number of latencies, and the time, after which a measurement ends.
const MEASURED: u64 = 100;
const LONGEST: Duration = Duration::from_millis(500);

/// The share of slow windows that counts as noise.
const SLOW: f64 = 0.1;

/// The relative growth per window of an exhausted limit before the first slow window, so that a service that needs a
/// limit of hundreds does not wait for seconds.
const SEARCH: f64 = 0.5;

/// The interval between the first measurements: a service that has just started is slow, and its first responses are
/// the fastest ones.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// The limit with the state of its computation.
#[derive(Debug)]
pub(super) struct Estimate {
    /// The latencies without load; `None` before the first window.
    baseline: Option<Counted>,
    /// The latencies of the latest windows under about this limit, up to [`MEASURED`]: a single
    /// window may be too short to show that requests wait.
    recent: Option<Counted>,
    measure_at: Time,
    interval: Duration,
    /// The time between the end of a measurement and the next one.
    pause: Duration,
    /// Whether the baseline was measured. The baseline of the first window is too low if most responses take longer
    /// than a window, so the limit is not lowered by it.
    measured: bool,
    /// The number of windows since the last measurement, in which a window of few latencies counts as a fraction, and
    /// the number of slow ones.
    windows: f64,
    slow: f64,
    /// Whether no window has been slow yet, so that the limit may grow fast.
    searching: bool,
    /// The requests in progress at the end of the latest window.
    in_progress: u32,
    /// When the first window ended.
    begun_at: Option<Time>,
    /// When the latest window ended in which the service was idle. For some time afterwards, only short requests have
    /// ended.
    busy_since: Option<Time>,
    phase: Phase,
    /// The limit with its fractional part.
    limit: f64,
}

#[derive(Debug)]
enum Phase {
    Adapting,
    /// The limit has been lowered, and requests that began under the previous limit are ending.
    Settling(Lowered),
    Measuring(Lowered, Option<Counted>),
}

/// A limit that was lowered for a measurement.
#[derive(Clone, Copy, Debug)]
struct Lowered {
    to: f64,
    /// When the phase began.
    since: Time,
    /// The estimated time until the earlier requests end.
    settles: Duration,
    /// The median latency under the previous limit, minus its noise. If the median is lower now, requests had waited.
    before: f64,
}

/// The measurements of a window.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) latencies: Counted,
    /// The most and the fewest requests in progress at the end of a request, including that request.
    pub(super) most: u32,
    pub(super) least: u32,
    /// The number of requests in progress at the end of the window.
    pub(super) last: u32,
}

impl Window {
    /// Returns the weight of the window by its number of latencies, from 0 to 1.
    fn shown(&self) -> f64 {
        (self.latencies.len() as f64 / MEASURED as f64).min(1.0)
    }

    fn exhausts(&self, limit: f64) -> bool {
        f64::from(self.most) >= limit.floor()
    }

    /// Returns whether at least half as many requests arrived as ended. Otherwise the requests in progress drain, and
    /// the latencies are those of the longest requests, regardless of the limit.
    fn goes_on(&self, in_progress_before: u32) -> bool {
        u64::from(self.last) + self.latencies.len() / 2 >= u64::from(in_progress_before)
    }
}

impl Estimate {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            baseline: None,
            recent: None,
            measure_at: Time::ZERO,
            interval: FIRST_INTERVAL,
            pause: FIRST_INTERVAL,
            measured: false,
            windows: 0.0,
            slow: 0.0,
            searching: true,
            in_progress: 0,
            begun_at: None,
            busy_since: None,
            phase: Phase::Adapting,
            limit: f64::from(limit),
        }
    }

    /// Returns the baseline in microseconds.
    pub(super) fn baseline(&self) -> Option<f64> {
        self.baseline.as_ref()?.median(0.0)
    }

    /// Returns the limit after a window that ends `now`.
    pub(super) fn adapt(
        &mut self,
        window: Window,
        params: &ConcurrencyParams,
        now: Time,
        rng: &mut Rng,
    ) -> u32 {
        let first = self.begun_at.is_none();
        self.begun_at.get_or_insert(now);
        let before = std::mem::replace(&mut self.in_progress, window.last);
        if first || window.least <= 1 || before <= 1 {
            self.busy_since = Some(now);
        }
        let drains = !window.goes_on(before);
        let phase = std::mem::replace(&mut self.phase, Phase::Adapting);
        let limit = match phase {
            Phase::Settling(lowered) => self.settle(lowered, now),
            Phase::Measuring(lowered, before) => {
                self.measure(lowered, before.as_ref(), window, params, now)
            }
            Phase::Adapting if self.baseline.is_some() && self.is_due(&window, drains, now) => {
                self.begin(&window, params, now, rng)
            }
            Phase::Adapting if first => self.begin_search(&window),
            Phase::Adapting if drains => {
                self.recent = None;
                self.limit
            }
            Phase::Adapting => self.follow(&window, params, now),
        };
        bounded(limit, params)
    }

    /// Returns whether to measure now. A measurement waits until the latencies are representative of all requests.
    fn is_due(&self, window: &Window, drains: bool, now: Time) -> bool {
        let whole = !drains && self.shows_all(&window.latencies, now);
        now >= self.measure_at
            && (whole || !self.measured || now >= self.measure_at + self.pause / 4)
    }

    /// Lowers the limit for a measurement, unless that would make no difference.
    fn begin(
        &mut self,
        window: &Window,
        params: &ConcurrencyParams,
        now: Time,
        rng: &mut Rng,
    ) -> f64 {
        let extra = params.jitter.get() / 100.0 * rng.unit();
        self.interval = self.interval.min(params.min_rtt_interval);
        self.pause = self.interval.mul_f64(1.0 + extra);
        self.interval = self.interval.saturating_mul(8);
        // If hardly a window is slow no request waits, and with less than half of the limit in
        // progress lowering it would drain nothing.
        let waits = !self.measured || self.slow >= SLOW * self.windows;
        let used = f64::from(window.most);
        let to = if waits && used * 2.0 > self.limit {
            self.limit / 2.0
        } else {
            self.limit
        };
        (self.windows, self.slow) = (0.0, 0.0);
        self.recent = None;
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
        let Some(median) = counted.high() else {
            self.measure_at = now + self.pause;
            return self.limit;
        };
        let (least, _) = ends(params);
        let had_waited = lowered.to < self.limit && median < lowered.before;
        if had_waited && lowered.to > least && !self.is_baseline(&counted) {
            // Requests may still be waiting.
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
        let shown = self.shows_all(&counted, now);
        let baseline = |applies: bool| {
            let known = self.baseline.as_ref().filter(|_| applies);
            known.and_then(Counted::high)
        };
        let lower = baseline(had_waited).is_none_or(|known| median < known);
        // Without the long requests it can only be too low.
        let higher = baseline(self.measured && !shown).is_none_or(|known| median > known);
        if lower && higher {
            self.baseline = Some(counted);
        }
        self.measured |= shown;
        self.measure_at = now + self.pause;
        // Above four times this limit requests waited: halving it made them faster.
        self.limit = self.limit.min(4.0 * lowered.to);
        self.limit
    }

    /// Returns whether these latencies are equal to the known baseline, within noise.
    fn is_baseline(&self, latencies: &Counted) -> bool {
        let is_above = |some: &Counted, others| some.over(others).is_some_and(|ratio| ratio >= 1.0);
        let known = self.baseline.as_ref();
        self.measured
            && known.is_some_and(|known| is_above(known, latencies) && is_above(latencies, known))
    }

    /// Adapts the limit by the gradient.
    fn follow(&mut self, window: &Window, params: &ConcurrencyParams, now: Time) -> f64 {
        let latencies = &window.latencies;
        if latencies.median(NOISE).is_none() {
            return self.limit;
        }
        let tolerance = 1.0 + params.buffer.get() / 100.0;
        let known = self.baseline.as_ref().and_then(Counted::high);
        if known.is_none() {
            self.measure_at = now + self.interval;
        }
        let shown = self.shows_all(latencies, now);
        let certain = latencies.median(CERTAIN).filter(|_| shown);
        let faster = |known: f64| certain.is_some_and(|certain| certain * tolerance < known);
        if known.is_none_or(faster) {
            self.baseline = Some(latencies.clone());
        }
        let gradient = self.gradient(latencies, tolerance);
        let slow = gradient < 1.0;
        self.windows += window.shown();
        self.slow += f64::from(u8::from(slow));
        self.searching &= !slow;
        let next = gradient * self.limit + self.room(window);
        let in_use = f64::from(window.most) * 2.0 >= self.limit;
        let falls = next < self.limit;
        if (falls && self.measured) || (!falls && in_use) {
            let (least, most) = ends(params);
            self.limit = next.clamp(least, most);
        }
        if falls {
            self.recent = None;
        }
        if slow && self.measured && self.limit <= ends(params).0 {
            // The limit cannot be lowered further, so the service has become slower.
            (self.measure_at, self.searching) = (now, true);
        }
        self.limit
    }

    /// Returns whether the latencies are representative: they include long requests, and not only those that can have
    /// ended since the service was idle or, before the first measurement, since the first request.
    fn shows_all(&self, latencies: &Counted, now: Time) -> bool {
        let long = latencies.quantile(0.9).map_or(Duration::ZERO, micros);
        let since = if self.measured {
            self.busy_since
        } else {
            self.begun_at
        };
        since.is_some_and(|since| now >= since + 3 * long)
    }

    /// Processes the first window. The requests that end in it are the fastest ones, so it does not provide a baseline.
    fn begin_search(&mut self, window: &Window) -> f64 {
        if window.exhausts(self.limit) {
            self.limit *= 1.0 + SEARCH;
        }
        self.limit
    }

    /// Returns the amount by which the limit may grow. Windows of few latencies show less of the effect of growth, so
    /// growth is smaller for them.
    fn room(&self, window: &Window) -> f64 {
        if self.searching && window.exhausts(self.limit) {
            return self.limit * SEARCH;
        }
        self.limit.sqrt() * if self.measured { window.shown() } else { 1.0 }
    }

    /// Returns the gradient: how much faster requests would be without load, as far as the latencies show it; otherwise
    /// 1.
    fn gradient(&mut self, latencies: &Counted, tolerance: f64) -> f64 {
        let recent = match self.recent.take() {
            Some(mut recent) if recent.len() < MEASURED => {
                recent.add(latencies);
                recent
            }
            _ => latencies.clone(),
        };
        let ratio = self
            .baseline
            .as_ref()
            .and_then(|baseline| baseline.over(&recent));
        self.recent = Some(recent);
        ratio.map_or(1.0, |ratio| (tolerance * ratio).clamp(0.5, 1.0))
    }
}

impl Counted {
    /// Returns the median plus its noise; `None` if there are too few latencies.
    fn high(&self) -> Option<f64> {
        self.median(NOISE).or_else(|| self.median(0.0))
    }

    /// Returns the ratio of the medians at the upper end of what noise allows. Since variances add, the noise of the
    /// difference is less than the sum of both.
    fn over(&self, others: &Self) -> Option<f64> {
        let (own, other) = (self.len() as f64, others.len() as f64);
        let deviations = NOISE * (own + other).sqrt() / (own.sqrt() + other.sqrt());
        Some(self.median(deviations)? / others.median(-deviations)?)
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
