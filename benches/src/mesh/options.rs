//! The command line of `mesh`, and durations.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use maglor_testkit::app::{self, Shape};

use crate::forward;
use crate::linkerd;

const TIMES: &str = "\
Run time: about 2.5 hours, of which `balance` and `shop-published` take 45 minutes each and `hashing` 20; with --quick
about 10 minutes.
The summary lists the cases in which the processors were too busy or another program interfered.";

/// Repeat the papers' experiments on whole applications: emulated services behind real proxies.
#[derive(Debug, Clone, Parser)]
#[command(name = "mesh", after_help = TIMES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Internal: the roles in which the harness starts itself.
    #[command(subcommand)]
    pub role: Option<Role>,
    /// The experiment.
    #[command(flatten)]
    pub options: Options,
}

/// Other roles of the binary.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
    /// The emulated application.
    #[command(hide = true)]
    App(app::Options),
    /// The bare forwarder that a Proxy-Service is compared with.
    #[command(hide = true)]
    Forward(forward::Options),
    /// The control plane of linkerd2-proxy.
    #[command(hide = true)]
    LinkerdControl(linkerd::Options),
}

/// Options of `mesh`.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Fewer cases and shorter runs: for development, not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Experiments to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Experiment::ALL)]
    pub experiments: Vec<Experiment>,
    /// maglor-proxy binary to run [default: it is built].
    #[arg(long, value_name = "PATH")]
    pub maglor: Option<PathBuf>,
    /// Use mutual TLS between the sidecars of `counter`, with the best protocol that each has for it.
    #[arg(long)]
    pub mtls: bool,
    /// linkerd2-proxy binary for `counter`, with a stand-in for Linkerd's control plane. All processes then run in a
    /// network namespace, with sidecars behind redirections, which needs root, ip and nft; without them, linkerd2-proxy
    /// is left out.
    #[arg(long, value_name = "PATH")]
    pub linkerd: Option<PathBuf>,
    /// Lengths of the chain of `counter`, instead of all: 10,20,40,80.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200))]
    pub services: Vec<u32>,
    /// Users of `counter`, instead of all: 100,200,400,800.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub users: Vec<u32>,
    /// Requests of each user of `counter`, one after another; the paper has 3, 5 and 10 [default: 10, with --quick 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub requests: Option<u32>,
    /// Rounds of `counter`, `shop-published` and `hashing`: each measures all points once [default: 3, 5 and 5, with
    /// --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// Directory for the results [default: results/DATE-mesh in this crate].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Random seed of arrivals, service times and calls.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Mean service time in `balance` and `graphs`, ms; in `shop` and `shop-published`, all times are scaled by this over 20. The figures
    /// depend on the utilization of servers only, so use a longer time, and thus a lower rate, on a slow machine.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub service_ms: u32,
    /// Measured time of each run, in seconds [default: by experiment].
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// Distribution of the costs of calls in the authors' configuration in `shop-published`, as in `maglor-lab sim --service`:
    /// exp, deterministic, lognormal:CV or bimodal:SHARE:FACTOR. Only its means are published.
    #[arg(long, value_name = "DISTRIBUTION", default_value_t = Shape::Exponential)]
    pub costs: Shape,
    /// Policies of `balance`, `shop` and `shop-published`, separated by `;`, instead of all: random; lor(choices=2). In
    /// both shops Proxy-Service, in `shop` ring-hash, round-robin and ledger, too.
    #[arg(long, value_name = "POLICIES", value_delimiter = ';')]
    pub policies: Vec<String>,
    /// Servers of `balance`; the paper's Fig. 5 has 20.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub servers: u32,
    /// Outbound proxies of `balance`, instead of those of 1,2,5,10,20,40 that are not more than its servers.
    #[arg(long, value_name = "M", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200))]
    pub balancers: Vec<u32>,
}

/// The experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// FIFO servers, 40 by default, behind 1–40 proxies (Fig. 5 of the paper on LOR), compared with the simulator.
    Balance,
    /// The chain of counters, without sidecars, with Maglor's and with Envoy's (the paper on edge meshes), and with `--linkerd`.
    Counter,
    /// Hub-and-spoke and chain with 1–20 replicas (Fig. 7 of the paper on LOR), compared with the simulator.
    Graphs,
    /// The call graph of Sock Shop (Fig. 8 of the paper on LOR).
    Shop,
    /// Sock Shop with the authors' replicas, limits and costs, beside those of `shop` (Figs. 8b to 8d).
    ShopPublished,
    /// Maglev hashing beside other policies in one proxy: processor time, memory, keys (the paper on Maglev hashing).
    Hashing,
}

impl Experiment {
    /// In the order of execution.
    pub const ALL: [Self; 6] = [
        Self::Balance,
        Self::Graphs,
        Self::Shop,
        Self::ShopPublished,
        Self::Hashing,
        Self::Counter,
    ];
}

impl Options {
    /// Returns the duration of the measurements of a run.
    pub(super) fn measured(&self, quick: u64, whole: u64) -> Duration {
        let usual = if self.quick { quick } else { whole };
        Duration::from_secs(self.seconds.unwrap_or(usual).max(1))
    }

    /// Returns the number of rounds, of which an experiment usually has so many.
    pub(super) fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// Returns the mean service time.
    pub(super) fn service(&self) -> Duration {
        Duration::from_millis(self.service_ms.max(1).into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn defaults() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["mesh", "--quick"]).unwrap();
        assert_eq!(cli.options.experiments, Experiment::ALL);
        assert_eq!(cli.options.measured(5, 60), Duration::from_secs(5));
        let cli = Cli::try_parse_from(["mesh", "--policies", "random;lor(choices=2)"]).unwrap();
        assert_eq!(cli.options.policies, ["random", "lor(choices=2)"]);
        assert!(Cli::try_parse_from(["mesh", "--balancers", "0"]).is_err());
    }
}
