//! `maglor plan`: computes improvements of a mesh, and changes nothing.
//!
//! [`placement`] and [`proxy_service`] read only files, [`tuning`] reads observations of a mesh, and [`moves`] its
//! current state.

mod moves;
mod placement;
mod proxy_service;
mod tuning;

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    planner: Planner,
}

#[derive(Debug, clap::Subcommand)]
enum Planner {
    /// Show which replicas to move to another node, and the expected gain; simulate node failures.
    ///
    /// Reads the communication graph, the capacity of nodes and the current placement from the controller or a file,
    /// and computes the moves that pay off. Changes nothing.
    Moves(Box<moves::Options>),
    /// Place services on nodes so that little traffic crosses nodes, and print JSON.
    Placement(Box<placement::Options>),
    /// Decide whether a Proxy-Service pays off, and print its resources.
    ProxyService(Box<proxy_service::Options>),
    /// Recommend resources, replicas, limits and timeouts from observations.
    ///
    /// Covers CPU and memory requests, replicas, limits, timeouts, retries and circuit breakers, each with its
    /// reason. Uses Algorithm 2 of the paper in docs/placement.md. Changes nothing.
    Tuning(Box<tuning::Options>),
}

/// Runs a planner.
pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.planner {
        Planner::Moves(options) => moves::run(options),
        Planner::Placement(options) => placement::run(options),
        Planner::ProxyService(options) => proxy_service::run(options),
        Planner::Tuning(options) => tuning::run(options),
    }
}
