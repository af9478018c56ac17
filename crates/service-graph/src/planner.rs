//! The planning loop around [`partition`]: evaluates the live graph in rounds. Moves are proposed, a few at a time,
//! only if they have been worth their cost for several rounds.

use std::num::{NonZeroU32, NonZeroU64};

use crate::graph::Graph;
use crate::node::Nodes;
use crate::partition::{Options, Outcome, PartitionError, Plan, partition};
use crate::placement::Placement;

/// The conditions for carrying out a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannerParams {
    /// The minimum reduction of the cut, relative to the present cut. Default 0.2.
    pub margin: f64,
    /// The minimum reduction of the cut relative to all calls, so that a small cut causes no moves. Default 0.01.
    pub floor: f64,
    /// The number of consecutive rounds in which both conditions must hold. Default 2.
    pub rounds: NonZeroU32,
    /// The maximum number of moves per round; further moves follow in the next rounds. `None` = no limit, the default.
    pub max_moves: Option<NonZeroU64>,
    /// The options of the search.
    pub options: Options,
}

impl Default for PlannerParams {
    fn default() -> Self {
        Self {
            margin: 0.2,
            floor: 0.01,
            rounds: NonZeroU32::MIN.saturating_add(1),
            max_moves: None,
            options: Options::default(),
        }
    }
}

/// The result of a round of the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Round {
    /// The placement is kept.
    Keep {
        /// The share of all calls that a plan would keep local; negative if the best plan found is worse than the
        /// present placement.
        gain: f64,
    },
    /// The present placement no longer fits, or is incomplete: a plan regardless of its cost.
    Mend(Plan),
    /// A plan that is worth its moves.
    Move(Plan),
}

/// The state of the loop.
#[derive(Clone, Debug)]
pub struct Planner {
    params: PlannerParams,
    worth: u32,
}

impl Planner {
    /// Creates the state before the first round.
    #[must_use]
    pub fn new(params: PlannerParams) -> Self {
        Self { params, worth: 0 }
    }

    /// Evaluates the present graph and placement. `None` if no placement fits.
    ///
    /// # Errors
    /// As those of [`partition`].
    pub fn round(
        &mut self,
        graph: &Graph,
        nodes: &Nodes,
        present: &Placement,
    ) -> Result<Option<Round>, PartitionError> {
        let Some(plan) = self.plan(graph, nodes, present)? else {
            return Ok(None);
        };
        if !present.is_feasible(graph, nodes) {
            self.worth = 0;
            return Ok(Some(Round::Mend(plan)));
        }
        let (before, all) = (present.cut(graph), graph.rps());
        let won = before - plan.cut;
        let worth =
            plan.moves > 0 && won > self.params.margin * before && won > self.params.floor * all;
        self.worth = if worth { self.worth + 1 } else { 0 };
        if self.worth < self.params.rounds.get() {
            let gain = if all > 0.0 { won / all } else { 0.0 };
            return Ok(Some(Round::Keep { gain }));
        }
        // While moves are pending, the next rounds continue without waiting again.
        let all_at_once = self
            .params
            .max_moves
            .is_none_or(|most| plan.moves < most.get());
        self.worth = if all_at_once {
            0
        } else {
            self.params.rounds.get() - 1
        };
        Ok(Some(Round::Move(plan)))
    }

    /// Returns the best plan with at most this number of moves; the cost of a move is raised until there are few
    /// enough.
    fn plan(
        &self,
        graph: &Graph,
        nodes: &Nodes,
        present: &Placement,
    ) -> Result<Option<Plan>, PartitionError> {
        const DOUBLINGS: u32 = 12;
        let mut options = self.params.options.clone();
        let most = self.params.max_moves.map_or(u64::MAX, NonZeroU64::get);
        let mut last = None;
        for _ in 0..=DOUBLINGS {
            let Outcome::Placed(plan) = partition(graph, nodes, Some(present), &options)? else {
                return Ok(None);
            };
            let few = plan.moves <= most;
            last = Some(plan);
            if few {
                break;
            }
            options.move_cost = (options.move_cost * 2.0).max(0.05);
        }
        Ok(last)
    }
}
