//! Branch and bound over whole services: finds the best placement of small problems, and proves that it is the best.
//!
//! Services are placed in the order of their traffic to those placed before. The bound adds, for each service that is
//! not placed yet, its minimal cost with respect to the placed ones. The cost of its units is separable by node and
//! convex; so it is exact to add one unit after the other at the lowest cost.

use super::budget::Budget;
use super::problem::{Demand, Problem};
use super::state::State;

/// The result of a search.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// The best placement found, if it is better than the known one; otherwise `None`.
    pub(crate) better: Option<Vec<u32>>,
    /// Whether the search was exhaustive.
    pub(crate) complete: bool,
}

/// The maximum number of distributions of a service for an exhaustive search.
const DISTRIBUTIONS: u64 = 5_000;

/// Returns whether the problem is small enough for an exhaustive search.
pub(crate) fn is_small(problem: &Problem) -> bool {
    let ways = |&replicas: &u32| {
        let bars = problem.nodes as u64 - 1;
        (1..=bars).fold(1_u64, |ways, bar| {
            ways.saturating_mul(u64::from(replicas) + bar) / bar
        })
    };
    problem.services() <= 64 && problem.replicas.iter().all(|r| ways(r) <= DISTRIBUTIONS)
}

/// Searches for a feasible placement that costs less than `known`; differences below `slack` are
/// ignored.
pub(crate) fn search(
    problem: &Problem,
    known: Option<&State>,
    slack: f64,
    budget: &mut Budget,
) -> Proof {
    let mut search = Search {
        problem,
        order: order(problem),
        rank: vec![usize::MAX; problem.services()],
        counts: vec![0; problem.services() * problem.nodes],
        left: problem.capacity.clone(),
        least: problem.least_distance(),
        best: known.map_or(f64::INFINITY, State::cost),
        better: None,
        slack,
        budget,
        fresh: vec![true; problem.nodes],
        twins: twins(problem),
    };
    for (rank, &s) in search.order.iter().enumerate() {
        search.rank[s] = rank;
    }
    search.descend(0, 0.0);
    Proof {
        better: search.better,
        complete: !search.budget.is_spent(),
    }
}

/// Returns the order of services: the most connected one first, then always the one with most traffic to those before.
fn order(problem: &Problem) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    let mut pull = vec![0.0_f64; problem.services()];
    while order.len() < problem.services() {
        let open = (0..problem.services()).filter(|s| !order.contains(s));
        let key = |s: usize| (pull[s], problem.weight[s]);
        let next = open.max_by(|&a, &b| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let Some(next) = next else { break };
        order.push(next);
        for &(v, w) in problem.neighbours(next) {
            pull[v as usize] += w;
        }
    }
    order
}

/// Returns, for each node, the preceding node that is identical in all respects.
fn twins(problem: &Problem) -> Vec<Option<usize>> {
    let alike = |a: usize, b: usize| {
        problem.capacity[a] == problem.capacity[b]
            && problem.present.is_empty()
            && problem.is_equidistant()
    };
    let before = |node: usize| (0..node).rev().find(|&other| alike(other, node));
    (0..problem.nodes).map(before).collect()
}

struct Search<'a> {
    problem: &'a Problem,
    order: Vec<usize>,
    rank: Vec<usize>,
    counts: Vec<u32>,
    left: Vec<Demand>,
    least: f64,
    best: f64,
    better: Option<Vec<u32>>,
    slack: f64,
    budget: &'a mut Budget,
    /// Whether each node runs nothing yet.
    fresh: Vec<bool>,
    twins: Vec<Option<usize>>,
}

/// A distribution of a service, with its cost with respect to the services placed before.
struct Way {
    cost: f64,
    row: Vec<u32>,
}

impl Search<'_> {
    fn descend(&mut self, at: usize, cost: f64) {
        let Some(&service) = self.order.get(at) else {
            if cost < self.best - self.slack {
                self.best = cost;
                self.better = Some(self.counts.clone());
            }
            return;
        };
        let mut ways = self.ways(service, at);
        ways.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        for way in ways {
            if self.budget.is_spent() || cost + way.cost >= self.best - self.slack {
                return;
            }
            let touched = self.put(service, &way.row);
            let rest = self.rest(at + 1, self.best - self.slack - cost - way.cost);
            if rest.is_some() {
                self.descend(at + 1, cost + way.cost);
            }
            self.take_back(service, &way.row, &touched);
        }
    }

    /// Returns all distributions of a service for which there is capacity now, one for each class of identical nodes.
    fn ways(&mut self, service: usize, at: usize) -> Vec<Way> {
        let mut ways = Vec::new();
        let mut row = vec![0; self.problem.nodes];
        self.distribute(
            service,
            0,
            self.problem.replicas[service],
            &mut row,
            &mut ways,
        );
        self.budget
            .spend(ways.len() * (self.problem.neighbours(service).len() + 1));
        for way in &mut ways {
            way.cost = self.cost(service, at, &way.row);
        }
        ways
    }

    fn distribute(
        &self,
        service: usize,
        node: usize,
        rest: u32,
        row: &mut Vec<u32>,
        ways: &mut Vec<Way>,
    ) {
        let room = self.problem.room(service, &self.left[node]).min(rest);
        // Of two empty identical nodes, the first gets no less.
        let symmetric =
            self.twins[node].filter(|&symmetric| self.fresh[symmetric] && self.fresh[node]);
        let room = symmetric.map_or(room, |symmetric| room.min(row[symmetric]));
        if node + 1 == self.problem.nodes {
            if room == rest {
                row[node] = rest;
                ways.push(Way {
                    cost: 0.0,
                    row: row.clone(),
                });
                row[node] = 0;
            }
            return;
        }
        for units in (0..=room).rev() {
            row[node] = units;
            self.distribute(service, node + 1, rest - units, row, ways);
        }
        row[node] = 0;
    }

    /// Returns the cost of a distribution with respect to all services before `at`.
    fn cost(&self, service: usize, at: usize, row: &[u32]) -> f64 {
        let problem = self.problem;
        let mut cost = 0.0;
        for &(v, w) in problem.neighbours(service) {
            let v = v as usize;
            if self.rank[v] < at {
                cost += w * self.apart(service, row, v);
            }
        }
        cost += problem.apart_from_itself(service, |n| f64::from(row[n]) * problem.step[service]);
        let starts = row.iter().enumerate();
        cost + starts
            .map(|(n, &units)| problem.start_cost(service, n, units))
            .sum::<f64>()
    }

    fn apart(&self, service: usize, row: &[u32], v: usize) -> f64 {
        let problem = self.problem;
        let other = &self.counts[v * problem.nodes..(v + 1) * problem.nodes];
        problem.apart(
            |n| f64::from(row[n]) * problem.step[service],
            |n| f64::from(other[n]) * problem.step[v],
        )
    }

    /// Returns the minimal cost that all services from `at` on add; `None` if it reaches `enough`, or if they do not
    /// fit.
    fn rest(&mut self, at: usize, enough: f64) -> Option<f64> {
        let mut sum = 0.0;
        for index in at..self.order.len() {
            sum += self.least_cost(self.order[index], at)?;
            if sum >= enough {
                return None;
            }
        }
        Some(sum)
    }

    /// Returns the minimal cost of a service with respect to those before `at`. With even routing it is a lower bound
    /// of that cost, because p·q is at most min(p, q).
    fn least_cost(&mut self, service: usize, at: usize) -> Option<f64> {
        let problem = self.problem;
        let step = problem.step[service];
        let neighbours = problem.neighbours(service).iter();
        let placed = neighbours.filter(|(v, _)| self.rank[*v as usize] < at);
        let placed: Vec<_> = placed.map(|&(v, w)| (v as usize, w * self.least)).collect();
        self.budget.spend(placed.len() * problem.nodes + 1);
        let marginal = |node: usize, units: u32| {
            let p = f64::from(units) * step;
            let traffic = placed.iter().map(|&(v, w)| {
                let q = f64::from(self.counts[v * problem.nodes + node]) * problem.step[v];
                0.5 * w * ((p + step - q).abs() - (p - q).abs())
            });
            traffic.sum::<f64>() + problem.start_cost(service, node, units + 1)
                - problem.start_cost(service, node, units)
        };
        // Without any placed unit of a service, half of its neighbours' weight is apart.
        let mut cost = placed.iter().map(|(_, w)| 0.5 * w).sum::<f64>();
        let room = |node: usize| problem.room(service, &self.left[node]);
        let mut open: Vec<(usize, u32, u32, f64)> = (0..problem.nodes)
            .map(|node| (node, 0, room(node), marginal(node, 0)))
            .collect();
        for _ in 0..problem.replicas[service] {
            let with_room = open.iter_mut().filter(|(_, units, room, _)| units < room);
            let next = with_room.min_by(|a, b| a.3.total_cmp(&b.3))?;
            cost += next.3;
            next.1 += 1;
            next.3 = marginal(next.0, next.1);
        }
        Some(cost.max(0.0))
    }

    /// Places a service; returns the nodes that were empty before.
    fn put(&mut self, service: usize, row: &[u32]) -> Vec<usize> {
        let mut touched = Vec::new();
        for (node, &units) in row.iter().enumerate().filter(|(_, units)| **units > 0) {
            self.counts[service * self.problem.nodes + node] = units;
            for (left, need) in self.left[node].iter_mut().zip(self.problem.demand[service]) {
                *left -= need * u64::from(units);
            }
            if std::mem::replace(&mut self.fresh[node], false) {
                touched.push(node);
            }
        }
        touched
    }

    fn take_back(&mut self, service: usize, row: &[u32], touched: &[usize]) {
        for (node, &units) in row.iter().enumerate().filter(|(_, units)| **units > 0) {
            self.counts[service * self.problem.nodes + node] = 0;
            for (left, need) in self.left[node].iter_mut().zip(self.problem.demand[service]) {
                *left += need * u64::from(units);
            }
        }
        for &node in touched {
            self.fresh[node] = true;
        }
    }
}
