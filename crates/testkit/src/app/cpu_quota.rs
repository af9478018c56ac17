//! A limit of processor time, as Linux and Kubernetes enforce one.

use std::time::Duration;

use maglor_balance::Rng;

/// The processor time of one instance: in each period of fixed length it may run for `quota` at the full speed of one
/// processor; then it stands still until the next period begins.
///
/// That is CFS bandwidth control, which enforces `resources.limits.cpu`. It differs from a processor that is slower by
/// the limit: an idle instance finishes short work at full speed, a busy one pauses for most of a period.
#[derive(Clone, Debug)]
pub struct CpuQuota {
    period: u64,
    quota: u64,
    /// How long the period at moment 0 has run.
    phase: u64,
    /// The period of the last work, and how much of its quota was left.
    current: u64,
    left: u64,
}

impl CpuQuota {
    /// Creates a quota of `cpus` processors, above 0, at most 1. The periods of instances begin independently of each
    /// other.
    #[must_use]
    pub fn new(cpus: f64, period: Duration, rng: &mut Rng) -> Self {
        let period = nanos(period).max(1);
        let quota = (period as f64 * cpus) as u64;
        let quota = quota.clamp(1, period);
        Self {
            period,
            quota,
            // Below the period.
            phase: (rng.unit() * period as f64) as u64,
            current: 0,
            left: quota,
        }
    }

    /// Returns when `work` that begins at `begin` ends. No work may begin before the end of the one before.
    pub(super) fn finish(&mut self, begin: Duration, work: Duration) -> Duration {
        let (begin, work) = (nanos(begin).saturating_add(self.phase), nanos(work));
        let period = begin / self.period;
        if period > self.current {
            self.current = period;
            self.left = self.quota;
        }
        let boundary = (period + 1).saturating_mul(self.period);
        let now = work.min(self.left).min(boundary - begin);
        self.left -= now;
        let rest = work - now;
        let end = match rest.checked_sub(1) {
            None => begin + now,
            Some(less) => {
                let periods = less / self.quota;
                let last = rest - periods * self.quota;
                self.current = period + 1 + periods;
                self.left = self.quota - last;
                let whole = periods.saturating_mul(self.period);
                boundary.saturating_add(whole).saturating_add(last)
            }
        };
        Duration::from_nanos(end.saturating_sub(self.phase))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A tenth of a processor, in periods that begin at 0, 100 ms, ….
    fn tenth() -> CpuQuota {
        let mut quota = CpuQuota::new(0.1, ms(100), &mut Rng::seed(1));
        quota.phase = 0;
        quota
    }

    #[test]
    fn work_runs_at_full_speed_until_the_quota_is_used() {
        let mut quota = tenth();
        assert_eq!(quota.finish(ms(20), ms(4)), ms(24));
        assert_eq!(quota.finish(ms(50), ms(6)), ms(56));
        // Nothing is left of this period, and 3 ms of the next one after that.
        assert_eq!(quota.finish(ms(60), ms(7)), ms(107));
        assert_eq!(quota.finish(ms(110), ms(4)), ms(201));
        // Whole periods: 9 ms are left of the third, 10 ms of each further one.
        assert_eq!(quota.finish(ms(210), ms(34)), ms(505));
    }

    #[test]
    fn an_unused_quota_expires() {
        let mut quota = tenth();
        assert_eq!(quota.finish(ms(95), ms(8)), ms(103));
        assert_eq!(quota.finish(ms(103), ms(7)), ms(110));
        assert_eq!(quota.finish(ms(110), ms(1)), ms(201));
    }

    #[test]
    fn a_whole_processor_is_no_limit() {
        let mut rng = Rng::seed(seed());
        let mut quota = CpuQuota::new(1.0, ms(100), &mut rng);
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            now += ms(u64::from(rng.below(50)));
            let work = ms(u64::from(rng.below(300)));
            assert_eq!(quota.finish(now, work), now + work);
            now += work;
        }
    }

    /// Against a clock of 1 µs that follows every period.
    #[test]
    fn every_end_is_that_of_a_slow_clock() {
        let mut rng = Rng::seed(seed());
        let mut quota = CpuQuota::new(0.25, ms(8), &mut rng);
        quota.phase = quota.phase / 1000 * 1000;
        let phase = quota.phase / 1000;
        let (mut now, mut used, mut period) = (0, 0, 0);
        for _ in 0..200 {
            now += u64::from(rng.below(6000));
            let begin = now;
            let work = u64::from(rng.below(9000));
            let mut left = work;
            while left > 0 {
                if (now + phase) / 8000 > period {
                    period = (now + phase) / 8000;
                    used = 0;
                }
                if used < 2000 {
                    used += 1;
                    left -= 1;
                }
                now += 1;
            }
            let end = quota.finish(Duration::from_micros(begin), Duration::from_micros(work));
            assert_eq!(end, Duration::from_micros(now));
        }
    }
}
