//! Refinement by the method of Fiduccia and Mattheyses (1982), k-way and localized: starting from one service at a
//! time, moves are made in the order of their gain, including bad ones, and rolled back to the best state (multi-try
//! FM: Sanders and Schulz, ESA 2011). No move exceeds a capacity.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use maglor_balance::Rng;

use super::budget::Budget;
use super::problem::Problem;
use super::state::State;

/// The number of moves without a gain after which a search ends; it is higher for a large service.
const PATIENCE: usize = 25;

/// A move of a unit, with the change of the cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) delta: f64,
}

/// An entry of the queue, ordered by cost and, among equal costs, at random.
#[derive(Clone, Copy, Debug)]
struct Queued {
    delta: f64,
    tie: u32,
    service: u32,
    version: u32,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = other.delta.total_cmp(&self.delta);
        order
            .then(self.tie.cmp(&other.tie))
            .then(self.service.cmp(&other.service))
    }
}

/// The working memory of searches, which is reused from one to the next.
pub(crate) struct Refiner<'a> {
    problem: &'a Problem,
    /// The change of the cost by one more unit on a node, or by one less, for the service that was evaluated last.
    enter: Vec<f64>,
    leave: Vec<f64>,
    seen: Vec<bool>,
    near: Vec<usize>,
    queue: BinaryHeap<Queued>,
    version: Vec<u32>,
    /// The round in which each service was last moved.
    moved: Vec<u32>,
    round: u32,
    log: Vec<(usize, usize)>,
    looked: usize,
}

impl<'a> Refiner<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            enter: vec![0.0; problem.nodes],
            leave: vec![0.0; problem.nodes],
            seen: vec![false; problem.nodes],
            near: Vec::new(),
            queue: BinaryHeap::new(),
            version: vec![0; problem.services()],
            moved: vec![0; problem.services()],
            round: 0,
            log: Vec::new(),
            looked: 0,
        }
    }

    /// Searches from every service until a round yields no gain.
    pub(crate) fn refine(&mut self, state: &mut State, rng: &mut Rng, budget: &mut Budget) {
        if self.problem.nodes < 2 {
            return;
        }
        let mut seeds = Vec::from_iter(0..self.problem.services());
        while !budget.is_spent() {
            let before = state.cost();
            self.round += 1;
            shuffle(&mut seeds, rng);
            for &seed in &seeds {
                if self.moved[seed] != self.round && self.is_boundary(state, seed) {
                    self.search(state, seed, rng);
                }
                if !budget.spend(std::mem::take(&mut self.looked) + 1) {
                    break;
                }
            }
            state.recount(self.problem);
            if state.cost() > before - 1e-9 * before.abs().max(1e-9) - before * 1e-4 {
                break;
            }
        }
    }

    /// Returns whether some of a service's traffic leaves a node.
    fn is_boundary(&mut self, state: &State, s: usize) -> bool {
        let problem = self.problem;
        self.looked += 1;
        let node = state.node_of(problem.first_unit[s] as usize);
        let share = state.share(s, node);
        let apart = |&(v, _): &(u32, f64)| (state.share(v as usize, node) - share).abs() > 1e-12;
        share < 1.0 || problem.neighbours(s).iter().any(apart)
    }

    /// Searches from one service.
    fn search(&mut self, state: &mut State, seed: usize, rng: &mut Rng) {
        self.queue.clear();
        self.log.clear();
        self.enqueue(state, seed, rng);
        let (start, mut best, mut best_length) = (state.cost(), state.cost(), 0);
        while let Some(next) = self.queue.pop() {
            let s = next.service as usize;
            if next.version != self.version[s] || self.moved[s] == self.round {
                continue;
            }
            let Some(m) = self.best_move(state, s) else {
                continue;
            };
            // The queued value may be outdated.
            if m.delta > next.delta + 1e-9 * m.delta.abs() + 1e-12 {
                self.push(s, m.delta, rng);
                continue;
            }
            let Some(unit) = state.unit_on(self.problem, s, m.from) else {
                continue;
            };
            state.apply(self.problem, unit, m.to, m.delta);
            self.moved[s] = self.round;
            self.log.push((unit, m.from));
            if state.cost() < best - 1e-9 * start.abs().max(1e-12) {
                (best, best_length) = (state.cost(), self.log.len());
            }
            if self.log.len() - best_length > PATIENCE {
                break;
            }
            for &(v, _) in self.problem.neighbours(s) {
                if self.moved[v as usize] != self.round {
                    self.enqueue(state, v as usize, rng);
                }
            }
        }
        self.roll_back(state, best_length, best);
    }

    fn roll_back(&mut self, state: &mut State, length: usize, cost: f64) {
        while self.log.len() > length {
            let Some((unit, from)) = self.log.pop() else {
                break;
            };
            let delta = if self.log.len() == length {
                cost - state.cost()
            } else {
                0.0
            };
            state.apply(self.problem, unit, from, delta);
        }
    }

    fn enqueue(&mut self, state: &State, s: usize, rng: &mut Rng) {
        if let Some(m) = self.best_move(state, s) {
            self.push(s, m.delta, rng);
        }
    }

    fn push(&mut self, s: usize, delta: f64, rng: &mut Rng) {
        self.version[s] = self.version[s].wrapping_add(1);
        self.queue.push(Queued {
            delta,
            tie: rng.next_u32(),
            service: s as u32,
            version: self.version[s],
        });
    }

    /// Returns the cheapest move of a unit of `s` to a node that has capacity and runs a neighbour of `s`; `None` if
    /// there is none.
    pub(crate) fn best_move(&mut self, state: &State, s: usize) -> Option<Move> {
        if !self.problem.is_uniform() {
            return self.best_move_by_distance(state, s);
        }
        self.gather(state, s);
        let problem = self.problem;
        let mut best: Option<Move> = None;
        for unit in problem.units_of(s) {
            let from = state.node_of(unit);
            for &to in &self.near {
                if to == from || !state.takes(problem, s, to) {
                    continue;
                }
                let traffic = self.leave[from] + self.enter[to];
                let delta = traffic + state.start_delta(problem, s, from, to);
                if best.is_none_or(|best| delta < best.delta) {
                    best = Some(Move { from, to, delta });
                }
            }
        }
        for node in self.near.drain(..) {
            self.seen[node] = false;
        }
        best
    }

    /// Fills `enter` and `leave` for all nodes that run `s` or a neighbour of `s`.
    fn gather(&mut self, state: &State, s: usize) {
        let problem = self.problem;
        let step = problem.step[s];
        let base = 0.5 * problem.weight[s] * step;
        for unit in problem.units_of(s) {
            self.change(state.node_of(unit), base);
        }
        let neighbours = problem.neighbours(s);
        self.looked += neighbours.len() + 4;
        for &(v, w) in neighbours {
            let v = v as usize;
            let units = problem.units_of(v);
            let single = units.len() == 1;
            for unit in units {
                let node = state.node_of(unit);
                self.change(node, base);
                let (p, q) = (state.share(s, node), state.share(v, node));
                // Each unit adds its share, so that a node counts once.
                let part = if single {
                    0.5 * w
                } else {
                    0.5 * w / f64::from(state.count(v, node))
                };
                self.enter[node] += part * ((p + step - q).abs() - (p - q).abs() - step);
                self.leave[node] += part * ((p - step - q).abs() - (p - q).abs() + step);
            }
        }
    }

    fn change(&mut self, node: usize, base: f64) {
        if !self.seen[node] {
            self.seen[node] = true;
            self.near.push(node);
            // Without a neighbour there, all of the unit's traffic comes from elsewhere.
            self.enter[node] = base;
            self.leave[node] = -base;
        }
    }

    fn best_move_by_distance(&mut self, state: &State, s: usize) -> Option<Move> {
        let problem = self.problem;
        let mut best: Option<Move> = None;
        self.looked += problem.neighbours(s).len() * problem.nodes;
        let mut last = usize::MAX;
        for unit in problem.units_of(s) {
            let from = state.node_of(unit);
            if from == std::mem::replace(&mut last, from) {
                continue;
            }
            for to in (0..problem.nodes).filter(|&to| to != from) {
                if !state.takes(problem, s, to) {
                    continue;
                }
                let delta = state.delta(problem, s, from, to);
                if best.is_none_or(|best| delta < best.delta) {
                    best = Some(Move { from, to, delta });
                }
            }
        }
        best
    }
}

/// Shuffles items with the algorithm of Fisher and Yates.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for end in (1..items.len()).rev() {
        let other = rng.below(end as u32 + 1) as usize;
        items.swap(end, other);
    }
}
