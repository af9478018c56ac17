//! Evaluates a change by comparing a service before and after it. A change that has made the service worse is rolled
//! back and not retried for a while.

use std::time::Duration;

use maglor_balance::Time;

/// The measurements of a service in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Health {
    /// The number of calls.
    pub calls: f64,
    /// The number of failed calls, included in `calls`.
    pub failures: f64,
    /// The mean response time of the calls, in milliseconds.
    pub latency_ms: f64,
    /// The 95th percentile of the response times, in milliseconds; 0 = unknown.
    pub p95_ms: f64,
}

/// The parameters of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialParams {
    /// The time after a change for which nothing is evaluated, so that the change can take effect. Default 1 min.
    pub settle: Duration,
    /// The duration of a trial, including `settle`. A change that has not been found worse by then is kept. Default 10
    /// min.
    pub length: Duration,
    /// The minimum number of calls for an evaluation, both before and after the change. Default 100.
    pub calls: f64,
    /// The relative increase of response times above which a change is worse, if `latency_floor` is exceeded, too.
    /// Default 0.5.
    pub latency: f64,
    /// The minimum absolute increase of response times for a change to be worse. Default 5 ms.
    pub latency_floor: Duration,
    /// The increase of the share of failures, 0–1, above which a change is worse, if three standard errors are
    /// exceeded, too. Default 0.01.
    pub failures: f64,
    /// The number of consecutive evaluations with a worse result after which a change is rolled back. Default 2.
    pub looks: u32,
    /// The time for which a rolled-back change is not retried, which doubles with each rollback. Default 30 min.
    pub penalty: Duration,
}

impl Default for TrialParams {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        Self {
            settle: MINUTE,
            length: 10 * MINUTE,
            calls: 100.0,
            latency: 0.5,
            latency_floor: Duration::from_millis(5),
            failures: 0.01,
            looks: 2,
            penalty: 30 * MINUTE,
        }
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No trial is running, or the change is kept.
    Keep,
    /// The previous settings should be restored.
    RollBack {
        /// The reason, as a message with numbers.
        reason: String,
    },
    /// There is not enough data yet.
    Wait,
}

/// The trials of one service's changes, of which one runs at a time.
#[derive(Clone, Debug)]
pub struct Trial {
    params: TrialParams,
    /// The start of the running trial, and the measurements before it; `None` if no trial is running.
    running: Option<(Time, Health)>,
    worse: u32,
    /// The number of consecutive rollbacks.
    failed: u32,
    until: Time,
}

impl Trial {
    /// Creates the state in which no trial has run.
    #[must_use]
    pub fn new(params: TrialParams) -> Self {
        Self {
            params,
            running: None,
            worse: 0,
            failed: 0,
            until: Time::ZERO,
        }
    }

    /// Restores the state of an earlier process: the running trial with its start, the number of consecutive rollbacks,
    /// and the end of the pause.
    #[must_use]
    pub fn restored(
        params: TrialParams,
        running: Option<(Time, Health)>,
        failed: u32,
        until: Time,
    ) -> Self {
        Self {
            params,
            running,
            worse: 0,
            failed,
            until,
        }
    }

    /// Replaces the parameters; measurements are kept.
    pub fn set_params(&mut self, params: TrialParams) {
        self.params = params;
    }

    /// Returns the number of consecutive rollbacks.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// Returns the end of the pause after a rollback; a time in the past means no pause.
    #[must_use]
    pub fn until(&self) -> Time {
        self.until
    }

    /// Returns whether a change may be made now: no trial is running, and there is no pause after a rollback.
    #[must_use]
    pub fn is_open(&self, now: Time) -> bool {
        self.running.is_none() && now >= self.until
    }

    /// Begins the trial of a change; `before` holds the measurements before it. Returns false, and begins no trial, if
    /// no change may be made now, or if the measurements have too few calls.
    pub fn begin(&mut self, now: Time, before: Health) -> bool {
        if !self.is_open(now) || before.calls < self.params.calls {
            return false;
        }
        (self.running, self.worse) = (Some((now, before)), 0);
        true
    }

    /// Evaluates the measurements since the last call.
    pub fn look(&mut self, now: Time, after: &Health) -> Verdict {
        let Some((begun, before)) = self.running else {
            return Verdict::Keep;
        };
        let age = now.saturating_since(begun);
        if age < self.params.settle {
            return Verdict::Wait;
        }
        if after.calls >= self.params.calls {
            match self.is_worse(&before, after) {
                None => self.worse = 0,
                Some(reason) => {
                    self.worse += 1;
                    if self.worse >= self.params.looks.max(1) {
                        self.take_back(now);
                        return Verdict::RollBack { reason };
                    }
                }
            }
        }
        // A change found worse once is evaluated again before it is kept.
        if age >= self.params.length && self.worse == 0 {
            (self.running, self.failed) = (None, 0);
            return Verdict::Keep;
        }
        Verdict::Wait
    }

    /// Records that the change is rolled back, because it was worse or was never completed.
    pub fn take_back(&mut self, now: Time) {
        let times = 1u32 << self.failed.min(10);
        self.until = now + self.params.penalty.saturating_mul(times);
        self.failed = self.failed.saturating_add(1);
        (self.running, self.worse) = (None, 0);
    }

    fn is_worse(&self, before: &Health, after: &Health) -> Option<String> {
        let p = &self.params;
        let share = |health: &Health| (health.failures / health.calls.max(1.0)).clamp(0.0, 1.0);
        let (old, new) = (share(before), share(after));
        // The two-proportion z-test's standard error.
        let all = before.calls + after.calls;
        let pooled = (before.failures + after.failures) / all.max(1.0);
        let pooled = pooled.clamp(0.0, 1.0);
        let error = (pooled * (1.0 - pooled) * (1.0 / before.calls + 1.0 / after.calls)).sqrt();
        if new - old > p.failures.max(3.0 * error) {
            return Some(format!(
                "{:.1} % of {:.0} calls fail, {:.1} % of {:.0} before",
                new * 100.0,
                after.calls,
                old * 100.0,
                before.calls
            ));
        }
        let floor = p.latency_floor.as_secs_f64() * 1e3;
        let slower =
            |old: f64, new: f64| old > 0.0 && new > old * (1.0 + p.latency) && new > old + floor;
        let times = [
            ("the mean", before.latency_ms, after.latency_ms),
            ("the 95th percentile", before.p95_ms, after.p95_ms),
        ];
        let (what, old, new) = times.into_iter().find(|(_, old, new)| slower(*old, *new))?;
        Some(format!(
            "{what} of response times is {new:.1} ms, {old:.1} ms before"
        ))
    }
}
