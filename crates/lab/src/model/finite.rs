//! The corrected model for a finite number of servers: the effect of fluctuations when they are
//! few.
//!
//! With many servers the number of requests at a server is always its mean; with few, the load of
//! all of them fluctuates together. The requests in the whole system, `Q`, are modelled as a birth
//! and death process: born at the rate `Nρ`, dying at the rate `N b(Q/N)`, `b` the share of busy
//! servers. `b` is approximated by the share `r` of the equilibrium with `Q/N` requests at a
//! server, with the correction that is exact for independent servers:
//!
//! ```text
//! b = r / (1 − (1 − r)/N),   at most Q/N and 1
//! ```
//!
//! Exact for one choice, for one server, for many servers, and for one balancer that sees all
//! (M/M/N). Between them it is an estimate; docs/model.md compares it with simulations.

use super::System;
use super::many_servers::ManyServers;

/// The increment of `ln (1/(1 − r))` between two neighbours of the [`Ladder`].
const RUNG: f64 = 0.1;

/// The ladder ends where servers are idle this factor less than in the mean.
const SPARE: f64 = 200.0;

/// The equilibria of one system at all loads.
struct Ladder {
    /// `(ln (1 + q), ln (1/(1 − r)))` for `q` requests at a server and servers busy for `r`: for
    /// one choice a straight line, and smooth for more.
    rungs: Vec<(f64, f64)>,
}

/// Returns the mean latency in mean service times with this number of servers.
pub(super) fn latency(system: &System, servers: u32) -> Option<f64> {
    let ladder = Ladder::build(system)?;
    let pool = Pool {
        ladder,
        servers: f64::from(servers),
        utilisation: system.utilisation,
    };
    Some(pool.mean() / (pool.servers * system.utilisation))
}

impl Ladder {
    fn build(system: &System) -> Option<Self> {
        let top = -(1.0 - system.utilisation).ln() + SPARE.ln();
        let mut many = ManyServers::new(system);
        let mut rungs = vec![(0.0, 0.0)];
        let mut height = 0.0;
        while height < top {
            height += RUNG;
            let requests = many.requests(-(-height).exp_m1())?;
            rungs.push((requests.ln_1p(), height));
        }
        Some(Self { rungs })
    }

    /// Returns the share of busy servers when a server has `requests` in the mean.
    fn busy(&self, requests: f64) -> f64 {
        let x = requests.ln_1p();
        let last = self.rungs.len() - 1;
        let right = self.rungs.partition_point(|(at, _)| *at < x).clamp(1, last);
        let (a, b) = (self.rungs[right - 1], self.rungs[right]);
        let width = b.0 - a.0;
        let part = (x - a.0) / width;
        if part >= 1.0 {
            // Above the ladder servers are hardly ever idle; linear extrapolation.
            return -(-(b.1 + self.slope(right) * (x - b.0))).exp_m1();
        }
        // Hermite's cubic.
        let (rise, run) = (b.1 - a.1, part * (1.0 - part));
        let bend = (1.0 - part) * (self.slope(right - 1) * width - rise)
            - part * (self.slope(right) * width - rise);
        -(-(a.1 + part * rise + run * bend)).exp_m1()
    }

    /// Returns the slope at a rung: that of the parabola through it and its neighbours. At the
    /// lowest one a request is alone, and a server is busy if it has one.
    fn slope(&self, rung: usize) -> f64 {
        if rung == 0 {
            return 1.0;
        }
        let last = self.rungs.len() - 1;
        let middle = rung.clamp(1, last - 1);
        let [a, b, c] = [middle - 1, middle, middle + 1].map(|rung| self.rungs[rung]);
        let (left, right) = (b.0 - a.0, c.0 - b.0);
        let (before, after) = ((b.1 - a.1) / left, (c.1 - b.1) / right);
        let curve = (after - before) / (left + right);
        let at = self.rungs[rung].0;
        before + curve * (2.0 * at - a.0 - b.0)
    }
}

/// All requests at all servers, as one birth and death process.
struct Pool {
    ladder: Ladder,
    servers: f64,
    utilisation: f64,
}

/// The difference of the logarithms of a probability and its peak beyond which it is negligible.
const DEPTH: f64 = 45.0;

impl Pool {
    /// Returns `b(Q/N)`.
    fn busy(&self, requests: f64) -> f64 {
        let each = requests / self.servers;
        let busy = self.ladder.busy(each);
        (busy / (1.0 - (1.0 - busy) / self.servers))
            .min(each)
            .min(1.0)
    }

    /// Returns the mean of `Q`.
    ///
    /// Neighbouring values that hardly differ are summed as one; near the peak of the distribution,
    /// and where `Q` is small, each is computed separately.
    fn mean(&self) -> f64 {
        let peak = self.peak();
        let spread = self.spread(peak);
        let (mut total, mut first) = (1.0, peak);
        for direction in [1.0, -1.0] {
            let mut at = peak;
            let mut edge = peak + 0.5 * direction;
            let mut log_chance: f64 = 0.0;
            while log_chance > -DEPTH && (direction > 0.0 || edge > -0.5) {
                let width = ((spread + (at - peak).abs() / 8.0) / 40.0).floor().max(1.0);
                // The values from one edge to the next, none below zero.
                let next_edge = (edge + direction * width).max(-0.5);
                let next = f64::midpoint(edge, next_edge);
                // From Q − 1 to Q a probability changes by Nρ / N b(Q).
                let between = f64::midpoint(at, next) + 0.5;
                log_chance += (next - at) * (self.utilisation / self.busy(between)).ln();
                let chance = (next_edge - edge).abs() * log_chance.exp();
                total += chance;
                first += chance * next;
                (at, edge) = (next, next_edge);
            }
        }
        first / total
    }

    /// Returns the most likely `Q`: where the birth rate equals the death rate.
    fn peak(&self) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        while self.busy(high) < self.utilisation {
            (low, high) = (high, 2.0 * high);
        }
        while high - low > 1.0 {
            let middle = f64::midpoint(low, high).floor();
            if self.busy(middle) < self.utilisation {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the standard deviation that corresponds to the slope of `b` at the peak.
    fn spread(&self, peak: f64) -> f64 {
        let step = (peak / 1000.0).max(0.5);
        let slope = (self.busy(peak + step) - self.busy(peak)) / step;
        (self.utilisation / slope.max(f64::MIN_POSITIVE)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::super::classic;
    use super::*;

    fn latency(balancers: u32, choices: u32, utilisation: f64, servers: u32) -> f64 {
        let system = System::new(balancers, choices, utilisation).unwrap();
        system.corrected_for(servers).unwrap()
    }

    fn assert_near(actual: f64, expected: f64, tolerance: f64) {
        assert!(
            (actual / expected - 1.0).abs() < tolerance,
            "{actual}, expected {expected}"
        );
    }

    #[test]
    fn one_choice_is_random_whatever_the_number_of_servers() {
        for (utilisation, servers) in [(0.3, 1), (0.75, 2), (0.9, 40), (0.95, 1000), (0.999, 7)] {
            let actual = latency(5, 1, utilisation, servers);
            assert_near(actual, classic::mm1(utilisation), 1e-4);
        }
    }

    #[test]
    fn one_server_is_mm1_whatever_the_policy() {
        for (balancers, choices) in [(1, 2), (1, 40), (20, 2), (1000, 5)] {
            for utilisation in [0.3, 0.75, 0.95] {
                let actual = latency(balancers, choices, utilisation, 1);
                assert_near(actual, classic::mm1(utilisation), 2e-4);
            }
        }
    }

    #[test]
    fn many_servers_are_the_limit() {
        for (balancers, choices, utilisation) in [(1, 2, 0.75), (20, 2, 0.75), (200, 5, 0.95)] {
            let system = System::new(balancers, choices, utilisation).unwrap();
            let actual = system.corrected_for(1_000_000).unwrap();
            assert_near(actual, system.corrected().unwrap(), 1e-4);
        }
    }

    #[test]
    fn one_balancer_that_sees_all_is_one_queue() {
        for (utilisation, servers) in [(0.5, 4), (0.75, 10), (0.9, 40), (0.95, 40)] {
            let actual = latency(1, 1_000_000, utilisation, servers);
            assert_near(actual, classic::mmc(servers, utilisation), 0.02);
        }
    }

    #[test]
    fn the_values_of_two_choices_in_the_literature() {
        // Gast and Van Houdt, "A refined mean field approximation" (2017), simulated mean numbers
        // of requests at a server at ρ = 0.9.
        for (servers, requests) in [(10, 2.8040), (20, 2.5665), (50, 2.4344), (100, 2.3931)] {
            assert_near(latency(1, 2, 0.9, servers) * 0.9, requests, 0.01);
        }
    }
}
