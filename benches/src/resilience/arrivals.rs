//! Arrival times of requests.

use std::time::Duration;

use maglor_balance::Rng;

/// The distribution of the gaps between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    /// All equal.
    Even,
    /// Exponential: a Poisson process, the limit of many independent clients.
    Poisson,
}

/// A constant rate for a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Phase {
    /// Requests per second.
    pub(super) rate: f64,
    /// The length of the period.
    pub(super) length: Duration,
}

/// Returns the due times of all requests of `phases`, from the start of the first.
pub(super) fn arrivals(phases: &[Phase], gaps: Gaps, rng: &mut Rng) -> Vec<Duration> {
    let (mut due, mut begin) = (Vec::new(), 0.0);
    for phase in phases {
        let end = begin + phase.length.as_secs_f64();
        let mut at = begin;
        loop {
            let gap = match gaps {
                Gaps::Even => 1.0,
                Gaps::Poisson => -(1.0 - rng.unit()).ln(),
            };
            at += gap / phase.rate;
            if at >= end {
                break;
            }
            due.push(Duration::from_secs_f64(at));
        }
        begin = end;
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_hold_in_each_phase() {
        let phase = |rate| Phase {
            rate,
            length: Duration::from_secs(20),
        };
        for gaps in [Gaps::Even, Gaps::Poisson] {
            let due = arrivals(&[phase(100.0), phase(500.0)], gaps, &mut Rng::seed(7));
            let border = Duration::from_secs(20);
            let first = due.iter().filter(|at| **at < border).count();
            assert!(first.abs_diff(2000) < 150, "{gaps:?}: {first}");
            let second = due.len() - first;
            assert!(second.abs_diff(10_000) < 350, "{gaps:?}: {second}");
            assert!(due.is_sorted());
        }
    }
}
