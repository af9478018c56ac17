//! `maglor demo` and `cargo xtask demo`: the mesh, or how one proxy balances, under real requests on this machine.
//!
//! `mesh` is an application of several services with a sidecar beside each replica, `balancing`
//! one proxy before servers of different speeds. They share `client`, how a request is sent,
//! `latencies`, what is made of the times, and `stop`, how a demo is ended early.

mod balancing;
mod client;
mod latencies;
mod mesh;
mod stop;

use std::process::ExitCode;

use maglor_balance::Rng;

/// Run a mesh on this machine and show what it does: real proxies, real requests, faults.
///
/// Starts an application of four services in several replicas (Bookinfo: productpage calls
/// details and reviews, reviews calls ratings), a maglor-proxy beside each replica, with mutual
/// TLS between them, and users; all on the loopback interface, without privileges. In four
/// stages all is well, then one replica is slow and fails, then one is killed and started again,
/// then strangers try to get in. Numbers are shown as it runs and summed up at the end. Fails
/// if a request fails while all is well, or if somebody gets in who should not.
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
    /// Show how one proxy balances, under one policy after the other.
    ///
    /// Starts a few small HTTP servers, one of them at half the speed of the others, and the real
    /// proxy in front of them, all in this process and on the loopback interface. Then sends it the
    /// same requests under one policy after the other, shows what happens, and sums up. Fails if any
    /// request fails.
    Balancing(balancing::Options),
}

/// Runs what was asked for; what it takes for success, each demo says itself.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    match &options.other {
        Some(Other::Balancing(options)) => balancing::run(options),
        None => mesh::run(&options.mesh),
    }
}

/// An exponentially distributed number with mean 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.unit()).ln()
}
