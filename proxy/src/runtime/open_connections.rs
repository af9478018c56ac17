//! The open client connections of each worker, by which new ones are assigned.
//!
//! The kernel distributes connections among the workers' sockets by a hash (`SO_REUSEPORT`): of 16 connections, one of
//! four workers gets seven or more in every other case, and with long-lived connections (HTTP/2, gRPC, a caller's
//! pool) that share of the load stays with it. A worker that has accepted a connection and has its even share already
//! hands it over to the one with the fewest.

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
    /// It stays if `at` then has at most an even share of all, rounded up, and an eighth more: handing it over takes a
    /// wake-up of the other thread, which does not pay for small differences between many connections.
    pub(crate) fn assign(&self, at: usize) -> usize {
        let counts = || self.0.iter().map(|count| count.0.load(Ordering::Relaxed));
        let even = (counts().sum::<usize>() + 1).div_ceil(self.0.len());
        let fewest = || counts().enumerate().min_by_key(|(_, open)| *open);
        let to = match self.of(at) < even + even / 8 {
            true => at,
            false => fewest().map_or(at, |(worker, _)| worker),
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
                assert!(
                    most <= mean + mean / 8,
                    "{workers}, {connections}, seed {seed}: {open:?}"
                );
                assert_eq!(open.iter().sum::<usize>(), connections);
            }
            assert_eq!(accepted(4, 16, seed), [4; 4]);
            assert_eq!(accepted(2, 2, seed), [1, 1]);
        }
    }

    #[test]
    fn new_connections_fill_the_gaps_of_closed_ones() {
        for seed in 0..500 {
            let (open, mut rng) = (OpenConnections::new(4), Rng::seed(seed));
            let mut accept = |number| {
                for _ in 0..number {
                    open.assign(rng.below(4) as usize);
                }
            };
            accept(32);
            let closed = open.of(1);
            (0..closed).for_each(|_| open.leave(1));
            accept(closed);
            let busiest = (0..4).map(|worker| open.of(worker)).max();
            assert!(busiest <= Some(9), "seed {seed}");
        }
    }

    #[test]
    fn small_differences_between_many_are_left() {
        let open = OpenConnections::new(2);
        (0..32).for_each(|_| {
            open.assign(0);
        });
        assert_eq!((open.of(0), open.of(1)), (18, 14));
        open.take_back(1, 0);
        open.leave(0);
        assert_eq!((open.of(0), open.of(1)), (18, 13));
    }

    #[test]
    fn a_single_worker_keeps_all() {
        assert_eq!(accepted(1, 10, 1), [10]);
    }
}
