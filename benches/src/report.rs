//! The report of a comparison: `raw.csv`, written as results arrive, `README.md`, `summary.md`, and
//! a printed table.

mod bars;
mod cpu_limit;
mod findings;
mod folder;
mod head_to_head;
mod headline;
mod machine;
mod summary;
mod table;
mod waiting;

pub(crate) use findings::Findings;
pub(crate) use folder::Folder;
pub(crate) use head_to_head::head_to_head;
pub(crate) use machine::Machine;
pub(crate) use summary::command_line;
pub(crate) use summary::{Summary, print, readme, summary};
pub(crate) use table::{Table, interval, number};
