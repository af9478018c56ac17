//! Simulated annealing with moves and swaps of units (Kirkpatrick et al., 1983), and of groups of units that belong
//! together ([`groups`]). Intermediate states may overload nodes, at a price that grows relative to the temperature. At
//! 90 % utilisation, most paths between good placements lead through placements that do not fit.

mod groups;

use maglor_balance::Rng;

use super::budget::Budget;
use super::problem::Problem;
use super::state::State;

/// The initial temperature of an annealing, relative to the mean change of a move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heat(pub(crate) f64);

impl Heat {
    /// A temperature at which nothing of the initial placement remains.
    pub(crate) const ANEW: Self = Self(0.5);
    /// A temperature at which most of the initial placement remains.
    pub(crate) const WARM: Self = Self(0.15);
}

/// The final temperature, relative to the mean change of a move.
const COLD: f64 = 0.01;

/// The minimum initial price of an overload by the mean unit, in temperatures; the maximum is this multiple of the
/// minimum. Each walk draws its own price: if the nodes are nearly full, low prices end in placements that do not fit;
/// otherwise, high prices close most paths.
const PRICE: f64 = 5.0;
const PRICE_RANGE: f64 = 100.0;

/// The factor by which the price grows during an annealing.
const PRICE_RISE: f64 = 8.0;

/// Improves a placement. Returns the best placement found; those that fit are preferred.
pub(crate) fn anneal(
    problem: &Problem,
    from: &State,
    heat: Heat,
    rng: &mut Rng,
    budget: &mut Budget,
) -> State {
    if problem.nodes < 2 || problem.units() == 0 {
        return from.clone();
    }
    let mut walk = Walk::new(problem, from, heat, rng);
    let all = budget.left().max(1) as f64;
    let mut round = 0_u32;
    while !budget.is_spent() {
        if round.is_multiple_of(64) {
            walk.cool(1.0 - budget.left() as f64 / all);
        }
        round = round.wrapping_add(1);
        let steps = walk.step(rng);
        budget.spend(steps);
    }
    walk.finish()
}

/// The maximum number, out of eight proposals, that move groups; half of the others are swaps. Each walk draws its own
/// number.
const GROUPS: u32 = 4;

/// A walk through placements at a falling temperature.
struct Walk<'a> {
    problem: &'a Problem,
    state: State,
    /// The units on each node, and the index of each unit in its node's list.
    on_node: Vec<Vec<u32>>,
    place: Vec<u32>,
    best: Vec<u32>,
    best_key: (f64, f64),
    /// Whether the present state is the best one, and has not been copied yet.
    at_best: bool,
    heat: f64,
    scale: f64,
    temperature: f64,
    mean_need: f64,
    price: f64,
    /// The initial price of an overload, in temperatures.
    first_price: f64,
    groups: u32,
    /// The proposal being evaluated.
    proposal: groups::Proposal,
}

impl<'a> Walk<'a> {
    fn new(problem: &'a Problem, from: &State, heat: Heat, rng: &mut Rng) -> Self {
        let mut on_node = vec![Vec::new(); problem.nodes];
        let mut place = vec![0; problem.units()];
        for (unit, place) in place.iter_mut().enumerate() {
            let list: &mut Vec<u32> = &mut on_node[from.node_of(unit)];
            *place = list.len() as u32;
            list.push(unit as u32);
        }
        let total = problem.total();
        let need: f64 = (0..3).map(|d| total[d] as f64 * problem.scale[d]).sum();
        let mut walk = Self {
            problem,
            state: from.clone(),
            on_node,
            place,
            best: from.nodes().to_vec(),
            best_key: (from.overload(), from.cost()),
            at_best: false,
            heat: heat.0,
            scale: 0.0,
            temperature: 0.0,
            mean_need: (need / problem.units() as f64).max(1e-9),
            price: 0.0,
            first_price: PRICE * PRICE_RANGE.powf(rng.unit()),
            groups: rng.below(GROUPS + 1),
            proposal: groups::Proposal::default(),
        };
        walk.scale = walk.mean_change(rng);
        walk
    }

    /// Returns the mean absolute change of a random move.
    fn mean_change(&self, rng: &mut Rng) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for _ in 0..200 {
            let unit = rng.below(self.problem.units() as u32) as usize;
            let s = self.problem.unit_service[unit] as usize;
            let (a, b) = (self.state.node_of(unit), self.random_node(rng));
            let delta = if a == b {
                0.0
            } else {
                self.state.delta(self.problem, s, a, b).abs()
            };
            if delta > 0.0 {
                sum += delta;
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 1.0 }
    }

    fn random_node(&self, rng: &mut Rng) -> usize {
        rng.below(self.problem.nodes as u32) as usize
    }

    /// Sets the temperature and the price for this progress of the annealing, 0 to 1.
    fn cool(&mut self, part: f64) {
        let falling = (COLD / self.heat).powf(part);
        self.temperature = self.scale * self.heat * falling;
        let rising = PRICE_RISE.powf(part);
        self.price = self.first_price * self.scale * self.heat.max(0.3) / self.mean_need * rising;
    }

    /// Proposes one change; returns the number of steps spent.
    fn step(&mut self, rng: &mut Rng) -> usize {
        let problem = self.problem;
        let unit = rng.below(problem.units() as u32) as usize;
        let s = problem.unit_service[unit] as usize;
        let a = self.state.node_of(unit);
        let b = self.target(s, rng);
        if a == b {
            return 2;
        }
        match rng.below(8) {
            kind if kind < self.groups => self.group(s, (a, b), rng),
            kind if kind % 2 == 0 && !self.on_node[b].is_empty() => self.swap(unit, b, rng),
            _ => self.single(unit, b, rng),
        }
    }

    /// Proposes to move one unit to another node; returns the number of steps spent.
    fn single(&mut self, unit: usize, b: usize, rng: &mut Rng) -> usize {
        let problem = self.problem;
        let s = problem.unit_service[unit] as usize;
        let a = self.state.node_of(unit);
        if !self.state.allows(problem, s, b) {
            return 2;
        }
        let delta = self.state.delta(problem, s, a, b);
        let burden = self.price * self.state.overload_delta(problem, s, a, b);
        if self.accepts(delta + burden, rng) {
            self.leave_best(delta, burden);
            self.put(unit, b, delta);
            self.note();
        }
        problem.neighbours(s).len() + 4
    }

    /// Draws a target node: usually a node of a neighbour, sometimes any node.
    fn target(&self, s: usize, rng: &mut Rng) -> usize {
        let neighbours = self.problem.neighbours(s);
        if neighbours.is_empty() || rng.below(8) < 3 {
            return self.random_node(rng);
        }
        let (v, _) = neighbours[rng.below(neighbours.len() as u32) as usize];
        let units = self.problem.units_of(v as usize);
        let unit = units.start + rng.below(units.len() as u32) as usize;
        self.state.node_of(unit)
    }

    /// Decides on a change by the Metropolis criterion.
    fn accepts(&self, change: f64, rng: &mut Rng) -> bool {
        change <= 0.0 || change < -self.temperature * (1.0 - rng.unit()).ln()
    }

    /// Copies the best state before it is changed to a worse one.
    fn leave_best(&mut self, delta: f64, burden: f64) {
        if self.at_best && (delta > 0.0 || burden > 0.0) {
            self.best.copy_from_slice(self.state.nodes());
            self.at_best = false;
        }
    }

    /// Records the present state if it is the best so far.
    fn note(&mut self) {
        let key = (self.state.overload(), self.state.cost());
        let slack = 1e-9 * self.scale;
        if self.at_best || (key.0, key.1 + slack) < self.best_key {
            self.at_best = true;
            self.best_key = key;
        }
    }

    fn put(&mut self, unit: usize, b: usize, delta: f64) {
        let a = self.state.node_of(unit);
        self.state.apply(self.problem, unit, b, delta);
        let at = self.place[unit] as usize;
        self.on_node[a].swap_remove(at);
        if let Some(&moved) = self.on_node[a].get(at) {
            self.place[moved as usize] = at as u32;
        }
        self.place[unit] = self.on_node[b].len() as u32;
        self.on_node[b].push(unit as u32);
    }

    fn finish(self) -> State {
        if self.at_best {
            return State::new(self.problem, self.state.nodes().to_vec());
        }
        State::new(self.problem, self.best)
    }
}
