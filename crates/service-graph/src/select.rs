//! The choice of nodes and their target utilization: the top-N choice and the target ratios of the paper's §3.3.
//!
//! The paper ranks nodes by their available resources, takes the first N, because it prefers consolidation, and assigns
//! each a share proportional to its capacity. Here both are options that only reduce capacities; the capacity of the
//! nodes remains the limit.

use maglor_balance::Rng;

use crate::placement_search::{Demand, Problem, fits};

/// The set of nodes that may be used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Use {
    /// All nodes.
    #[default]
    All,
    /// As few nodes as possible, beginning with the largest free capacity.
    Fewest,
    /// This number of nodes, beginning with the largest free capacity.
    Top(usize),
}

/// The nodes to use, and how evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Selection {
    /// The set of nodes to use.
    pub nodes: Use,
    /// The maximum relative excess of a node's load over its share of each resource, where shares are proportional to
    /// capacities. It is relaxed if nothing would fit. `None` = no such limit, the default.
    pub balance: Option<f64>,
}

/// A problem with the capacities reduced by a selection.
#[derive(Clone, Debug)]
pub(crate) struct Narrowed {
    pub(crate) problem: Problem,
    /// The number of nodes that are used.
    count: usize,
    /// The maximum relative excess of a node's load over its share, where that is less than its capacity.
    balance: Option<f64>,
}

/// The number of times that a limit is relaxed before it is dropped.
const WIDENINGS: u32 = 3;

/// Returns the next selection to try, after `attempted` and the previous ones (`widened` in total), for which no
/// placement was found: they had enough capacity, but not together with the replicas that may not be started on other
/// nodes. `None` if there are no limits, or if all selections were attempted.
pub(crate) fn wider(
    wish: &Selection,
    attempted: (&Selection, &Narrowed),
    widened: u32,
) -> Option<Selection> {
    let (selection, narrowed) = attempted;
    let last = widened >= WIDENINGS;
    if let Some(balance) = narrowed.balance {
        let balance = (!last).then_some((balance * 4.0).max(0.04));
        return Some(Selection {
            balance,
            ..*selection
        });
    }
    let more = narrowed.count + 1;
    if wish.nodes != Use::Fewest || more > narrowed.problem.nodes {
        return None;
    }
    let nodes = if last { Use::All } else { Use::Top(more) };
    Some(Selection {
        nodes,
        ..*selection
    })
}

/// Reduces the capacities of a problem to a selection.
pub(crate) fn narrow(problem: &Problem, selection: &Selection, seed: u64) -> Narrowed {
    let mut rng = Rng::seed(seed);
    let ranked = ranked(problem);
    let count = match selection.nodes {
        Use::All => problem.nodes,
        Use::Top(count) => count.clamp(1, problem.nodes),
        Use::Fewest => {
            let enough = |&count: &usize| fits(&first(problem, &ranked, count), &mut rng);
            (1..problem.nodes).find(enough).unwrap_or(problem.nodes)
        }
    };
    let mut narrowed = Narrowed {
        problem: first(problem, &ranked, count),
        count,
        balance: None,
    };
    let Some(mut balance) = selection.balance else {
        return narrowed;
    };
    // A few doublings reach the capacities themselves.
    for _ in 0..24 {
        let part = spread(&narrowed.problem, balance);
        if part.capacity == narrowed.problem.capacity {
            break;
        }
        if fits(&part, &mut rng) {
            (narrowed.problem, narrowed.balance) = (part, Some(balance));
            break;
        }
        balance = (balance * 2.0).max(0.01);
    }
    narrowed
}

/// Returns the nodes, beginning with the largest free capacity.
fn ranked(problem: &Problem) -> Vec<usize> {
    let room = |node: usize| {
        let capacity = &problem.capacity[node];
        capacity[0] as f64 * problem.scale[0] + capacity[1] as f64 * problem.scale[1]
    };
    let mut ranked = Vec::from_iter(0..problem.nodes);
    ranked.sort_by(|&a, &b| room(b).total_cmp(&room(a)).then(a.cmp(&b)));
    ranked
}

fn first(problem: &Problem, ranked: &[usize], count: usize) -> Problem {
    let mut chosen = problem.clone();
    for &node in ranked.iter().skip(count) {
        // Held replicas stay on unused nodes, too, as far as they fit.
        let (held, all) = (problem.held(node), problem.capacity[node]);
        chosen.capacity[node] = std::array::from_fn(|d| held[d].min(all[d]));
    }
    chosen
}

fn spread(problem: &Problem, balance: f64) -> Problem {
    let total = problem.total();
    let sum = |d: usize| problem.capacity.iter().map(|c| c[d]).sum::<u64>() as f64;
    let most: [f64; 3] = std::array::from_fn(|d| {
        let all = sum(d);
        if all > 0.0 {
            (1.0 + balance) * total[d] as f64 / all
        } else {
            1.0
        }
    });
    let mut spread = problem.clone();
    for (node, capacity) in spread.capacity.iter_mut().enumerate() {
        let held = problem.held(node);
        // Pods are a limit, not a resource to be divided.
        let part = |d: usize| {
            // The tolerance absorbs rounding: a share that is just enough has to fit.
            let part = (capacity[d] as f64 * most[d] * (1.0 + 1e-12)).floor() as u64;
            part.max(held[d]).min(capacity[d])
        };
        let narrowed: Demand = [part(0), part(1), capacity[2]];
        *capacity = narrowed;
    }
    spread
}
