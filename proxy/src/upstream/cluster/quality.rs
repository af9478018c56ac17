//! Quality of balancing, measured for a sample of choices.
//!
//! The requests in flight at an endpoint are those known to this proxy: its own requests, and those of other proxies
//! if load reports include them. The endpoints' own proxies count the true number
//! ([`crate::mesh::load_feedback::reporting`]).

use maglor_balance::{Index, Time};

use crate::upstream::Endpoints;

/// One in this many choices is measured, because a measurement reads all endpoints.
const SAMPLED: u64 = 64;

/// Quality of one choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::upstream) struct Quality {
    /// Whether the endpoint had requests in flight while another one had none.
    pub(in crate::upstream) missed_idle: bool,
    /// Imbalance of requests before the choice, in thousandths: 1 − (Σx)² / (n·Σx²), where x are the requests in
    /// flight at n usable endpoints (Jain, Chiu and Hawe, "A quantitative measure of fairness", 1984). 0 means that
    /// all endpoints have the same number or none; a value near 1000 that one of many endpoints has all requests.
    pub(in crate::upstream) imbalance: u32,
}

/// Returns whether the choice at this time is in the sample.
pub(in crate::upstream) fn is_sampled(now: Time) -> bool {
    // Clocks tick in steps of several nanoseconds; the bits above these are practically random.
    now.as_nanos() >> 6 & (SAMPLED - 1) == 0
}

/// Measures the choice of an endpoint to which the request was already assigned.
pub(in crate::upstream) fn measure(endpoints: &Endpoints, chosen: Index) -> Quality {
    let view = endpoints.balancer().view();
    let targets = endpoints.targets().iter().enumerate();
    let loads = targets.filter_map(|(at, target)| {
        let index = Index::new(at);
        let load = target.stats.estimated_load();
        let before = load.saturating_sub(u32::from(index == chosen));
        view.is_usable(index).then_some((index, before))
    });
    quality(loads, chosen)
}

fn quality(loads: impl Iterator<Item = (Index, u32)>, chosen: Index) -> Quality {
    let (mut n, mut sum, mut squares) = (0_u128, 0_u128, 0_u128);
    let (mut at_chosen, mut least) = (0, u32::MAX);
    for (index, load) in loads {
        n += 1;
        sum += u128::from(load);
        squares += u128::from(load) * u128::from(load);
        least = least.min(load);
        if index == chosen {
            at_chosen = load;
        }
    }
    let even = (1000 * sum * sum).checked_div(n * squares).unwrap_or(1000);
    Quality {
        missed_idle: least == 0 && at_chosen > 0,
        imbalance: 1000 - u32::try_from(even.min(1000)).unwrap_or(1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(loads: &[u32], chosen: usize) -> Quality {
        let loads = loads.iter().enumerate();
        let loads = loads.map(|(at, load)| (Index::new(at), *load));
        quality(loads, Index::new(chosen))
    }

    #[test]
    fn equal_loads_are_balanced() {
        for loads in [&[0, 0, 0][..], &[7, 7, 7], &[1], &[]] {
            let quality = of(loads, 0);
            assert_eq!(
                (quality.imbalance, quality.missed_idle),
                (0, false),
                "{loads:?}"
            );
        }
    }

    #[test]
    fn one_that_has_all_is_as_bad_as_it_gets() {
        // Jain's index: 1 − 1/n.
        assert_eq!(of(&[9, 0, 0, 0], 1).imbalance, 750);
        assert_eq!(of(&[u32::MAX, 0], 1).imbalance, 500);
    }

    #[test]
    fn an_idle_endpoint_is_missed_only_by_who_chose_a_busy_one() {
        assert!(of(&[2, 0, 1], 0).missed_idle);
        assert!(!of(&[2, 0, 1], 1).missed_idle);
        assert!(!of(&[2, 1, 1], 0).missed_idle);
    }

    #[test]
    fn some_choices_are_measured() {
        let sampled = (0..100 * 4096_u64).filter(|now| is_sampled(Time::from_nanos(*now)));
        assert_eq!(sampled.count(), 100 * 4096 / SAMPLED as usize);
    }
}
