//! A lower bound of the cut from local capacity: each service with its neighbours is a star, and no placement keeps
//! more of a star's traffic local than its nodes have capacity for.
//!
//! On a node that runs `a` of the service's R units, at most the share a/R of each neighbour's traffic stays local, and
//! the neighbours' units need capacity there: a fractional knapsack. The result for the best node and count, multiplied
//! by R/a, is a bound for the whole star. Every edge is in two stars, each of which gets half of its weight.

use super::problem::Problem;

/// Returns a lower bound of the cost of any placement.
pub(crate) fn stars(problem: &Problem) -> f64 {
    let stars = (0..problem.services()).map(|s| star(problem, s));
    0.5 * problem.least_distance() * stars.sum::<f64>()
}

fn star(problem: &Problem, s: usize) -> f64 {
    let mut kept: f64 = 0.0;
    let kinds = distinct(problem);
    for capacity in kinds {
        let most = problem.room(s, capacity).min(problem.replicas[s]);
        for units in 1..=most {
            let stays = (0..3).map(|d| knapsack(problem, s, units, capacity[d], d));
            let stays = stays.fold(f64::INFINITY, f64::min);
            kept = kept.max(stays / f64::from(units));
        }
    }
    let cut = problem.weight[s] - kept * f64::from(problem.replicas[s]);
    // A rounding error is no bound.
    if cut > 1e-9 * problem.weight[s] {
        cut
    } else {
        0.0
    }
}

/// Returns the different capacities of nodes.
fn distinct(problem: &Problem) -> Vec<&super::problem::Demand> {
    let mut kinds = Vec::from_iter(&problem.capacity);
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the maximum traffic of a star that stays on a node with this number of the service's units, considering one
/// resource.
fn knapsack(problem: &Problem, s: usize, units: u32, capacity: u64, d: usize) -> f64 {
    let share = f64::from(units) * problem.step[s];
    let own = problem.demand[s][d] * u64::from(units);
    let mut left = capacity.saturating_sub(own) as f64;
    let mut kept = 0.0;
    let neighbours = problem.neighbours(s).iter();
    // The full need of a neighbour, and its weight.
    let mut goods: Vec<(f64, f64)> = neighbours
        .map(|&(v, w)| {
            let v = v as usize;
            let need = problem.demand[v][d] as f64 * f64::from(problem.replicas[v]);
            (need, w)
        })
        .collect();
    goods.sort_by(|a, b| (b.1 * a.0).total_cmp(&(a.1 * b.0)));
    for (need, weight) in goods {
        let part = if need > 0.0 {
            (left / need).min(share)
        } else {
            share
        };
        kept += weight * part;
        left -= need * part;
    }
    kept
}
