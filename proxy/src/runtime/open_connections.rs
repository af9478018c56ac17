//! The open client connections of each worker, by which new ones are assigned.
//!
//! The kernel distributes connections among the workers' sockets by a hash (`SO_REUSEPORT`): of 16 connections, one of
//! four workers gets seven or more in every other case, and with long-lived connections (HTTP/2, gRPC, a caller's
//! pool) that share of the load stays with it. A worker that has accepted a connection hands it over to the one
//! with the fewest.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbers of open connections by worker, including those that are assigned and not yet served.
#[derive(Debug)]
pub(crate) struct OpenConnections(Box<[Count]>);

/// Written by each accepted connection of a worker; in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count(AtomicUsize);

impl OpenConnections {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Count::default()).collect())
    }

    /// Counts a connection that worker `at` has accepted for the worker that it returns.
    ///
    /// A worker without connections gets it, if `at` has any. Otherwise it stays unless another worker has at least two
    /// connections fewer, and an eighth fewer: handing it over takes a wake-up of the other thread, which does not
    /// pay for small differences between short-lived connections.
    pub(crate) fn assign(&self, at: usize) -> usize {
        let own = self.of(at);
        let others = self.0.iter().map(|count| count.0.load(Ordering::Relaxed));
        let least = others.enumerate().min_by_key(|(_, open)| *open);
        let to = match least {
            Some((worker, 0)) if own > 0 => worker,
            Some((worker, fewest)) if own >= fewest + 2 + fewest / 8 => worker,
            _ => at,
        };
        self.enter(to);
        to
    }

    /// Moves a connection that could not be handed over to worker `from`.
    pub(crate) fn take_back(&self, from: usize, to: usize) {
        self.leave(from);
        self.enter(to);
    }

    /// Counts the end of a connection of a worker.
    pub(crate) fn leave(&self, worker: usize) {
        // Relaxed, as above: the numbers are compared, and nothing is published by them.
        self.0[worker].0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open connections of a worker.
    pub(crate) fn of(&self, worker: usize) -> usize {
        self.0[worker].0.load(Ordering::Relaxed)
    }

    fn enter(&self, worker: usize) {
        self.0[worker].0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;

    /// Returns the numbers of connections after some were accepted by random workers.
    fn accepted(workers: usize, connections: usize, seed: u64) -> Vec<usize> {
        let (open, mut rng) = (OpenConnections::new(workers), Rng::seed(seed));
        for _ in 0..connections {
            open.assign(rng.below(workers as u32) as usize);
        }
        (0..workers).map(|worker| open.of(worker)).collect()
    }

    #[test]
    fn the_busiest_worker_has_few_more_than_the_mean() {
        for seed in 0..500 {
            for (workers, connections) in [(2, 2), (2, 16), (4, 4), (4, 16), (4, 100), (8, 64)] {
                let open = accepted(workers, connections, seed);
                let mean = connections.div_ceil(workers);
                let most = open.iter().max().copied().unwrap_or_default();
                let bound = mean + 1 + mean / 8;
                assert!(
                    most <= bound.max(1),
                    "{workers}, {connections}, seed {seed}: {open:?}"
                );
                assert_eq!(open.iter().sum::<usize>(), connections);
            }
            // Five of four at most: 1.25 of the mean.
            assert!(accepted(4, 16, seed).iter().all(|open| *open <= 5));
            assert_eq!(accepted(2, 2, seed), [1, 1]);
        }
    }

    #[test]
    fn small_differences_are_left() {
        let open = OpenConnections::new(2);
        assert_eq!(open.assign(0), 0);
        assert_eq!(open.assign(0), 1, "one without any gets it");
        assert_eq!(open.assign(0), 0);
        assert_eq!(open.assign(0), 0, "two and one");
        assert_eq!(open.assign(0), 1, "three and one");
        open.take_back(1, 0);
        open.leave(0);
        assert_eq!((open.of(0), open.of(1)), (3, 1));
    }

    #[test]
    fn a_single_worker_keeps_all() {
        assert_eq!(accepted(1, 10, 1), [10]);
    }
}
