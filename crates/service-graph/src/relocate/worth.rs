//! Decides whether a plan is worth its moves, and returns the reason.

use std::fmt;

use super::{Params, View};
use crate::partition::{Options, Plan, rated};
use crate::placement_constraints::Bars;

/// The reason for moving replicas, or for not moving any.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A plan is worth its moves, but is only reported, not carried out.
    Advised,
    /// No placement fits.
    Infeasible(String),
    /// The moved services are being compared with their measurements before.
    Judging,
    /// Moves are in progress.
    Moving,
    /// There are no calls.
    NoCalls,
    /// There is no capacity for new replicas in addition to the replicas that they replace.
    NoRoom,
    /// There is a better placement, but it saves too little.
    NotWorth {
        /// The share of the traffic that leaves its node now that the better placement would save, 0–1.
        won: f64,
        /// The share that it would have to save, 0–1.
        needed: f64,
    },
    /// No better placement was found.
    Settled,
    /// Services that are worse than before move back.
    Undoing,
    /// A plan is worth its moves, but has not been so for enough rounds yet.
    Waiting {
        /// The number of consecutive rounds in which the plan has been worth its moves.
        seen: u32,
        /// The required number of consecutive rounds.
        needed: u32,
    },
}

impl Reason {
    /// Returns the reason as one word, for a status condition.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Advised => "Recommended",
            Self::Infeasible(_) => "Infeasible",
            Self::Judging => "Judging",
            Self::Moving => "Moving",
            Self::NoCalls => "NoCalls",
            Self::NoRoom => "NoRoom",
            Self::NotWorth { .. } => "NotWorthIt",
            Self::Settled => "Settled",
            Self::Undoing => "RollingBack",
            Self::Waiting { .. } => "Waiting",
        }
    }

    /// Returns whether there is nothing left to do.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::NoCalls | Self::NotWorth { .. } | Self::Settled)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advised => f.write_str("a plan is worth it; set `mode: Apply` to carry it out"),
            Self::Infeasible(why) => f.write_str(why),
            Self::Judging => f.write_str("evaluating the last moves"),
            Self::Moving => f.write_str("pods are moved"),
            Self::NoCalls => f.write_str("no calls between these services are known"),
            Self::NoRoom => f.write_str(
                "the nodes have no capacity for new pods in addition to those that they replace",
            ),
            Self::NotWorth { won, needed } => write!(
                f,
                "a plan would save {:.0} % of the traffic across nodes, less than the required {:.0} %",
                won * 100.0,
                needed * 100.0
            ),
            Self::Settled => f.write_str("no better placement was found"),
            Self::Undoing => f.write_str("reverting moves that made services worse"),
            Self::Waiting { seen, needed } => write!(
                f,
                "a plan is worth it, in {seen} of {needed} required consecutive rounds"
            ),
        }
    }
}

/// Returns the options of the search.
pub(super) fn options(params: &Params, bars: Bars) -> Options {
    Options {
        // The cost of one move, spread over the time for which the plan is expected to be valid.
        move_cost: move_cost(params),
        bars,
        ..params.options.clone()
    }
}

fn move_cost(params: &Params) -> f64 {
    params.move_cost.as_secs_f64() / params.horizon.as_secs_f64().max(1.0)
}

/// Returns whether a plan is worth its moves, with the reason.
pub(super) fn of(params: &Params, view: &View<'_>, plan: &Plan) -> (bool, Reason) {
    if plan.moves == 0 {
        let calls = view.graph.rps() > 0.0;
        return (
            false,
            if calls {
                Reason::Settled
            } else {
                Reason::NoCalls
            },
        );
    }
    if plan.mends {
        return (true, Reason::Moving);
    }
    let (problem, present) = rated(view.graph, view.nodes, view.present, &params.options);
    let here = present.cost();
    let won = here - plan.cost;
    let all = problem.traffic();
    // The mean traffic of a replica, as counted by a plan.
    let mean = 2.0 * all / view.graph.replicas().max(1) as f64;
    let moves = move_cost(params) * mean * plan.moves as f64;
    let needed = (params.margin * here)
        .max(params.floor * all)
        .max((1.0 + params.margin) * moves);
    if won > needed && won > 0.0 {
        return (true, Reason::Moving);
    }
    let part = |cost: f64| if here > 0.0 { cost / here } else { 0.0 };
    let (won, needed) = (part(won), part(needed));
    (false, Reason::NotWorth { won, needed })
}
