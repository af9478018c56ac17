//! The parameters of a relocation.

use std::time::Duration;

use super::Guard;
use crate::partition::Options;

/// The parameters of a relocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The options of the search, in which `move_cost` and `bars` are replaced by values derived from the following
    /// fields.
    pub options: Options,
    /// The minimum reduction of the cost, relative to the present cost, 0–1.
    pub margin: f64,
    /// The minimum reduction of the cost, relative to all traffic, so that a small remaining cut causes no moves; 0–1.
    pub floor: f64,
    /// m: the number of consecutive rounds in which a plan must be worth its moves; 1 or more.
    pub rounds: u32,
    /// The time for which a plan is expected to be valid.
    pub horizon: Duration,
    /// The cost of a move: a replica's mean traffic during this time.
    pub move_cost: Duration,
    /// B: the maximum number of moves that begin in a round; 1 or more.
    pub moves: usize,
    /// The time for which a moved service is not changed.
    pub cool_down: Duration,
    /// The parameters of the comparison before and after moves.
    pub guard: Guard,
}

impl Default for Params {
    /// # Defaults
    /// * `margin`: 0.2, `floor`: 0.01, `rounds`: 3
    /// * `horizon`: 1 h, `move_cost`: 15 min
    /// * `moves`: 1, `cool_down`: 10 min
    fn default() -> Self {
        Self {
            options: Options::default(),
            margin: 0.2,
            floor: 0.01,
            rounds: 3,
            horizon: Duration::from_secs(3600),
            move_cost: Duration::from_secs(900),
            moves: 1,
            cool_down: Duration::from_secs(600),
            guard: Guard::default(),
        }
    }
}
