//! Proposals that move several units at once.
//!
//! Services with much traffic between them hold each other in place: to move their units one after the other, the
//! search would have to pass states in which they are separated, at a high cost. So a group moves as a whole: all units
//! of a service on a node, with those of neighbours, each with the probability that the temperature would not separate
//! them (as the clusters of Swendsen and Wang, 1987). If nodes are nearly full, another group has to move back.

use maglor_balance::Rng;

use super::Walk;

/// The maximum number of services that move together, in each direction.
const MOST_SERVICES: u32 = 8;

/// The maximum number of units of one service that move together.
const MOST_UNITS: usize = 16;

/// How strongly traffic binds services together while a group is chosen.
const TIE: f64 = 0.3;

/// The moves of a proposal, and their effect.
#[derive(Debug, Default)]
pub(super) struct Proposal {
    /// The units to move, each with its new node.
    moves: Vec<(u32, u32)>,
    /// The moved units, each with its former node and the change of the cost.
    done: Vec<(u32, u32, f64)>,
    /// The services of the group that is being chosen.
    group: Vec<u32>,
}

impl Walk<'_> {
    /// Proposes to swap a unit with a unit on node `b`; returns the number of steps spent.
    pub(super) fn swap(&mut self, unit: usize, b: usize, rng: &mut Rng) -> usize {
        let there = &self.on_node[b];
        let other = there[rng.below(there.len() as u32) as usize];
        let service = |unit: usize| self.problem.unit_service[unit];
        if service(unit) == service(other as usize) {
            return 2;
        }
        let a = self.state.node_of(unit);
        self.proposal.moves.clear();
        self.proposal.moves.push((unit as u32, b as u32));
        self.proposal.moves.push((other, a as u32));
        self.carry_out(rng)
    }

    /// Proposes to move a service with its group from node `a` to node `b`, and usually a group of node `b` back;
    /// returns the number of steps spent.
    pub(super) fn group(&mut self, s: usize, (a, b): (usize, usize), rng: &mut Rng) -> usize {
        self.proposal.moves.clear();
        let mut looked = self.choose(s, (a, b), rng);
        let there = &self.on_node[b];
        if !there.is_empty() && rng.below(4) > 0 {
            let other = there[rng.below(there.len() as u32) as usize] as usize;
            let t = self.problem.unit_service[other] as usize;
            if !self.proposal.group.contains(&(t as u32)) {
                looked += self.choose(t, (b, a), rng);
            }
        }
        looked + self.carry_out(rng)
    }

    /// Chooses a group around a service; returns the number of steps spent.
    fn choose(&mut self, s: usize, (a, b): (usize, usize), rng: &mut Rng) -> usize {
        let problem = self.problem;
        let mut proposal = std::mem::take(&mut self.proposal);
        let before = std::mem::take(&mut proposal.group);
        let most = 1 + rng.below(MOST_SERVICES) as usize;
        proposal.group.push(s as u32);
        let (mut at, mut looked) = (0, 0);
        while let Some(&v) = proposal.group.get(at) {
            at += 1;
            let units = problem.units_of(v as usize);
            looked += units.len();
            let here = units.filter(|&unit| self.state.node_of(unit) == a);
            let moves = here.map(|unit| (unit as u32, b as u32));
            proposal.moves.extend(moves.take(MOST_UNITS));
            for &(n, w) in problem.neighbours(v as usize) {
                if proposal.group.len() >= most {
                    break;
                }
                looked += 1;
                let known = proposal.group.contains(&n) || before.contains(&n);
                if self.state.count(n as usize, a) == 0 || known {
                    continue;
                }
                if rng.unit() < 1.0 - (-TIE * w / self.temperature).exp() {
                    proposal.group.push(n);
                }
            }
        }
        self.proposal = proposal;
        looked
    }

    /// Applies the moves, since each depends on the ones before, and reverts them if they are not accepted; returns the
    /// number of steps spent.
    fn carry_out(&mut self, rng: &mut Rng) -> usize {
        let problem = self.problem;
        let mut proposal = std::mem::take(&mut self.proposal);
        let before = self.state.overload();
        let (mut sum, mut looked, mut allowed) = (0.0, 0, true);
        proposal.done.clear();
        for &(unit, to) in &proposal.moves {
            let (unit, to) = (unit as usize, to as usize);
            let s = problem.unit_service[unit] as usize;
            let from = self.state.node_of(unit);
            looked += problem.neighbours(s).len() + 14;
            allowed = self.state.allows(problem, s, to);
            if !allowed {
                break;
            }
            let delta = self.state.delta(problem, s, from, to);
            self.state.apply(problem, unit, to, delta);
            proposal.done.push((unit as u32, from as u32, delta));
            sum += delta;
        }
        let burden = self.price * (self.state.overload() - before);
        let accepted = allowed && self.accepts(sum + burden, rng);
        for &(unit, from, delta) in proposal.done.iter().rev() {
            self.state
                .apply(problem, unit as usize, from as usize, -delta);
        }
        if accepted {
            self.leave_best(sum, burden);
            for (&(unit, to), &(_, _, delta)) in proposal.moves.iter().zip(&proposal.done) {
                self.put(unit as usize, to as usize, delta);
            }
            self.note();
        }
        self.proposal = proposal;
        looked
    }
}
