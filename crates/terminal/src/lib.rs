//! Arguments and terminal output of the command line programs.

pub mod arguments;
pub mod output;
