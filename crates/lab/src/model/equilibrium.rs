//! The equilibrium between a balancer's choices and the states of servers that it sees.
//!
//! `s_i` is the probability that a server has at least `i` requests of a given balancer, `p_i` that
//! of exactly `i`. The balancer sends to a server with `i − 1` if all `d` draws have at least that
//! many and not all have more; requests leave a server with `i` at the rate `μ_i`; and in
//! equilibrium as many leave as arrive:
//!
//! ```text
//! λ (s_{i−1}^d − s_i^d) = μ_i p_i    (Eq. 3)        λ = Σ μ_i p_i    (Eq. 5)
//! ```
//!
//! The paper's model and ours differ in `μ_i` alone. Ours depends on all tails ([`Departures`]),
//! and so the equations have to be solved simultaneously.
//!
//! Newton's method solves the equations. It works on `y_i = ln ln (s_{i−1}/s_i)`, because any `y`
//! makes tails that fall from 1 towards 0, and on the logarithms of both sides, which are nearly
//! straight lines where few and where almost all servers have `i`. Eq. 5 takes the place of the Eq.
//! 3 that it implies best, as one of `ln (ρ/(1 − ρ))`: tails grow with the logarithm of the idle
//! share, and a step that ignores it goes astray under high load.

use super::System;
use super::linear;

/// The rates at which a balancer's requests leave a server.
pub(super) trait Departures {
    fn rates(&self, tails: &Tails) -> Rates;
}

/// The result of [`Departures`].
pub(super) struct Rates {
    /// `ln μ_1, ln μ_2, …` for each level that the tails have.
    pub(super) logs: Vec<f64>,
    /// `slopes[i][j]`: how `ln μ_{i+1}` grows with `y_{j+1}`.
    pub(super) slopes: Vec<Vec<f64>>,
}

/// The distribution of a balancer's requests at servers. Everything is computed from the drops,
/// since the difference of two tails near 1 is mostly rounding.
#[derive(Clone)]
pub(super) struct Tails {
    /// `y_1, y_2, …`
    log_drops: Vec<f64>,
    /// `ln (s_0/s_1), ln (s_1/s_2), …`
    pub(super) drops: Vec<f64>,
    /// `ln s_0 = 0, ln s_1, …`
    logs: Vec<f64>,
}

impl Tails {
    pub(super) fn new(log_drops: Vec<f64>) -> Self {
        let drops: Vec<_> = log_drops.iter().map(|log| log.exp()).collect();
        let mut logs = vec![0.0];
        for drop in &drops {
            logs.push(logs[logs.len() - 1] - drop);
        }
        Self {
            log_drops,
            drops,
            logs,
        }
    }

    /// Returns the tails of servers that have one request of the balancer for this share of the
    /// time, and never two.
    fn rare(share: f64) -> Self {
        Self::new(vec![(-share.ln()).ln()])
    }

    /// Returns the highest `i` for which there is an `s_i`.
    pub(super) fn levels(&self) -> usize {
        self.drops.len()
    }

    /// Returns `Σ s_i`: the mean.
    pub(super) fn mean(&self) -> f64 {
        self.logs[1..].iter().map(|log| log.exp()).sum()
    }

    /// Returns `ln (s_k^d − s_{k+1}^d)`; for `d = 1` it is `ln p_k`.
    pub(super) fn log_gap(&self, k: usize, choices: f64) -> f64 {
        let drop = self.drops.get(k).copied().unwrap_or(f64::INFINITY);
        choices * self.logs[k] + (-(-choices * drop).exp_m1()).ln()
    }

    /// Returns the derivative of [`Self::log_gap`] with respect to `y_{j+1}`.
    pub(super) fn log_gap_slope(&self, k: usize, choices: f64, j: usize) -> f64 {
        let drop = choices * self.drops[j];
        match j {
            _ if j < k => -drop,
            _ if j == k => drop / drop.exp_m1(),
            _ => 0.0,
        }
    }
}

/// A path from low to high load, on which each equilibrium is found from the one before.
pub(super) struct Climb {
    system: System,
    /// The utilisation that has been reached, and the tails there.
    reached: Option<(f64, Tails)>,
}

impl Climb {
    pub(super) fn new(system: System) -> Self {
        Self {
            system,
            reached: None,
        }
    }

    /// Returns the tails at this utilisation, which must not fall from call to call.
    ///
    /// The logarithm of the idle share is lowered in steps that are halved if one was too long for
    /// Newton's method, and doubled otherwise.
    pub(super) fn to<D: Departures>(
        &mut self,
        utilisation: f64,
        departures: impl Fn(&System) -> D,
    ) -> Option<&Tails> {
        let mut stride = STRIDE;
        while self.utilisation() < utilisation {
            let idle = (1.0 - self.utilisation()) * (-stride).exp();
            let next = self.system.at((1.0 - idle).min(utilisation));
            let equations = Equations {
                departures: departures(&next),
                system: next,
            };
            let start = self.reached.as_ref().map(|(_, tails)| tails.clone());
            match equations.solve(start) {
                Some(tails) => {
                    self.reached = Some((next.utilisation, tails));
                    stride = (2.0 * stride).min(STRIDE);
                }
                None if stride > STRIDE / 1000.0 => stride /= 2.0,
                None => return None,
            }
        }
        self.reached.as_ref().map(|(_, tails)| tails)
    }

    fn utilisation(&self) -> f64 {
        self.reached.as_ref().map_or(0.0, |(reached, _)| *reached)
    }
}

/// The equations of one system.
struct Equations<D> {
    departures: D,
    system: System,
}

/// The logarithm below which a tail is left out. Tails far smaller than relevant are kept: on the
/// way to a higher load they grow, and without them there would be a highest load.
const NEGLIGIBLE: f64 = -300.0;

/// The maximum decrease of the logarithm of the idle share from one utilisation to the next.
const STRIDE: f64 = 0.5;

/// More steps than Newton's method needs if it converges at all.
const STEPS: u32 = 100;

impl<D: Departures> Equations<D> {
    /// Solves for the tails, starting from these; without them, from those of a low load.
    fn solve(&self, start: Option<Tails>) -> Option<Tails> {
        let mut tails = start.unwrap_or_else(|| Tails::rare(self.system.arrivals()));
        loop {
            tails = self.balance(tails)?;
            let last = tails.logs[tails.levels()];
            // μ is at most 1, so this is a lower bound of the next level.
            let next = self.log_arrivals() + self.choices() * last;
            if next < NEGLIGIBLE {
                return Some(tails);
            }
            tails.log_drops.push((last - next).max(0.1).ln());
        }
    }

    /// Applies Newton's method with steps that are halved until they improve the solution.
    fn balance(&self, start: Tails) -> Option<Tails> {
        let mut state = self.state(Tails::new(start.log_drops))?;
        for _ in 0..STEPS {
            let miss = self.miss(&state);
            let step = linear::solve(self.slopes(&state), miss.clone())?;
            let longest = largest(&step);
            let mut part = 1.0;
            while part * longest > 1e-11 {
                let pairs = state.tails.log_drops.iter().zip(&step);
                let next = pairs.map(|(log, step)| log - part * step).collect();
                let next = self.state(Tails::new(next)).map(|next| State {
                    fullest: state.fullest,
                    ..next
                });
                if let Some(next) = next
                    && largest(&self.miss(&next)) < largest(&miss)
                {
                    state = next;
                    break;
                }
                part /= 2.0;
            }
            if part * longest <= 1e-11 {
                // As near as rounding allows, or not converged.
                return (longest < 1e-6).then_some(state.tails);
            }
        }
        None
    }

    /// Returns the state; `None` if numbers become too small or too large.
    fn state(&self, tails: Tails) -> Option<State> {
        let rates = self.departures.rates(&tails);
        let flows = rates.logs.iter().enumerate();
        let flows: Vec<_> = flows
            .map(|(level, log)| (log + tails.log_gap(level + 1, 1.0)).exp())
            .collect();
        let (fullest, _) = flows
            .iter()
            .enumerate()
            .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let total: f64 = flows.iter().sum();
        let busy = f64::from(self.system.balancers) * total;
        let usable = (0.0..1.0).contains(&busy) && total > 0.0;
        usable.then_some(State {
            tails,
            rates,
            flows,
            fullest,
            busy,
        })
    }

    /// Returns the differences of the equations' sides, as logarithms. Infinite if one is out of
    /// range.
    fn miss(&self, state: &State) -> Vec<f64> {
        let tails = &state.tails;
        let load = |busy: f64| (busy / (1.0 - busy)).ln();
        (0..tails.levels())
            .map(|level| {
                if level == state.fullest {
                    return load(self.system.utilisation) - load(state.busy);
                }
                let left = self.log_arrivals() + tails.log_gap(level, self.choices());
                left - state.rates.logs[level] - tails.log_gap(level + 1, 1.0)
            })
            .map(|miss| if miss.is_nan() { f64::INFINITY } else { miss })
            .collect()
    }

    /// Returns the derivatives of the misses with respect to the `y`.
    fn slopes(&self, state: &State) -> Vec<Vec<f64>> {
        let (tails, rates) = (&state.tails, &state.rates);
        let leaving = |level: usize, j: usize| {
            rates.slopes[level][j] + tails.log_gap_slope(level + 1, 1.0, j)
        };
        let slope = |level: usize, j: usize| {
            if level == state.fullest {
                let flows = state.flows.iter().enumerate();
                let change: f64 = flows.map(|(level, flow)| flow * leaving(level, j)).sum();
                let total: f64 = state.flows.iter().sum();
                return -change / total / (1.0 - state.busy);
            }
            tails.log_gap_slope(level, self.choices(), j) - leaving(level, j)
        };
        (0..tails.levels())
            .map(|level| (0..tails.levels()).map(|j| slope(level, j)).collect())
            .collect()
    }

    fn log_arrivals(&self) -> f64 {
        self.system.arrivals().ln()
    }

    fn choices(&self) -> f64 {
        f64::from(self.system.choices)
    }
}

/// The state of the search.
struct State {
    tails: Tails,
    rates: Rates,
    /// `μ_1 p_1, μ_2 p_2, …`
    flows: Vec<f64>,
    /// The level with the largest flow, whose Eq. 3 is implied by Eq. 5 and the others.
    fullest: usize,
    /// The share of busy servers.
    busy: f64,
}

fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |largest, value| f64::max(largest, value.abs()))
}
