//! `maglor demo` and `cargo xtask demo`: a mesh, or the balancing of one proxy, with real requests
//! on this machine.
//!
//! `mesh` is an application of several services with a sidecar beside each replica, `balancing` one
//! proxy before servers of different speeds. They share `client`, which sends requests,
//! `latencies`, their statistics, and `stop`, the early termination of a demo.

mod balancing;
mod client;
mod latencies;
mod mesh;
mod stop;

use std::process::ExitCode;

use maglor_balance::Rng;

/// Run a mesh on this machine, with load and injected faults.
///
/// Starts an application of four services in several replicas (Bookinfo: productpage calls
/// details and reviews, reviews calls ratings), a maglor-proxy beside each replica, with mutual
/// TLS between them, and users; all on the loopback interface, without privileges. There are four stages: healthy;
/// one replica slow and failing; one replica killed and restarted; intrusion attempts. Statistics are shown during
/// each stage and summarized at the end. Fails if a request fails while all replicas are healthy, or if an intrusion
/// succeeds.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = mesh::EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    other: Option<Other>,

    #[command(flatten)]
    mesh: mesh::Options,
}

#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Compare the policies of one proxy.
    ///
    /// Starts a few small HTTP servers, one of them at half the speed of the others, and the real
    /// proxy in front of them, all in this process and on the loopback interface. Then sends it the same requests
    /// under one policy after another, and summarizes the results. Fails if any request fails.
    Balancing(balancing::Options),
}

/// Runs the selected demo.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    match &options.other {
        Some(Other::Balancing(options)) => balancing::run(options),
        None => mesh::run(&options.mesh),
    }
}

/// Draws an exponentially distributed number with mean 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.unit()).ln()
}
