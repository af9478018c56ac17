//! Parameters of a relocation.

use std::time::Duration;

use super::Guard;
use crate::partition::Options;

/// How eager a relocation is.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// How plans are made; `move_cost` and `bars` are set from what follows.
    pub options: Options,
    /// What the cost has to fall by, relative to what it is now; 0–1.
    pub margin: f64,
    /// And relative to all traffic, so that a small rest is not chased; 0–1.
    pub floor: f64,
    /// m: for how many rounds in a row that has to hold; 1 or more.
    pub rounds: u32,
    /// For how long a plan is expected to be good.
    pub horizon: Duration,
    /// What a move costs: a replica's mean traffic for this long.
    pub move_cost: Duration,
    /// B: moves that are begun a round, at most; 1 or more.
    pub moves: usize,
    /// For how long a service that was moved is not changed.
    pub cool_down: Duration,
    /// What is compared before and after.
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
