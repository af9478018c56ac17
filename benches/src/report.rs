//! What is written down: `raw.csv` as it comes, `README.md`, `summary.md`, a printed table.

mod bars;
mod headline;
mod machine;
mod summary;
mod table;

pub use machine::Machine;
pub use summary::{Summary, print, readme, summary};
