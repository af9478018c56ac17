//! The tests of models, simulators and commands, in one program with a module for each file.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

mod auto;
mod autoscale;
mod brute_force;
mod charts;
mod closed_forms;
mod commands;
mod comparison;
mod determinism;
mod disturbed;
mod figures;
mod guards;
mod model;
mod model_and_simulation;
mod nodes;
mod reference;
mod robustness;
mod rule;
mod slow_start;
