//! The exact departure rates of a server with the requests of `M` balancers, each sending at a rate
//! that depends on the number of its own requests there.
//!
//! A balancer sends to a server with `k` of its own requests at the rate
//! `α(k) = λ (s_k^d − s_{k+1}^d) / (s_k − s_{k+1})`. Let balancer `b` have `n_b` requests at the
//! server, and `n` be their sum. For service times that are exponential (in order of arrival) or of
//! any kind (processor sharing), the probability of these numbers is proportional to
//! ```text
//! n! · w(n_1) · … · w(n_M),   w(k) = α(0) α(1) … α(k−1) / k!
//! ```
//!
//! With `n! = ∫ tⁿ e^−t dt` the balancers separate: given `t`, their counts are independent, each
//! `k` with a probability proportional to `w(k) tᵏ`, and `t` itself has a density proportional to
//! `e^−t W(t)^M`, `W(t) = Σ w(k) tᵏ`. One integral replaces the sum over all states, whatever `M`
//! is, and the rates at which a balancer's requests leave are
//!
//! ```text
//! μ_k = k I(k−1) / I(k),   I(k) = ∫ tᵏ e^−t W(t)^(M−1) dt
//! ```
//!
//! where the paper has `k / (k + (M−1)Eq)`. docs/model.md proves it.

use super::equilibrium::{Departures, Rates, Tails};

/// The number of points of the numerical integral. The integrand is smooth and vanishes on both
/// sides, so that the trapezoid rule gains digits with every point.
const POINTS: usize = 600;

/// The difference of the logarithms of the integrand and its peak beyond which it is negligible:
/// 1e-18.
const DEPTH: f64 = 42.0;

/// A server that serves `M` balancers.
pub(super) struct ProductForm {
    /// M.
    pub(super) balancers: f64,
    /// λ.
    pub(super) arrivals: f64,
    /// d.
    pub(super) choices: f64,
}

impl Departures for ProductForm {
    fn rates(&self, tails: &Tails) -> Rates {
        let size = tails.levels();
        // ln α(k).
        let sending: Vec<_> = (0..size)
            .map(|k| self.arrivals.ln() + tails.log_gap(k, self.choices) - tails.log_gap(k, 1.0))
            .collect();
        let view = Integrand::new(self.balancers, &sending).view();
        let log = |k: usize| (k as f64).ln() + view.log_integrals[k - 1] - view.log_integrals[k];
        // The derivative of ln μ_k with respect to ln α(i): if the balancer has one request more,
        // another one has more than i somewhat more often.
        let others = self.balancers - 1.0;
        let bend = |k: usize, i: usize| others * (view.others[k - 1][i] - view.others[k][i]);
        let slope = |k: usize, j: usize| {
            (0..size)
                .map(|i| bend(k, i) * self.sending_slope(tails, i, j))
                .sum()
        };
        Rates {
            logs: (1..=size).map(log).collect(),
            slopes: (1..=size)
                .map(|k| (0..size).map(|j| slope(k, j)).collect())
                .collect(),
        }
    }
}

impl ProductForm {
    /// Returns the derivative of `ln α(k)` with respect to `y_{j+1}`.
    fn sending_slope(&self, tails: &Tails, k: usize, j: usize) -> f64 {
        tails.log_gap_slope(k, self.choices, j) - tails.log_gap_slope(k, 1.0, j)
    }
}

/// The weights `w(k)`, as logarithms, and the integrand over `u = ln t`.
struct Integrand {
    balancers: f64,
    log_weights: Vec<f64>,
}

/// The distribution of one balancer's count, given `t`.
struct Given {
    /// `ln W(t)`.
    log_sum: f64,
    mean: f64,
}

/// The state of a server in which a balancer has `k` requests.
struct View {
    /// `ln I(k)`, up to a constant.
    log_integrals: Vec<f64>,
    /// `others[k][j]`: the probability that another one has more than `j`.
    others: Vec<Vec<f64>>,
}

impl Integrand {
    fn new(balancers: f64, log_rates: &[f64]) -> Self {
        let mut log_weights = vec![0.0];
        let mut log_weight = 0.0;
        for (k, rate) in log_rates.iter().enumerate() {
            log_weight += rate - (k as f64 + 1.0).ln();
            log_weights.push(log_weight);
        }
        Self {
            balancers,
            log_weights,
        }
    }

    fn view(&self) -> View {
        let size = self.log_weights.len();
        let mut integrals = vec![0.0; size];
        let mut others = vec![vec![0.0; size - 1]; size];
        let mut given = vec![0.0; size];
        for (u, weight) in self.points() {
            let log_sum = self.given(u).log_sum;
            for (k, given) in given.iter_mut().enumerate() {
                *given = (self.log_weights[k] + k as f64 * u - log_sum).exp();
            }
            for k in 0..size {
                let weight = weight * given[k];
                integrals[k] += weight;
                let mut tail = 0.0;
                for j in (0..size - 1).rev() {
                    tail += given[j + 1];
                    others[k][j] += weight * tail;
                }
            }
        }
        for (row, integral) in others.iter_mut().zip(&integrals) {
            row.iter_mut().for_each(|value| *value /= integral);
        }
        // The points contain W^M, of which one W is the balancer's own count: the rest of that is
        // w(k) tᵏ.
        let integrals = integrals.iter().zip(&self.log_weights);
        View {
            log_integrals: integrals.map(|(sum, weight)| sum.ln() - weight).collect(),
            others,
        }
    }

    /// Computes sums relative to the largest term, since the terms overflow long before their
    /// ratios do.
    fn given(&self, u: f64) -> Given {
        let terms = || {
            let weights = self.log_weights.iter().enumerate().skip(1);
            weights.map(move |(k, weight)| (k as f64, weight + k as f64 * u))
        };
        let largest = terms().fold(0.0, |largest: f64, (_, term)| largest.max(term));
        let (sum, first) = terms().fold((0.0, 0.0), |(sum, first), (k, term)| {
            let term = (term - largest).exp();
            (sum + term, first + k * term)
        });
        // The term for k = 0 is 1. With many balancers the others are tiny, and their sum is raised
        // to the power M: adding them to the 1 would lose their precision.
        let log_sum = if largest == 0.0 {
            sum.ln_1p()
        } else {
            largest + ((-largest).exp() + sum).ln()
        };
        Given {
            log_sum,
            mean: first / ((-largest).exp() + sum),
        }
    }

    /// Returns `ln (e^−t W(t)^M dt/du)`.
    fn height(&self, u: f64) -> f64 {
        u - u.exp() + self.balancers * self.given(u).log_sum
    }

    fn slope(&self, u: f64) -> f64 {
        1.0 - u.exp() + self.balancers * self.given(u).mean
    }

    /// Returns the points of the integral with their weights.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let peak = self.peak();
        let top = self.height(peak);
        let left = self.edge(peak, top, -0.5);
        let right = self.edge(peak, top, 0.5);
        let width = (right - left) / POINTS as f64;
        (0..POINTS).map(move |index| {
            let u = left + width * (index as f64 + 0.5);
            (u, (self.height(u) - top).exp())
        })
    }

    fn peak(&self) -> f64 {
        let mut right = 1.0;
        while self.slope(right) > 0.0 {
            right += 2.0;
        }
        bisect(-50.0, right, |u| self.slope(u) > 0.0)
    }

    /// Returns the point beyond the peak in the direction of `step` where the integrand has
    /// vanished.
    fn edge(&self, peak: f64, top: f64, mut step: f64) -> f64 {
        let counts = |u: f64| self.height(u) > top - DEPTH;
        while counts(peak + step) {
            step *= 2.0;
        }
        bisect(peak, peak + step, counts)
    }
}

/// Finds where `holds` ends between `inside`, where it holds, and `outside`, to a millionth.
fn bisect(mut inside: f64, mut outside: f64, holds: impl Fn(f64) -> bool) -> f64 {
    while (outside - inside).abs() > 1e-6 * outside.abs().max(1e-3) {
        let middle = f64::midpoint(inside, outside);
        if holds(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
}

#[cfg(test)]
mod tests;
