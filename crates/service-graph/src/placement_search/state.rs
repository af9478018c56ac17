//! A placement that is being improved: the node of each unit, and the resulting cost.
//!
//! Invariant: `counts`, `shares` and `loads` follow from `unit_node`; `cost` and `overload` follow from them, up to
//! rounding that [`State::recount`] removes. No service exceeds its limit per node.

use super::problem::{Demand, Problem};

/// The node of each unit. Units of the same service are interchangeable.
#[derive(Clone, Debug)]
pub(crate) struct State {
    nodes: usize,
    counts: Vec<u32>,
    shares: Vec<f64>,
    unit_node: Vec<u32>,
    loads: Vec<Demand>,
    cost: f64,
    overload: f64,
}

impl State {
    /// Creates a state from the node of each unit.
    pub(crate) fn new(problem: &Problem, unit_node: Vec<u32>) -> Self {
        let nodes = problem.nodes;
        let mut state = Self {
            nodes,
            counts: vec![0; problem.services() * nodes],
            shares: vec![0.0; problem.services() * nodes],
            unit_node,
            loads: vec![[0; 3]; nodes],
            cost: 0.0,
            overload: 0.0,
        };
        for (unit, &node) in state.unit_node.iter().enumerate() {
            let service = problem.unit_service[unit] as usize;
            state.counts[service * nodes + node as usize] += 1;
            for (load, need) in state.loads[node as usize]
                .iter_mut()
                .zip(problem.demand[service])
            {
                *load += need;
            }
        }
        for service in 0..problem.services() {
            for cell in service * nodes..(service + 1) * nodes {
                state.shares[cell] = f64::from(state.counts[cell]) * problem.step[service];
            }
        }
        state.recount(problem);
        state
    }

    /// Creates a state from the number of units by service and node; the sum of each service must be its number of
    /// units.
    pub(crate) fn from_counts(problem: &Problem, counts: &[u32]) -> Self {
        let mut unit_node = Vec::with_capacity(problem.units());
        for row in counts.chunks(problem.nodes) {
            for (node, &count) in row.iter().enumerate() {
                unit_node.extend(std::iter::repeat_n(node as u32, count as usize));
            }
        }
        Self::new(problem, unit_node)
    }

    /// Returns the cost: the traffic that leaves its node, weighted by distance, and the units to start.
    pub(crate) fn cost(&self) -> f64 {
        self.cost
    }

    /// Returns the overload of all nodes, for each resource relative to a mean node.
    pub(crate) fn overload(&self) -> f64 {
        self.overload
    }

    pub(crate) fn is_feasible(&self) -> bool {
        self.overload == 0.0
    }

    /// Returns whether this state is better than another one: feasible states are better than others, and then cheaper
    /// ones.
    pub(crate) fn beats(&self, other: &Self) -> bool {
        (self.overload, self.cost) < (other.overload, other.cost)
    }

    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Returns the node of each unit.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.unit_node
    }

    pub(crate) fn count(&self, service: usize, node: usize) -> u32 {
        self.counts[service * self.nodes + node]
    }

    pub(crate) fn share(&self, service: usize, node: usize) -> f64 {
        self.shares[service * self.nodes + node]
    }

    pub(crate) fn node_of(&self, unit: usize) -> usize {
        self.unit_node[unit] as usize
    }

    /// Returns the load of a node.
    pub(crate) fn load(&self, node: usize) -> &Demand {
        &self.loads[node]
    }

    /// Returns whether a node has capacity for another unit.
    pub(crate) fn takes(&self, problem: &Problem, service: usize, node: usize) -> bool {
        let (load, capacity) = (&self.loads[node], &problem.capacity[node]);
        let demand = &problem.demand[service];
        self.count(service, node) < problem.limit[service]
            && (0..3).all(|d| demand[d] == 0 || load[d] + demand[d] <= capacity[d])
    }

    /// Returns whether one more unit on a node stays within the service's limit per node.
    pub(crate) fn allows(&self, problem: &Problem, service: usize, node: usize) -> bool {
        self.count(service, node) < problem.limit[service]
    }

    /// Returns the overload of a node.
    pub(crate) fn overload_of(&self, problem: &Problem, node: usize) -> f64 {
        excess(problem, &self.loads[node], &problem.capacity[node])
    }

    /// Returns the change of the overload if a unit moves from `a` to `b`.
    pub(crate) fn overload_delta(&self, problem: &Problem, s: usize, a: usize, b: usize) -> f64 {
        let mut delta = 0.0;
        for (d, need) in problem.demand[s].into_iter().enumerate() {
            let (from, to) = (self.loads[a][d], self.loads[b][d]);
            let (room, full) = (problem.capacity[a][d], problem.capacity[b][d]);
            let relief = from.saturating_sub(room) - (from - need).saturating_sub(room);
            let burden = (to + need).saturating_sub(full) - to.saturating_sub(full);
            delta += (burden as f64 - relief as f64) * problem.scale[d];
        }
        delta
    }

    /// Returns the change of the cost if a unit moves from `a` to `b`, which are different nodes.
    pub(crate) fn delta(&self, problem: &Problem, s: usize, a: usize, b: usize) -> f64 {
        let traffic = if problem.is_uniform() {
            self.traffic_delta(problem, s, a, b)
        } else if problem.even && problem.is_equidistant() {
            let share = |v: u32, node| self.share(v as usize, node);
            let won = problem.neighbours(s).iter();
            let won = won.map(|&(v, w)| w * (share(v, a) - share(v, b)));
            problem.step[s] * won.sum::<f64>()
        } else {
            let change = |&(v, w): &(u32, f64)| {
                let after = self.pair(problem, s, v as usize, Some((a, b)));
                w * (after - self.pair(problem, s, v as usize, None))
            };
            problem.neighbours(s).iter().map(change).sum()
        };
        traffic + self.own_delta(problem, s, a, b) + self.start_delta(problem, s, a, b)
    }

    /// Returns the change of the cost of a service's calls to itself if a unit moves from `a` to `b`.
    fn own_delta(&self, problem: &Problem, s: usize, a: usize, b: usize) -> f64 {
        if !problem.even || problem.own[s] == 0.0 {
            return 0.0;
        }
        let after =
            problem.apart_from_itself(s, |node| self.shifted(problem, s, node, Some((a, b))));
        after - problem.apart_from_itself(s, |node| self.share(s, node))
    }

    /// Returns the change of the traffic's cost if a unit moves from `a` to `b`: only the terms of these two nodes in
    /// Σ|p − q| change.
    fn traffic_delta(&self, problem: &Problem, s: usize, a: usize, b: usize) -> f64 {
        let step = problem.step[s];
        let (pa, pb) = (self.share(s, a), self.share(s, b));
        let mut sum = 0.0;
        for &(v, w) in problem.neighbours(s) {
            let (qa, qb) = (self.share(v as usize, a), self.share(v as usize, b));
            sum += w
                * ((pa - step - qa).abs() - (pa - qa).abs() + (pb + step - qb).abs()
                    - (pb - qb).abs());
        }
        0.5 * sum
    }

    /// Returns the change of the cost of starting units if a unit moves from `a` to `b`.
    pub(crate) fn start_delta(&self, problem: &Problem, s: usize, a: usize, b: usize) -> f64 {
        if problem.present.is_empty() {
            return 0.0;
        }
        let present = |node: usize| problem.present[s * self.nodes + node];
        let spared = f64::from(u8::from(self.count(s, a) > present(a)));
        let started = f64::from(u8::from(self.count(s, b) >= present(b)));
        problem.start_price(s, b) * started - problem.start_price(s, a) * spared
    }

    /// Returns the cost of a unit of traffic between two services; with `shifted`, as if a unit of `s` had moved from
    /// the first node to the second.
    fn pair(&self, problem: &Problem, s: usize, v: usize, shifted: Option<(usize, usize)>) -> f64 {
        problem.apart(
            |node| self.shifted(problem, s, node, shifted),
            |node| self.share(v, node),
        )
    }

    /// Returns a service's share on a node as if a unit had moved from the first node to the second.
    fn shifted(
        &self,
        problem: &Problem,
        s: usize,
        node: usize,
        shifted: Option<(usize, usize)>,
    ) -> f64 {
        let share = self.share(s, node);
        match shifted {
            Some((a, _)) if a == node => share - problem.step[s],
            Some((_, b)) if b == node => share + problem.step[s],
            _ => share,
        }
    }

    /// Moves a unit to node `b`; `delta` is the result of [`State::delta`].
    pub(crate) fn apply(&mut self, problem: &Problem, unit: usize, b: usize, delta: f64) {
        let s = problem.unit_service[unit] as usize;
        let a = self.node_of(unit);
        self.overload += self.overload_delta(problem, s, a, b);
        self.cost += delta;
        self.unit_node[unit] = b as u32;
        let row = s * self.nodes;
        self.counts[row + a] -= 1;
        self.counts[row + b] += 1;
        self.shares[row + a] = f64::from(self.counts[row + a]) * problem.step[s];
        self.shares[row + b] = f64::from(self.counts[row + b]) * problem.step[s];
        for d in 0..3 {
            self.loads[a][d] -= problem.demand[s][d];
            self.loads[b][d] += problem.demand[s][d];
        }
        // A sum of many terms would keep a rounding error where nothing is overloaded any more.
        if self.overload != 0.0 && self.overload < 1e-9 {
            self.overload = (0..self.nodes).map(|n| self.overload_of(problem, n)).sum();
        }
    }

    /// Returns a unit of a service on a node; `None` if there is none.
    pub(crate) fn unit_on(&self, problem: &Problem, service: usize, node: usize) -> Option<usize> {
        let mut units = problem.units_of(service);
        units.find(|&unit| self.node_of(unit) == node)
    }

    /// Recomputes the cost and the overload.
    pub(crate) fn recount(&mut self, problem: &Problem) {
        let mut cost = 0.0;
        for s in 0..problem.services() {
            for &(v, w) in problem
                .neighbours(s)
                .iter()
                .filter(|(v, _)| *v as usize > s)
            {
                cost += w * self.pair(problem, s, v as usize, None);
            }
            cost += problem.apart_from_itself(s, |node| self.share(s, node));
            if !problem.present.is_empty() {
                let starts = (0..self.nodes).map(|n| problem.start_cost(s, n, self.count(s, n)));
                cost += starts.sum::<f64>();
            }
        }
        self.cost = cost;
        self.overload = (0..self.nodes).map(|n| self.overload_of(problem, n)).sum();
    }
}

/// Returns by how much a load exceeds a capacity, for each resource relative to a mean node.
fn excess(problem: &Problem, load: &Demand, capacity: &Demand) -> f64 {
    let over = |d: usize| load[d].saturating_sub(capacity[d]) as f64 * problem.scale[d];
    over(0) + over(1) + over(2)
}

#[cfg(test)]
mod tests {
    use super::super::{Item, refine::Refiner};
    use super::*;
    use maglor_balance::Rng;

    fn random(rng: &mut Rng, distances: bool, even: bool) -> Problem {
        let items: Vec<Item> = (0..8)
            .map(|_| Item {
                replicas: 1 + rng.below(4),
                demand: [u64::from(rng.below(50)), u64::from(rng.below(50)), 1],
                limit: u32::MAX,
                move_cost: rng.unit(),
            })
            .collect();
        let edges: Vec<_> = (0..14)
            .map(|_| (rng.below(8), rng.below(8), rng.unit()))
            .collect();
        let mut problem = Problem::new(vec![[90, 90, 9]; 4], &items, &edges);
        problem.present = (0..8 * 4).map(|_| rng.below(2)).collect();
        problem.bars = (0..8 * 4).map(|_| f64::from(rng.below(2))).collect();
        problem.even = even;
        if distances {
            let far = |i: usize| (i % 4).abs_diff(i / 4) as f64 + (i % 4 * (i / 4)) as f64;
            problem.distance = (0..16)
                .map(|i| if i % 5 == 0 { 0.0 } else { far(i) })
                .collect();
        }
        problem
    }

    /// The predicted change of the cost by a move is equal to that of a complete recount.
    #[test]
    fn deltas_are_exact() {
        for seed in 0..40 {
            let mut rng = Rng::seed(seed);
            let problem = random(&mut rng, seed % 2 == 1, seed % 5 < 2);
            let units = (0..problem.units()).map(|_| rng.below(4)).collect();
            let mut state = State::new(&problem, units);
            for _ in 0..60 {
                let unit = rng.below(problem.units() as u32) as usize;
                let (a, b) = (state.node_of(unit), rng.below(4) as usize);
                if a == b {
                    continue;
                }
                let s = problem.unit_service[unit] as usize;
                let delta = state.delta(&problem, s, a, b);
                state.apply(&problem, unit, b, delta);
                let fresh = State::new(&problem, state.nodes().to_vec());
                assert!((fresh.cost() - state.cost()).abs() < 1e-9, "seed {seed}");
                assert!(
                    (fresh.overload() - state.overload()).abs() < 1e-9,
                    "seed {seed}"
                );
                state.recount(&problem);
            }
        }
    }

    /// The move that the refiner considers the cheapest has the cost that it predicts.
    #[test]
    fn gathered_gains_are_deltas() {
        for seed in 0..60 {
            let mut rng = Rng::seed(seed);
            let problem = random(&mut rng, seed % 3 == 0, seed % 5 == 0);
            let units = (0..problem.units()).map(|_| rng.below(4)).collect();
            let state = State::new(&problem, units);
            let mut refiner = Refiner::new(&problem);
            for s in 0..problem.services() {
                if let Some(best) = refiner.best_move(&state, s) {
                    let delta = state.delta(&problem, s, best.from, best.to);
                    assert!(
                        (delta - best.delta).abs() < 1e-9,
                        "seed {seed}: {best:?} {delta}"
                    );
                }
            }
        }
    }
}
