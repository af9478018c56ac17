//! The states of a breaker and the adaptive open interval, without the atomics that surround them.

use std::time::Duration;

use super::{BreakerParams, Phase, Transition};
use crate::{Rng, Time};

/// The relative jitter of an open interval, in both directions.
const JITTER: f64 = 0.1;

#[derive(Debug)]
pub(super) struct State {
    stage: Stage,
    /// The number of changes of state so far. The result of a request admitted in an earlier period is not counted.
    period: u32,
    /// The length of the first open interval of the next outage.
    suggested: Duration,
    /// When the breaker last closed.
    closed_at: Time,
    /// When the current outage began.
    outage_began: Time,
    /// The current open interval without jitter.
    open_for: Duration,
}

#[derive(Debug)]
enum Stage {
    Closed,
    HalfOpen {
        since: Time,
        under_way: u32,
        succeeded: u32,
    },
    Open {
        until: Time,
    },
}

impl State {
    pub(super) fn new(params: &BreakerParams) -> Self {
        Self {
            stage: Stage::Closed,
            period: 0,
            suggested: params.base_open,
            closed_at: Time::ZERO,
            outage_began: Time::ZERO,
            open_for: params.base_open,
        }
    }

    pub(super) fn period(&self) -> u32 {
        self.period
    }

    pub(super) fn phase(&self) -> Phase {
        match self.stage {
            Stage::Closed => Phase::Closed,
            Stage::HalfOpen { .. } => Phase::HalfOpen,
            Stage::Open { .. } => Phase::Open,
        }
    }

    /// Changes to half-open if the open interval is over.
    pub(super) fn wake(&mut self, now: Time) -> Option<Transition> {
        match self.stage {
            Stage::Open { until } if now >= until => Some(self.change(Stage::HalfOpen {
                since: now,
                under_way: 0,
                succeeded: 0,
            })),
            _ => None,
        }
    }

    /// Decides about a request: returns whether it is a probe, or how long the client should wait.
    pub(super) fn admit(&mut self, params: &BreakerParams, now: Time) -> Result<bool, Duration> {
        match &mut self.stage {
            Stage::Closed => Ok(false),
            Stage::Open { until } => Err(until.saturating_since(now)),
            Stage::HalfOpen {
                since, under_way, ..
            } => {
                // Probes that are never reported must not keep it half-open forever.
                if now.saturating_since(*since) > params.max_open {
                    (*since, *under_way) = (now, 0);
                }
                if *under_way >= params.half_open_requests.max(1) {
                    return Err(params.base_open);
                }
                *under_way += 1;
                Ok(true)
            }
        }
    }

    /// Opens a closed breaker.
    pub(super) fn trip(&mut self, params: &BreakerParams, now: Time, rng: &mut Rng) -> Transition {
        self.suggested = self.faded(params, now);
        self.outage_began = now;
        self.open(self.suggested, params, now, rng)
    }

    /// Records the result of a probe.
    pub(super) fn probed(
        &mut self,
        params: &BreakerParams,
        success: bool,
        now: Time,
        rng: &mut Rng,
    ) -> Option<Transition> {
        let Stage::HalfOpen {
            under_way,
            succeeded,
            ..
        } = &mut self.stage
        else {
            return None;
        };
        *under_way = under_way.saturating_sub(1);
        let needed = params.success_threshold.max(1);
        if !success {
            let growth = 2.0 - f64::from(*succeeded) / f64::from(needed);
            let longer = self.open_for.mul_f64(growth);
            return Some(self.open(longer, params, now, rng));
        }
        *succeeded += 1;
        (*succeeded >= needed).then(|| self.close(params, now))
    }

    /// Releases the slot of a probe without result.
    pub(super) fn abandoned(&mut self, period: u32) {
        if let Stage::HalfOpen { under_way, .. } = &mut self.stage
            && period == self.period
        {
            *under_way = under_way.saturating_sub(1);
        }
    }

    fn open(
        &mut self,
        interval: Duration,
        params: &BreakerParams,
        now: Time,
        rng: &mut Rng,
    ) -> Transition {
        self.open_for = within(interval, params);
        let open_for = self
            .open_for
            .mul_f64(1.0 + JITTER * (2.0 * rng.unit() - 1.0));
        let until = now + open_for;
        Transition {
            open_for,
            ..self.change(Stage::Open { until })
        }
    }

    fn close(&mut self, params: &BreakerParams, now: Time) -> Transition {
        let outage = now.saturating_since(self.outage_began);
        self.suggested = within((self.suggested + outage / 2) / 2, params);
        self.closed_at = now;
        self.change(Stage::Closed)
    }

    /// Returns the length of the first open interval of the next outage, decayed by the time for which the breaker was
    /// closed.
    fn faded(&self, params: &BreakerParams, now: Time) -> Duration {
        let above = self.suggested.saturating_sub(params.base_open);
        let half_lives = now.saturating_since(self.closed_at).as_secs_f64()
            / params.max_open.as_secs_f64().max(1e-9);
        params.base_open + above.mul_f64((-half_lives).exp2())
    }

    fn change(&mut self, stage: Stage) -> Transition {
        self.stage = stage;
        self.period = self.period.wrapping_add(1);
        Transition {
            to: self.phase(),
            open_for: Duration::ZERO,
        }
    }
}

fn within(interval: Duration, params: &BreakerParams) -> Duration {
    let longest = params.max_open.max(params.base_open);
    interval.clamp(params.base_open, longest)
}
