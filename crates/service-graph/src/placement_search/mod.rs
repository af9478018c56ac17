//! The solver: selects the search methods by the size of the problem, and divides the budget among them.
//!
//! Small problems are annealed, and then the result is proved by branch and bound. Medium problems are annealed several
//! times. Large problems are coarsened over several levels, the coarse problem is placed, and the placement is refined
//! on the way back. Several such placements are combined with each other, as in evolutionary partitioning (Sanders and
//! Schulz, ALENEX 2012): services that all parents keep together are merged, so the child begins as the better parent
//! and differs only where the parents do.

mod anneal;
mod bound;
mod budget;
mod coarsen;
mod exact;
mod pack;
mod problem;
mod refine;
mod state;

use maglor_balance::Rng;

use anneal::{Heat, anneal};
pub(crate) use bound::stars;
use budget::Budget;
use coarsen::{Level, Limits};
pub(crate) use pack::fits;
pub(crate) use problem::{Demand, Item, Problem};
use refine::Refiner;
pub(crate) use state::State;

/// The number of services above which a problem is coarsened.
const COARSE: usize = 250;

/// The number of placements that are made before any are combined.
const POPULATION: usize = 8;

/// The number of steps above which a new population is better than a longer search with the first one, which has
/// converged by then.
const TRY: u64 = 800_000_000;

/// The result of the solver.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The best placement found, which may not fit.
    pub(crate) state: State,
    /// A lower bound of the cost of any placement.
    pub(crate) bound: f64,
    /// Whether it is proved that no placement is cheaper, or that none fits.
    pub(crate) proved: bool,
}

/// Searches for the cheapest placement that fits. `effort` scales the duration of the search.
pub(crate) fn solve(problem: &Problem, start: Option<State>, seed: u64, effort: f64) -> Solution {
    let mut rng = Rng::seed(seed);
    let mut budget = Budget::new(steps(problem, effort));
    let mut best = start.unwrap_or_else(|| pack::greedy(problem, &mut rng));
    let attempts = (budget.left() / TRY).clamp(1, 4);
    for left in (1..=attempts).rev() {
        let mut part = budget.take(budget.left() / left);
        let found = evolve(problem, best.clone(), &mut rng, &mut part);
        keep(&mut best, found);
    }
    let mut proved = false;
    if !best.is_feasible() {
        (best, proved) = fit(problem, best, &mut rng, effort);
    }
    if best.is_feasible() && exact::is_small(problem) {
        let slack = 1e-9 * best.cost().max(1e-9);
        let proof = exact::search(
            problem,
            Some(&best),
            slack,
            &mut proof_budget(problem, effort),
        );
        proved = proof.complete;
        if let Some(counts) = proof.better {
            best = State::from_counts(problem, &counts);
        }
    }
    let bound = if proved {
        best.cost()
    } else {
        stars(problem).min(best.cost())
    };
    Solution {
        state: best,
        bound,
        proved,
    }
}

/// Returns the number of steps of a search. They take about 10 ms for a dozen services, 0.3 s for up to a hundred, and
/// then a time in proportion to the number of units, up to 20 s.
fn steps(problem: &Problem, effort: f64) -> u64 {
    let units = problem.units() as f64;
    let steps = if problem.services() <= 12 {
        // More nodes are more combinations; three are the most that branch and bound finishes at
        // once.
        60e3 * units.min(40.0) * (problem.nodes as f64 / 3.0).clamp(1.0, 4.0)
    } else {
        // Few nodes with many units are quick to search, and have more potential for improvement.
        let more = ((units - 1800.0) / 1800.0).clamp(0.0, 1.0);
        let more = if problem.nodes <= 100 { more } else { 0.0 };
        ((1.0 + 0.5 * more) * 170e3 * units).clamp(45e6, 3e9)
    };
    (effort * steps).max(1_000.0) as u64
}

/// Returns the budget of a proof: sufficient for any enumerable problem, and for larger ones as much as that of the
/// search.
fn proof_budget(problem: &Problem, effort: f64) -> Budget {
    let leaves = (problem.nodes as f64).powi(problem.units().min(64) as i32);
    if leaves <= 1e6 {
        return Budget::new(u64::MAX);
    }
    Budget::new(steps(problem, effort) / 4)
}

/// Makes several placements and combines them while there are steps left.
fn evolve(problem: &Problem, start: State, rng: &mut Rng, budget: &mut Budget) -> State {
    let all = budget.left();
    let ideal = |state: &State| state.is_feasible() && state.cost() <= 0.0;
    if problem.nodes < 2 || ideal(&start) {
        return start;
    }
    let mut population = vec![start];
    while population.len() <= POPULATION && budget.left() > all / 2 {
        let mut plan = Plan::fresh(problem, all);
        let fresh = plan.cycle(problem, &[], rng, budget);
        population.push(plan.combine(problem, &[&fresh], rng, budget));
    }
    while !budget.is_spent() && !population.iter().any(ideal) {
        let many = population.len() as u32;
        // Where hardly anything fits, no path leads from one good placement to another.
        if !is_large(problem) && rng.below(10) < 3 {
            let fresh = Plan::fresh(problem, all).cycle(problem, &[], rng, budget);
            keep(&mut population[rng.below(many) as usize], fresh);
            continue;
        }
        let mut pick = || rng.below(many) as usize;
        let (mut better, mut other) = (pick(), pick());
        if population[other].beats(&population[better]) {
            std::mem::swap(&mut better, &mut other);
        }
        let both = [&population[better], &population[other]];
        let parents = if better == other { &both[..1] } else { &both };
        let child = Plan::fresh(problem, all).combine(problem, parents, rng, budget);
        // It resembles the better parent; replacing the other one would soon make all alike.
        keep(&mut population[better], child);
    }
    let best = population
        .into_iter()
        .reduce(|a, b| if b.beats(&a) { b } else { a });
    best.unwrap_or_else(|| pack::greedy(problem, rng))
}

fn keep(best: &mut State, found: State) {
    if found.beats(best) {
        *best = found;
    }
}

/// Returns whether a problem is large enough to be coarsened.
fn is_large(problem: &Problem) -> bool {
    problem.services() > COARSE
}

/// The parameters of one cycle of coarsening and refinement.
struct Plan {
    /// The number of services at which the problem is coarse enough.
    target: usize,
    /// The initial temperature of annealing if there is already a placement.
    heat: Heat,
    /// The number of steps of all annealing together.
    steps: u64,
}

impl Plan {
    fn fresh(problem: &Problem, all: u64) -> Self {
        // Shorter ones leave large problems time to be combined more often.
        let parts = match problem.services() {
            many if many > 10_000 => 120,
            _ if is_large(problem) => 80,
            _ => 30,
        };
        let steps = all / parts;
        Self {
            target: COARSE.max(12 * problem.nodes),
            heat: Heat::WARM,
            steps,
        }
    }

    /// Makes another placement from its parents, with random coarseness and temperature.
    fn combine(
        &mut self,
        problem: &Problem,
        parents: &[&State],
        rng: &mut Rng,
        budget: &mut Budget,
    ) -> State {
        let least = (3 * problem.nodes).min(self.target);
        let range = (self.target as f64 / least as f64).ln();
        self.target = (least as f64 * (rng.unit() * range).exp()) as usize;
        let (coldest, range) = if is_large(problem) {
            (0.1, 20_f64)
        } else {
            (0.06, 8.0)
        };
        self.heat = Heat(coldest * range.powf(rng.unit()));
        self.cycle(problem, parents, rng, budget)
    }

    /// Coarsens the problem, places the coarse problem or improves its placement, and refines it on the way back.
    fn cycle(
        &self,
        problem: &Problem,
        placed: &[&State],
        rng: &mut Rng,
        budget: &mut Budget,
    ) -> State {
        let limits = Limits {
            share: 1.5 / self.target as f64,
        };
        // The cost of sorting edges and copying placements, in evaluations of a neighbour.
        budget.spend(problem.adjacent.len() * 10 + problem.services() * (10 + 3 * problem.nodes));
        let level = (problem.services() > self.target)
            .then(|| Level::coarsen(problem, placed, limits, rng))
            .flatten();
        let mut state = if let Some(level) = level {
            let projected: Vec<State> = placed.iter().map(|p| level.project(problem, p)).collect();
            let projected: Vec<&State> = projected.iter().collect();
            let coarse = self.cycle(&level.problem, &projected, rng, budget);
            let state = level.refine(problem, &coarse);
            self.anneal(problem, &state, self.heat, rng, budget)
        } else if let Some(parent) = placed.first() {
            self.anneal(problem, parent, self.heat, rng, budget)
        } else {
            let from = pack::greedy(problem, rng);
            self.anneal(problem, &from, Heat::ANEW, rng, budget)
        };
        Refiner::new(problem).refine(&mut state, rng, budget);
        match placed.first() {
            Some(parent) if !state.beats(parent) => (*parent).clone(),
            _ => state,
        }
    }

    /// Anneals a placement if the problem is small enough, or the placement does not fit yet.
    fn anneal(
        &self,
        problem: &Problem,
        state: &State,
        heat: Heat,
        rng: &mut Rng,
        budget: &mut Budget,
    ) -> State {
        let small = problem.services() <= 2 * COARSE.max(12 * problem.nodes);
        if !small && state.is_feasible() {
            return state.clone();
        }
        let mut part = budget.take(self.steps / 3);
        let annealed = anneal(problem, state, heat, rng, &mut part);
        budget.release(&part);
        annealed
    }
}

/// Continues the search if no placement that fits was found, and searches for a proof that none exists.
fn fit(problem: &Problem, mut best: State, rng: &mut Rng, effort: f64) -> (State, bool) {
    let all = (steps(problem, effort)).max(20_000_000);
    for _ in 0..4 {
        let from = pack::greedy(problem, rng);
        let found = anneal(problem, &from, Heat::ANEW, rng, &mut Budget::new(all / 4));
        keep(&mut best, found);
        if best.is_feasible() {
            return (best, false);
        }
    }
    match pack::pack(problem, &mut Budget::new(all * 4)) {
        pack::Packing::Found(counts) => {
            let start = State::from_counts(problem, &counts);
            let found = anneal(problem, &start, Heat::WARM, rng, &mut Budget::new(all / 4));
            (found, false)
        }
        pack::Packing::Impossible => (best, true),
        pack::Packing::Unknown => (best, false),
    }
}
