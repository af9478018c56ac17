//! How our programs for people write to a terminal.

pub mod output;
