//! Coarsening: services with much traffic between them are merged, so that a search works on groups.
//!
//! Two services can be merged if the units of one can be distributed evenly among those of the other; a unit of the
//! merged service is a unit of the first with its part of the second. Then both have the same distribution, and none of
//! the traffic between them is cut. So the coarse problem is of the same kind, and each of its placements represents
//! one of the fine problem at the same cost.
//!
//! With even routing, traffic between services with equal distributions does leave nodes; such a problem is not
//! coarsened.

use maglor_balance::Rng;

use super::problem::{Demand, Item, Problem};
use super::refine::shuffle;
use super::state::State;

/// A coarser problem, and the coarse service that each fine service is part of.
pub(crate) struct Level {
    pub(crate) problem: Problem,
    group: Vec<u32>,
}

/// The limits of merging.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum need of a unit, relative to the total need, for each resource.
    pub(crate) share: f64,
}

impl Level {
    /// Merges pairs of services, and unmatched services with their best neighbour. If placements are given, only
    /// services with the same distribution in each of them are merged. `None` if hardly anything can be merged.
    pub(crate) fn coarsen(
        problem: &Problem,
        placed: &[&State],
        limits: Limits,
        rng: &mut Rng,
    ) -> Option<Self> {
        if problem.even {
            return None;
        }
        let mut matching = Matching::new(problem, placed, limits);
        let mut order = Vec::from_iter(0..problem.services());
        shuffle(&mut order, rng);
        for &s in &order {
            matching.join(s, false, rng);
        }
        for &s in &order {
            matching.join(s, true, rng);
        }
        let (group, items) = matching.groups();
        (items.len() * 20 < problem.services() * 19).then(|| Self::build(problem, group, &items))
    }

    fn build(problem: &Problem, group: Vec<u32>, items: &[Item]) -> Self {
        let mut edges = Vec::with_capacity(problem.adjacent.len() / 2);
        for s in 0..problem.services() {
            for &(v, w) in problem.neighbours(s) {
                let (a, b) = (group[s], group[v as usize]);
                if s < v as usize && a != b {
                    edges.push((a.min(b), a.max(b), w));
                }
            }
        }
        let mut coarse = Problem::new(problem.capacity.clone(), items, &edges);
        coarse.distance.clone_from(&problem.distance);
        if !problem.present.is_empty() {
            coarse.present = vec![0; items.len() * problem.nodes];
            for (s, &g) in group.iter().enumerate() {
                let each = problem.replicas[s] / items[g as usize].replicas;
                for node in 0..problem.nodes {
                    let present = problem.present[s * problem.nodes + node] / each;
                    coarse.present[g as usize * problem.nodes + node] = present;
                }
            }
        }
        if !problem.bars.is_empty() {
            coarse.bars = vec![0.0; items.len() * problem.nodes];
            for (s, &g) in group.iter().enumerate() {
                let each = problem.replicas[s] / items[g as usize].replicas;
                for node in 0..problem.nodes {
                    coarse.bars[g as usize * problem.nodes + node] +=
                        problem.bars[s * problem.nodes + node] * f64::from(each);
                }
            }
        }
        Self {
            problem: coarse,
            group,
        }
    }

    /// Returns the coarse placement that represents a fine one that was given to the coarsening.
    pub(crate) fn project(&self, fine: &Problem, state: &State) -> State {
        let nodes = fine.nodes;
        let mut counts = vec![0; self.problem.services() * nodes];
        for (s, &g) in self.group.iter().enumerate() {
            let each = fine.replicas[s] / self.problem.replicas[g as usize];
            for node in 0..nodes {
                counts[g as usize * nodes + node] = state.count(s, node) / each;
            }
        }
        State::from_counts(&self.problem, &counts)
    }

    /// Returns the fine placement that a coarse placement represents.
    pub(crate) fn refine(&self, fine: &Problem, state: &State) -> State {
        let nodes = fine.nodes;
        let mut counts = vec![0; fine.services() * nodes];
        for (s, &g) in self.group.iter().enumerate() {
            let each = fine.replicas[s] / self.problem.replicas[g as usize];
            for node in 0..nodes {
                counts[s * nodes + node] = state.count(g as usize, node) * each;
            }
        }
        State::from_counts(fine, &counts)
    }
}

/// The groups of services that are being formed.
struct Matching<'a> {
    problem: &'a Problem,
    placed: &'a [&'a State],
    /// The first service of each service's group.
    head: Vec<u32>,
    items: Vec<Item>,
    members: Vec<u32>,
    most: Demand,
}

impl<'a> Matching<'a> {
    fn new(problem: &'a Problem, placed: &'a [&'a State], limits: Limits) -> Self {
        let items = (0..problem.services()).map(|s| Item {
            replicas: problem.replicas[s],
            demand: problem.demand[s],
            limit: problem.limit[s],
            move_cost: problem.move_cost[s],
        });
        let total = problem.total();
        Self {
            problem,
            placed,
            head: (0..problem.services() as u32).collect(),
            items: items.collect(),
            members: vec![1; problem.services()],
            most: total.map(|total| (total as f64 * limits.share).ceil() as u64),
        }
    }

    /// Merges a single service with the neighbour of the highest rating (Holtgrewe, Sanders, Schulz, IPDPS 2010: weight
    /// squared over sizes). Unless `late` is set, the neighbour must be single, too.
    fn join(&mut self, s: usize, late: bool, rng: &mut Rng) {
        if self.head[s] as usize != s || self.members[s] > 1 {
            return;
        }
        let mut best: Option<(f64, u32, Item, usize)> = None;
        for &(v, w) in self.problem.neighbours(s) {
            let head = self.head[v as usize] as usize;
            if head == s || (self.members[head] > 1 && !late) {
                continue;
            }
            let Some(item) = self.together(s, head) else {
                continue;
            };
            let size = |s: usize| self.size(&self.items[s]);
            let rating = w * w / (size(s) * size(head));
            let tie = rng.next_u32();
            let better = best.is_none_or(|(most, with, ..)| (rating, tie) > (most, with));
            if better {
                best = Some((rating, tie, item, head));
            }
        }
        if let Some((_, _, item, head)) = best {
            self.head[s] = head as u32;
            self.items[head] = item;
            self.members[head] += 1;
        }
    }

    /// Returns the size of a group, summed over all resources.
    fn size(&self, item: &Item) -> f64 {
        let scale = &self.problem.scale;
        let need: f64 = (0..3).map(|d| item.demand[d] as f64 * scale[d]).sum();
        (need * f64::from(item.replicas)).max(1e-9)
    }

    /// Returns the service that results from merging two groups; `None` if they cannot be merged.
    fn together(&self, s: usize, t: usize) -> Option<Item> {
        let (a, b) = (&self.items[s], &self.items[t]);
        let units = a.replicas.min(b.replicas);
        if a.replicas.max(b.replicas) % units != 0 {
            return None;
        }
        let (x, y) = (a.replicas / units, b.replicas / units);
        let demand =
            std::array::from_fn(|d| a.demand[d] * u64::from(x) + b.demand[d] * u64::from(y));
        let limit = (a.limit / x).min(b.limit / y);
        let heavy = (0..3).any(|d| demand[d] > self.most[d] && demand[d] > 0);
        if limit == 0 || heavy || !self.is_alike(s, t) {
            return None;
        }
        let move_cost = a.move_cost * f64::from(x) + b.move_cost * f64::from(y);
        Some(Item {
            replicas: units,
            demand,
            limit,
            move_cost,
        })
    }

    /// Returns whether two services have the same distribution, both now and in the placement to respect.
    fn is_alike(&self, s: usize, t: usize) -> bool {
        let problem = self.problem;
        // The members of a group are distributed alike; but a group may have fewer units than its
        // first service.
        let units = self.items[s].replicas.min(self.items[t].replicas);
        let (each_s, each_t) = (problem.replicas[s] / units, problem.replicas[t] / units);
        // The same number of whole units.
        let alike = |a: u32, b: u32| {
            a.is_multiple_of(each_s) && b.is_multiple_of(each_t) && a / each_s == b / each_t
        };
        let present = |s: usize, node: usize| problem.present[s * problem.nodes + node];
        let stays = problem.present.is_empty()
            || (0..problem.nodes).all(|n| alike(present(s, n), present(t, n)));
        let placed = |state: &&State| {
            (0..problem.nodes).all(|n| alike(state.count(s, n), state.count(t, n)))
        };
        stays && self.placed.iter().all(placed)
    }

    fn groups(self) -> (Vec<u32>, Vec<Item>) {
        let mut number = vec![u32::MAX; self.head.len()];
        let mut items = Vec::new();
        for (s, &head) in self.head.iter().enumerate() {
            if head as usize == s {
                number[s] = items.len() as u32;
                items.push(self.items[s]);
            }
        }
        let group = self
            .head
            .iter()
            .map(|&head| number[head as usize])
            .collect();
        (group, items)
    }
}
