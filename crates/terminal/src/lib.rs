//! Terminal output of the command line programs.

pub mod output;
