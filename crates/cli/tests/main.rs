//! The tests of the command line, in one program with a module for each file: a program for each would link the client
//! of Kubernetes and the controller sixteen times.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

mod alerts;
mod commands;
mod demo;
mod demo_help;
mod demo_page;
mod graph;
mod hostile;
mod identity;
mod install;
mod live;
mod mistakes;
mod plan_placement;
mod plan_proxy_service;
mod plan_tuning;
mod values;
mod why;

// With a real Kubernetes, as one test of `install`: `cargo xtask e2e`.
mod kubernetes;
mod permissions;
