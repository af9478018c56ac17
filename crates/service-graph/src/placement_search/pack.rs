//! Placements that fit, regardless of traffic: a greedy one as the starting point, and a complete search for the case
//! that the improvement of one that does not fit has failed (vector bin packing).

use maglor_balance::Rng;

use super::budget::Budget;
use super::problem::{Demand, Problem};
use super::refine::shuffle;
use super::state::State;

/// Places the services one after the other, always the one with most traffic to those already placed next. Each unit
/// goes to the node with the lowest cost among those that have capacity for it. Units that fit on no node overload one.
pub(crate) fn greedy(problem: &Problem, rng: &mut Rng) -> State {
    let mut partial = Partial::new(problem);
    for service in by_attraction(problem, rng) {
        for _ in 0..problem.replicas[service] {
            let node = partial.cheapest(service);
            partial.put(service, node);
        }
    }
    State::from_counts(problem, &partial.counts)
}

impl State {
    /// Returns the state of the present placement, adjusted to the number of replicas.
    pub(crate) fn resume(problem: &Problem) -> Self {
        Self::from_counts(problem, &resume(problem))
    }
}

/// Returns the present placement with the right number of replicas: surplus ones are removed from the nodes with most
/// replicas of their service, and missing ones are added where the cost is lowest.
fn resume(problem: &Problem) -> Vec<u32> {
    let mut partial = Partial::new(problem);
    for service in 0..problem.services() {
        let row = service * problem.nodes..(service + 1) * problem.nodes;
        let limit = problem.limit[service];
        let mut counts = Vec::from_iter(problem.present[row].iter().map(|&c| c.min(limit)));
        let sum = |counts: &[u32]| counts.iter().map(|&c| u64::from(c)).sum::<u64>();
        while sum(&counts) > u64::from(problem.replicas[service]) {
            if let Some(most) = counts.iter_mut().max() {
                *most -= 1;
            }
        }
        for (node, &count) in counts.iter().enumerate() {
            for _ in 0..count {
                partial.put(service, node);
            }
        }
    }
    for service in 0..problem.services() {
        while partial.placed[service] < problem.replicas[service] {
            let node = partial.cheapest(service);
            partial.put(service, node);
        }
    }
    partial.counts
}

/// Returns whether a placement that fits is found quickly.
pub(crate) fn fits(problem: &Problem, rng: &mut Rng) -> bool {
    let places = |s: usize| -> u64 {
        let rooms = problem.capacity.iter();
        rooms
            .map(|capacity| u64::from(problem.room(s, capacity)))
            .sum()
    };
    let hopeless = (0..problem.services()).any(|s| places(s) < u64::from(problem.replicas[s]));
    if hopeless {
        return false;
    }
    let attempts = (0..4).any(|_| greedy(problem, rng).is_feasible());
    attempts
        || matches!(
            pack(problem, &mut Budget::new(20_000_000)),
            Packing::Found(_)
        )
}

/// Returns the services in an order in which each has as much traffic as possible to those before it.
fn by_attraction(problem: &Problem, rng: &mut Rng) -> Vec<usize> {
    let mut seeds = Vec::from_iter(0..problem.services());
    shuffle(&mut seeds, rng);
    let mut done = vec![false; problem.services()];
    let mut pulled = vec![0.0; problem.services()];
    let mut order = Vec::with_capacity(seeds.len());
    let mut queue = std::collections::BinaryHeap::new();
    for seed in seeds {
        queue.push((0, seed));
        while let Some((_, s)) = queue.pop() {
            if std::mem::replace(&mut done[s], true) {
                continue;
            }
            order.push(s);
            for &(v, w) in problem.neighbours(s) {
                let v = v as usize;
                if !done[v] {
                    pulled[v] += w;
                    // The bits of positive numbers have the same order as the numbers.
                    queue.push((f64::to_bits(pulled[v]), v));
                }
            }
        }
    }
    order
}

struct Partial<'a> {
    problem: &'a Problem,
    counts: Vec<u32>,
    placed: Vec<u32>,
    left: Vec<Demand>,
    pull: Vec<f64>,
}

impl<'a> Partial<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            counts: vec![0; problem.services() * problem.nodes],
            placed: vec![0; problem.services()],
            left: problem.capacity.clone(),
            pull: vec![0.0; problem.nodes],
        }
    }

    fn cheapest(&mut self, service: usize) -> usize {
        let problem = self.problem;
        let row = service * problem.nodes;
        self.pull.fill(0.0);
        for &(v, w) in problem.neighbours(service) {
            let v = v as usize;
            if self.placed[v] > 0 {
                for node in 0..problem.nodes {
                    let q = f64::from(self.counts[v * problem.nodes + node]) * problem.step[v];
                    let p = f64::from(self.counts[row + node]) * problem.step[service];
                    self.pull[node] += w * (q - p).clamp(0.0, problem.step[service]);
                }
            }
        }
        let key = |node: usize| {
            let units = self.counts[row + node];
            let full = units >= problem.limit[service];
            let need = &problem.demand[service];
            let lack: f64 = (0..3)
                .map(|d| need[d].saturating_sub(self.left[node][d]) as f64 * problem.scale[d])
                .sum();
            let start = problem.start_cost(service, node, units + 1)
                - problem.start_cost(service, node, units);
            let room: f64 = (0..2)
                .map(|d| self.left[node][d] as f64 * problem.scale[d])
                .sum();
            (full, lack, start - self.pull[node], -room)
        };
        let better = |a: &usize, b: &usize| {
            let (a, b) = (key(*a), key(*b));
            a.0.cmp(&b.0)
                .then(a.1.total_cmp(&b.1))
                .then(a.2.total_cmp(&b.2))
                .then(a.3.total_cmp(&b.3))
        };
        (0..problem.nodes).min_by(better).unwrap_or(0)
    }

    fn put(&mut self, service: usize, node: usize) {
        self.counts[service * self.problem.nodes + node] += 1;
        self.placed[service] += 1;
        for (left, need) in self.left[node].iter_mut().zip(self.problem.demand[service]) {
            *left = left.saturating_sub(need);
        }
    }
}

/// The maximum number of units for the complete search.
const MOST_UNITS: usize = 2_000;

/// The result of a complete search.
#[derive(Clone, Debug)]
pub(crate) enum Packing {
    /// A placement that fits, as the number of units by service and node.
    Found(Vec<u32>),
    /// No placement fits.
    Impossible,
    /// The search was aborted because its budget was exhausted.
    Unknown,
}

/// Searches all packings, beginning with large services; each unit goes first to the node with the least remaining
/// capacity.
pub(crate) fn pack(problem: &Problem, budget: &mut Budget) -> Packing {
    // The depth is the number of units, and the search would not finish with so many.
    if problem.units() > MOST_UNITS {
        return Packing::Unknown;
    }
    let mut order = Vec::from_iter(0..problem.services());
    let size = |s: usize| {
        let needs = (0..3).map(|d| problem.demand[s][d] as f64 * problem.scale[d]);
        needs.fold(0.0, f64::max)
    };
    order.sort_by(|&a, &b| size(b).total_cmp(&size(a)));
    let mut left = problem.total();
    let mut after = Vec::with_capacity(order.len());
    for &s in &order {
        for (left, need) in left.iter_mut().zip(problem.demand[s]) {
            *left -= need * u64::from(problem.replicas[s]);
        }
        after.push(left);
    }
    let mut search = Packer {
        problem,
        order,
        after,
        left: problem.capacity.clone(),
        counts: vec![0; problem.services() * problem.nodes],
        budget,
    };
    if search.place(0, 0, 0) {
        Packing::Found(search.counts)
    } else if search.budget.is_spent() {
        Packing::Unknown
    } else {
        Packing::Impossible
    }
}

struct Packer<'a> {
    problem: &'a Problem,
    order: Vec<usize>,
    /// The total need of the services that follow each service.
    after: Vec<Demand>,
    left: Vec<Demand>,
    counts: Vec<u32>,
    budget: &'a mut Budget,
}

impl Packer<'_> {
    /// Places the units from the given one on. The nodes of a service's units are in ascending order, so that no
    /// combination is repeated.
    fn place(&mut self, at: usize, unit: u32, least: usize) -> bool {
        let Some(&service) = self.order.get(at) else {
            return true;
        };
        if unit == self.problem.replicas[service] {
            return self.is_hopeful(at) && self.place(at + 1, 0, 0);
        }
        let mut nodes: Vec<usize> = (least..self.problem.nodes)
            .filter(|&node| self.takes(service, node))
            .collect();
        // Units of one service keep to the order of nodes; single ones go where they fit best.
        if self.problem.replicas[service] == 1 {
            nodes.sort_by(|&a, &b| self.slack(a).total_cmp(&self.slack(b)));
        }
        let mut attempted: Vec<Demand> = Vec::new();
        for node in nodes {
            if !self.budget.spend(4) {
                return false;
            }
            let fresh = self.counts[service * self.problem.nodes + node] == 0;
            let single = self.problem.replicas[service] == 1;
            if fresh && single && attempted.contains(&self.left[node]) {
                continue;
            }
            attempted.push(self.left[node]);
            self.put(service, node, true);
            if self.place(at, unit + 1, node) {
                return true;
            }
            self.put(service, node, false);
        }
        false
    }

    fn takes(&self, service: usize, node: usize) -> bool {
        let need = &self.problem.demand[service];
        let units = self.counts[service * self.problem.nodes + node];
        units < self.problem.limit[service] && (0..3).all(|d| need[d] <= self.left[node][d])
    }

    fn slack(&self, node: usize) -> f64 {
        let left = (0..3).map(|d| self.left[node][d] as f64 * self.problem.scale[d]);
        left.sum()
    }

    /// Returns whether the remaining units may still fit, by their sum and for each service alone.
    fn is_hopeful(&mut self, at: usize) -> bool {
        let rest = &self.order[at + 1..];
        self.budget.spend(rest.len() + self.problem.nodes);
        let enough =
            (0..3).all(|d| self.after[at][d] <= self.left.iter().map(|left| left[d]).sum::<u64>());
        enough
            && rest.iter().all(|&s| {
                let units = self
                    .left
                    .iter()
                    .map(|left| u64::from(self.problem.room(s, left)));
                units.sum::<u64>() >= u64::from(self.problem.replicas[s])
            })
    }

    fn put(&mut self, service: usize, node: usize, there: bool) {
        let count = &mut self.counts[service * self.problem.nodes + node];
        let need = self.problem.demand[service];
        for (left, need) in self.left[node].iter_mut().zip(need) {
            *left = if there { *left - need } else { *left + need };
        }
        *count = if there { *count + 1 } else { *count - 1 };
    }
}
