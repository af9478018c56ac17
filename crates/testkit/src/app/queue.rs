//! A FIFO queue with c workers, computed without waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::cpu_quota::CpuQuota;

/// A queue; see the module's documentation. Times are relative to any fixed moment.
///
/// Invariant: requests begin in the order of their arrival, no worker has two at a time, and none
/// is idle while one waits.
#[derive(Clone, Debug)]
pub struct Queue {
    workers: usize,
    /// The times when workers that ever had work become free; at most `workers` of them.
    free: BinaryHeap<Reverse<Duration>>,
    /// The limit of its only worker.
    quota: Option<CpuQuota>,
}

impl Queue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(workers: NonZeroU32) -> Self {
        Self {
            workers: workers.get() as usize,
            free: BinaryHeap::new(),
            quota: None,
        }
    }

    /// Creates an empty queue whose only worker has a limited processor. With several of them, an end would depend on
    /// later arrivals, which use the same quota.
    #[must_use]
    pub fn limited(quota: CpuQuota) -> Self {
        Self {
            quota: Some(quota),
            ..Self::new(NonZeroU32::MIN)
        }
    }

    /// Adds a request with `work`; returns when its work ends. `now` must never decrease from one
    /// call to the next.
    pub fn arrive(&mut self, now: Duration, work: Duration) -> Duration {
        let begin = if self.free.len() < self.workers {
            now
        } else {
            self.free.pop().map_or(now, |Reverse(free)| free.max(now))
        };
        let end = match &mut self.quota {
            Some(quota) => quota.finish(begin, work),
            None => begin.saturating_add(work),
        };
        self.free.push(Reverse(end));
        end
    }
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;
    use crate::seed;

    fn queue(workers: u32) -> Queue {
        Queue::new(NonZeroU32::new(workers).unwrap())
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn one_worker_takes_one_after_the_other() {
        let mut queue = queue(1);
        assert_eq!(queue.arrive(ms(0), ms(10)), ms(10));
        assert_eq!(queue.arrive(ms(2), ms(5)), ms(15));
        assert_eq!(queue.arrive(ms(40), ms(1)), ms(41));
    }

    #[test]
    fn two_workers_share() {
        let mut queue = queue(2);
        assert_eq!(queue.arrive(ms(0), ms(10)), ms(10));
        assert_eq!(queue.arrive(ms(0), ms(4)), ms(4));
        assert_eq!(queue.arrive(ms(1), ms(4)), ms(8));
        assert_eq!(queue.arrive(ms(1), ms(1)), ms(9));
    }

    /// Against Kiefer and Wolfowitz's recursion, which sorts the workers' remaining work.
    #[test]
    fn many_workers_follow_the_recursion() {
        let mut rng = Rng::seed(seed());
        for workers in [1_u32, 2, 3, 8] {
            let mut queue = queue(workers);
            let (mut now, mut left) = (0_u64, vec![0_u64; workers as usize]);
            for _ in 0..5000 {
                let gap = u64::from(rng.below(20));
                let work = u64::from(rng.below(20 * workers));
                now += gap;
                for left in &mut left {
                    *left = left.saturating_sub(gap);
                }
                left.sort_unstable();
                left[0] += work;
                assert_eq!(queue.arrive(ms(now), ms(work)), ms(now + left[0]));
            }
        }
    }
}
