//! Textbook queues in mean service times: reference results for the models where they overlap.

/// Returns the mean time in an M/M/1 queue, waiting and service: `1 / (1 − ρ)` (Kleinrock, Queueing
/// Systems I, §3.2). Also that of a server when balancers choose at random (paper, Eq. 9).
pub fn mm1(utilisation: f64) -> f64 {
    1.0 / (1.0 - utilisation)
}

/// Returns the mean time in an M/M/c queue: one line for `servers` servers, each busy for the share
/// `utilisation` (Kleinrock, Queueing Systems I, §3.5). No balancer without knowledge of the sizes
/// of requests can be better.
pub fn mmc(servers: u32, utilisation: f64) -> f64 {
    1.0 + erlang_c(servers, utilisation) / (f64::from(servers) * (1.0 - utilisation))
}

/// Returns the probability of waiting in an M/M/c queue: Erlang's formula C.
///
/// By the recursion of formula B, `B(c) = aB(c−1) / (c + aB(c−1))`, which neither overflows nor
/// cancels.
pub fn erlang_c(servers: u32, utilisation: f64) -> f64 {
    let offered = f64::from(servers) * utilisation;
    let blocked = (1..=servers).fold(1.0, |blocked, server| {
        offered * blocked / (f64::from(server) + offered * blocked)
    });
    blocked / (1.0 - utilisation * (1.0 - blocked))
}

/// Returns the mean time in an M/G/1 queue that serves in order of arrival, when service times have
/// this coefficient of variation (Pollaczek–Khinchine; Kleinrock, Queueing Systems I, §5.6).
pub fn mg1(utilisation: f64, variation: f64) -> f64 {
    1.0 + utilisation * (1.0 + variation * variation) / (2.0 * (1.0 - utilisation))
}

/// Returns the mean number of requests at a server of the supermarket model: one balancer that
/// takes the best of `choices` servers, of which there are many. A server has at least `i` with
/// probability `ρ^((d^i − 1)/(d − 1))` (Mitzenmacher 2001, the paper's \[10\]).
pub fn supermarket(utilisation: f64, choices: u32) -> f64 {
    if choices == 1 {
        return utilisation / (1.0 - utilisation);
    }
    // The exponents are 1, 1 + d, 1 + d + d², …; they run to infinity within some 1000 steps.
    let tails = std::iter::successors(Some(1.0), |exponent| {
        Some(exponent * f64::from(choices) + 1.0)
    });
    tails
        .map(|exponent: f64| utilisation.powf(exponent))
        .take_while(|tail| *tail > 0.0)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(actual: f64, expected: f64) {
        assert!(
            (actual - expected).abs() <= 1e-4 * expected,
            "{actual}, expected {expected}"
        );
    }

    #[test]
    fn mm1_at_known_values() {
        assert_near(mm1(0.75), 4.0);
        assert_near(mm1(0.95), 20.0);
    }

    #[test]
    fn erlang_c_at_known_values() {
        assert_near(erlang_c(1, 0.6), 0.6);
        // Two servers: 2ρ² / (1 + ρ).
        assert_near(erlang_c(2, 0.75), 2.0 * 0.5625 / 1.75);
        // Two erlangs at three servers: 4/9. Eight at ten: 0.409180.
        assert_near(erlang_c(3, 2.0 / 3.0), 4.0 / 9.0);
        assert_near(erlang_c(10, 0.8), 0.409_180);
        assert!(erlang_c(1_000_000, 0.9) < 1e-12);
    }

    #[test]
    fn mmc_at_known_values() {
        assert_near(mmc(1, 0.75), 4.0);
        // Two servers: 1 / (1 − ρ²).
        assert_near(mmc(2, 0.75), 1.0 / (1.0 - 0.5625));
    }

    #[test]
    fn mg1_at_known_values() {
        assert_near(mg1(0.75, 1.0), mm1(0.75));
        // M/D/1: half the waiting of M/M/1.
        assert_near(mg1(0.75, 0.0), 2.5);
        assert_near(mg1(0.5, 2.0), 3.5);
    }

    #[test]
    fn the_supermarket_at_known_values() {
        assert_near(supermarket(0.75, 1), 3.0);
        // Mitzenmacher's table of mean times for two choices: 1.2657 at ρ = 0.5 and 2.6141 at 0.9.
        assert_near(supermarket(0.5, 2) / 0.5, 1.2657);
        assert_near(supermarket(0.9, 2) / 0.9, 2.6141);
        assert_near(supermarket(0.99, 3) / 0.99, 3.8578);
        // A request finds an idle server if all of them are candidates.
        assert_near(supermarket(0.5, 1_000_000), 0.5);
    }
}
