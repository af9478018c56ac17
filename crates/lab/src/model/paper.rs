//! The paper's model (§II-B): Eq. 3–8, solved without modification.
//!
//! A server with `i` requests of a balancer lets them leave at the rate `μ_i = i / (i + (M−1)Eq)`
//! (Eq. 6): the others' requests are approximated by their mean, regardless of the number of the
//! balancer's own. Two numbers are unknown. For a given `Eq`, Eq. 3 determines all other tails from
//! `s_1`; if `s_1` is too small they fall below zero, if too large they converge above it: Eq. 5
//! requires that they end at zero. `Eq` is then found by Eq. 7.
//!
//! Both are found by bracketing, which cannot fail: under high load `Eq` grows as fast as
//! `1/√(1 − ρ)`, and with it the number of levels, too many for a system of linear equations.

use super::System;

/// The solution of the paper's model.
#[derive(Clone, Debug, PartialEq)]
pub struct Paper {
    /// `s_i`: the share of servers with at least `i` requests of a given balancer, up to where it
    /// is negligible.
    pub tails: Vec<f64>,
    /// `Eq`: mean number of a balancer's requests at a server (Eq. 7).
    pub outstanding: f64,
    /// `T`: mean latency in mean service times (Eq. 8).
    pub latency: f64,
}

/// Solves the model.
pub(super) fn solve(system: &System) -> Paper {
    if system.choices == 1 {
        return solve_random(system);
    }
    let tails = |outstanding: f64| {
        Recursion {
            arrivals: system.arrivals(),
            choices: f64::from(system.choices),
            others: f64::from(system.balancers - 1) * outstanding,
        }
        .tails()
    };
    let miss = |outstanding: f64| tails(outstanding)[1..].iter().sum::<f64>() - outstanding;
    // A request takes at least its service, and no more than with random choice (note 3).
    let (mut low, most) = (system.arrivals(), system.arrivals() * system.random());
    let mut high = most.min(2.0 * low);
    while high < most && miss(high) > 0.0 {
        (low, high) = (high, most.min(2.0 * high));
    }
    Paper::new(system, tails(root(low, high, miss)))
}

/// Finds the zero of a function that is positive at `low` and negative at `high`: by the Illinois
/// variant of false position.
fn root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut at_low, mut at_high) = (f(low), f(high));
    if at_low <= 0.0 {
        return low;
    }
    if at_high >= 0.0 {
        return high;
    }
    let mut side = 0;
    for _ in 0..200 {
        let middle = (low * at_high - high * at_low) / (at_high - at_low);
        let at_middle = f(middle);
        if at_middle == 0.0 || high - low < 1e-15 * high {
            return middle;
        }
        // An end that stays twice is given half its weight, so that it moves, too.
        if at_middle > 0.0 {
            (low, at_low) = (middle, at_middle);
            at_high *= if side == 1 { 0.5 } else { 1.0 };
            side = 1;
        } else {
            (high, at_high) = (middle, at_middle);
            at_low *= if side == -1 { 0.5 } else { 1.0 };
            side = -1;
        }
    }
    f64::midpoint(low, high)
}

/// Eq. 3 with all parameters except `s_1`.
struct Recursion {
    arrivals: f64,
    choices: f64,
    /// `(M − 1)Eq`.
    others: f64,
}

/// How a run of Eq. 3 ends: with servers left at any level, or below zero.
enum End {
    Above,
    Below,
}

/// More levels than a run that ends can have: the others' requests make it at least double from
/// level to level in the relevant range.
const LEVELS: usize = 10_000;

/// The logarithm of a probability near the smallest representable number.
const TINY: f64 = -700.0;

impl Recursion {
    /// Returns the tails that end at zero.
    fn tails(&self) -> Vec<f64> {
        let first = self.first();
        // ln p_first: the probability of having no more than almost every server has.
        let (mut low, mut high) = (TINY, 0.0);
        loop {
            let middle = f64::midpoint(low, high);
            let (end, tails) = self.run(first, middle);
            if middle <= low || middle >= high {
                return [vec![1.0; first], tails].concat();
            }
            match end {
                End::Above => low = middle,
                End::Below => high = middle,
            }
        }
    }

    /// Returns the lowest level of a server with a representable probability: the first one from
    /// which a run with the smallest probability does not end below zero.
    fn first(&self) -> usize {
        let falls = |first: usize| matches!(self.run(first, TINY).0, End::Below);
        if !falls(0) {
            return 0;
        }
        let (mut low, mut high) = (0, 1);
        while falls(high) {
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if falls(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Runs Eq. 3 from `s_first = 1` and `p_first`, in the differences `p_i = s_i − s_{i+1}`. With
    /// `first = 0` that is Eq. 4.
    fn run(&self, first: usize, log_chance: f64) -> (End, Vec<f64>) {
        let mut tails = vec![1.0];
        let mut chance = log_chance.exp();
        // 1 − s_i, which is exact where s_i is nearly one.
        let mut gone = 0.0;
        let mut tail = 1.0;
        loop {
            let log_share = (-chance / tail).max(-1.0).ln_1p();
            let arriving = tail.powf(self.choices) * -(self.choices * log_share).exp_m1();
            gone += chance;
            tail = if tails.len() == 1 {
                -log_chance.exp_m1()
            } else if gone < 0.5 {
                1.0 - gone
            } else {
                tail - chance
            };
            if tail <= 0.0 {
                return (End::Below, tails);
            }
            let leaving = self.leaving(first + tails.len());
            tails.push(tail);
            let before = chance;
            chance = self.arrivals / leaving * arriving;
            let settled = chance <= before && chance < 1e-17 * tail;
            if settled || tails.len() == LEVELS {
                return (End::Above, tails);
            }
        }
    }

    /// Returns `μ_i`, Eq. 6.
    fn leaving(&self, own: usize) -> f64 {
        own as f64 / (own as f64 + self.others)
    }
}

/// Solves the case of one choice, for which Eq. 3–7 have a closed form: `p_i` is a negative
/// binomial law, `Eq = λ/(1−ρ)`.
fn solve_random(system: &System) -> Paper {
    let arrivals = system.arrivals();
    let outstanding = arrivals / (1.0 - system.utilisation);
    let others = f64::from(system.balancers - 1) * outstanding;
    let mut chance = ((others + 1.0) * (-arrivals).ln_1p()).exp();
    let mut tails = vec![1.0];
    let mut tail = 1.0;
    while tail > 1e-15 && tails.len() < 100_000 {
        tail -= chance;
        chance *= arrivals * (tails.len() as f64 + others) / tails.len() as f64;
        tails.push(tail.max(0.0));
    }
    Paper {
        tails,
        outstanding,
        latency: system.random(),
    }
}

impl Paper {
    fn new(system: &System, tails: Vec<f64>) -> Self {
        let outstanding: f64 = tails[1..].iter().sum();
        let choices = f64::from(system.choices);
        // Eq. 8.
        let others = f64::from(system.balancers - 1) * outstanding;
        let own: f64 = tails.iter().map(|tail| tail.powf(choices)).sum();
        Self {
            tails,
            outstanding,
            latency: others + own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::classic;
    use super::*;

    fn latency(balancers: u32, choices: u32, utilisation: f64) -> f64 {
        let system = System::new(balancers, choices, utilisation).unwrap();
        system.paper().latency
    }

    #[test]
    fn the_values_at_the_papers_parameters() {
        // d = 2, ρ = 0.75, Ts = 20 ms.
        assert!((20.0 * latency(1, 2, 0.75) - 35.17).abs() < 0.05);
        assert!((20.0 * latency(20, 2, 0.75) - 70.76).abs() < 0.05);
        assert!((20.0 * latency(1_000_000, 2, 0.75) - 80.0).abs() < 0.05);
    }

    /// Eq. 3 to 8 as they stand in the paper, put to the solution.
    #[test]
    fn the_solution_satisfies_the_equations() {
        for (balancers, choices, utilisation) in [
            (1, 2, 0.75),
            (2, 2, 0.3),
            (7, 1, 0.6),
            (20, 2, 0.75),
            (20, 5, 0.95),
            (200, 3, 0.99),
            (100_000, 2, 0.999),
        ] {
            let system = System::new(balancers, choices, utilisation).unwrap();
            let paper = system.paper();
            let arrivals = utilisation / f64::from(balancers);
            let d = f64::from(choices);
            let others = f64::from(balancers - 1) * paper.outstanding;
            let mu = |i: usize| i as f64 / (i as f64 + others);
            let s = [&paper.tails[..], &[0.0]].concat();
            assert_eq!(s[0], 1.0, "Eq. 4");
            for i in 1..s.len() - 1 {
                let right = s[i] - arrivals / mu(i) * (s[i - 1].powf(d) - s[i].powf(d));
                assert!(
                    (s[i + 1] - right).abs() < 1e-11,
                    "Eq. 3, {system:?}, i = {i}"
                );
            }
            let leaving: f64 = (1..s.len() - 1).map(|i| (s[i] - s[i + 1]) * mu(i)).sum();
            assert!((leaving / arrivals - 1.0).abs() < 1e-8, "Eq. 5, {system:?}");
            let mean: f64 = s[1..].iter().sum();
            assert!(
                (mean / paper.outstanding - 1.0).abs() < 1e-8,
                "Eq. 7, {system:?}"
            );
            let latency = others + s.iter().map(|s| s.powf(d)).sum::<f64>();
            assert!(
                (latency / paper.latency - 1.0).abs() < 1e-8,
                "Eq. 8, {system:?}"
            );
            // Little's law, which the equations imply.
            let little = paper.outstanding / arrivals;
            assert!(
                (little / paper.latency - 1.0).abs() < 1e-8,
                "Little, {system:?}"
            );
        }
    }

    #[test]
    fn one_balancer_is_the_supermarket() {
        for (choices, utilisation) in [(1, 0.9), (2, 0.5), (3, 0.95), (40, 0.99)] {
            let expected = classic::supermarket(utilisation, choices) / utilisation;
            let actual = latency(1, choices, utilisation);
            assert!(
                (actual / expected - 1.0).abs() < 1e-7,
                "{actual}, {expected}"
            );
        }
    }

    #[test]
    fn latency_grows_towards_random_with_balancers() {
        for (choices, utilisation) in [(2, 0.5), (3, 0.9), (1000, 0.75)] {
            let mut before = 0.0;
            for balancers in [1, 2, 5, 20, 200, 10_000, 1_000_000] {
                let now = latency(balancers, choices, utilisation);
                assert!(now > before, "{now} at {balancers}, {before} before");
                before = now;
            }
            let random = classic::mm1(utilisation);
            assert!(before < random && before > 0.999 * random, "Theorem 1");
        }
    }

    #[test]
    fn one_choice_is_random() {
        for balancers in [1, 3, 1_000_000] {
            assert!((latency(balancers, 1, 0.75) - 4.0).abs() < 1e-9);
        }
    }
}
