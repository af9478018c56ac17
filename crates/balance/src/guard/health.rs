//! Active health checks: their schedule, and the resulting state.
//!
//! The terms are Envoy's (`core.v3.HealthCheck`). An endpoint that has not been checked counts as healthy, so that a
//! start does not wait for checks. The first result takes effect immediately, regardless of the thresholds.
//!
//! A checker has one owner, which performs the check (HTTP, gRPC, TCP), reports the result and passes a change to
//! [`EndpointStats::set_healthy`](crate::EndpointStats::set_healthy).

use std::time::Duration;

use super::Percent;
use crate::{Rng, Time};

/// The parameters of health checks.
///
/// # Defaults
///
/// `interval`: 5 s, `interval_jitter`: 10 %, `timeout`: 1 s, `unhealthy_threshold`: 3,
/// `healthy_threshold`: 2 (HAProxy's), `unhealthy_interval`: as `interval`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HealthParams {
    /// The time between the end of a check and the next check.
    pub interval: Duration,
    /// The time between the end of a check and the next check while the endpoint is unhealthy.
    pub unhealthy_interval: Duration,
    /// The maximum random extension of the interval, as a share of it, so that many proxies do not check at the same
    /// time.
    pub interval_jitter: Percent,
    /// The time after which a check has failed.
    pub timeout: Duration,
    /// The number of consecutive failures that make an endpoint unhealthy, 1 or more.
    pub unhealthy_threshold: u32,
    /// The number of consecutive successes that make an unhealthy endpoint healthy again, 1 or more.
    pub healthy_threshold: u32,
}

impl Default for HealthParams {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            unhealthy_interval: Duration::from_secs(5),
            interval_jitter: Percent::whole(10),
            timeout: Duration::from_secs(1),
            unhealthy_threshold: 3,
            healthy_threshold: 2,
        }
    }
}

/// The health of an endpoint according to checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Health {
    /// The checks have succeeded.
    Healthy,
    /// The checks have failed.
    Unhealthy,
    /// No check has ended yet; the endpoint counts as healthy.
    Unknown,
}

/// The checks of one endpoint.
#[derive(Clone, Debug)]
pub struct Checker {
    params: HealthParams,
    health: Health,
    /// The number of consecutive results that contradict `health`.
    against: u32,
    due: Time,
}

impl Checker {
    /// Creates the checker of an endpoint that exists since `now`. The first check is due within a tenth of the
    /// interval: soon, but not at the same time as those of all other endpoints.
    #[must_use]
    pub fn new(params: HealthParams, now: Time, rng: &mut Rng) -> Self {
        let soon = params.interval.mul_f64(rng.unit() / 10.0);
        Self {
            params,
            health: Health::Unknown,
            against: 0,
            due: now + soon,
        }
    }

    /// Returns when the next check is due.
    #[must_use]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Returns the state according to the results so far.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Records the result of a check that ended now. Returns the new state if it has changed, except for a change from
    /// unknown to healthy.
    pub fn report(&mut self, passed: bool, now: Time, rng: &mut Rng) -> Option<Health> {
        let seen = if passed {
            Health::Healthy
        } else {
            Health::Unhealthy
        };
        let before = self.health;
        self.against = if seen == before { 0 } else { self.against + 1 };
        let needed = match (before, passed) {
            (Health::Unknown, _) => 1,
            (_, true) => self.params.healthy_threshold,
            (_, false) => self.params.unhealthy_threshold,
        };
        if self.against >= needed && seen != before {
            self.health = seen;
            self.against = 0;
        }
        self.due = now + self.pause(rng);
        let changed = self.health != before;
        let silent = before == Health::Unknown && self.health == Health::Healthy;
        (changed && !silent).then_some(self.health)
    }

    fn pause(&self, rng: &mut Rng) -> Duration {
        let interval = match self.health {
            Health::Unhealthy => self.params.unhealthy_interval,
            Health::Healthy | Health::Unknown => self.params.interval,
        };
        let extra = self.params.interval_jitter.get() / 100.0 * rng.unit();
        interval.saturating_add(interval.mul_f64(extra))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(results: &[bool]) -> Vec<Option<Health>> {
        let mut rng = Rng::seed(1);
        let mut checker = Checker::new(HealthParams::default(), Time::ZERO, &mut rng);
        results
            .iter()
            .map(|&passed| checker.report(passed, Time::ZERO, &mut rng))
            .collect()
    }

    #[test]
    fn the_first_result_decides() {
        assert_eq!(run(&[true]), [None]);
        assert_eq!(run(&[false]), [Some(Health::Unhealthy)]);
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        let (up, down) = (Some(Health::Healthy), Some(Health::Unhealthy));
        let (t, f) = (true, false);
        assert_eq!(
            run(&[t, f, f, t, f, f, f, f, t, f, t, t, t]),
            [
                None, None, None, None, None, None, down, None, None, None, None, up, None
            ]
        );
    }

    #[test]
    fn checks_come_at_their_interval_with_jitter() {
        let mut rng = Rng::seed(2);
        let now = Time::from_nanos(1);
        let mut checker = Checker::new(HealthParams::default(), now, &mut rng);
        assert!(checker.due() >= now && checker.due() <= now + Duration::from_millis(500));
        for _ in 0..100 {
            assert_eq!(checker.report(true, now, &mut rng), None);
            let pause = checker.due().saturating_since(now);
            let range = Duration::from_secs(5)..Duration::from_millis(5501);
            assert!(range.contains(&pause), "{pause:?}");
        }
    }
}
