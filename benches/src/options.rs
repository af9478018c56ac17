//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::forward;
use crate::linkerd;
use crate::load;
use crate::origin;
use crate::peer::Subject;
use crate::scenario::{HEADLINE, LATENCY, Protocol, Scenario};

/// Compare proxies: the same work, one processor, in alternating rounds.
#[derive(Debug, Parser)]
#[command(name = "compare", args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Set when the binary calls itself.
    #[command(subcommand)]
    pub role: Option<Role>,
    /// The options for users.
    #[command(flatten)]
    pub options: Options,
}

/// Roles of the processes that the harness starts.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Forwards bytes.
    #[command(hide = true)]
    Forward(forward::Options),
    /// Holds idle connections.
    #[command(hide = true)]
    Hold(load::Target),
    /// Answers linkerd2-proxy as Linkerd's control plane does.
    #[command(hide = true)]
    LinkerdControl(linkerd::Options),
    /// Generates load.
    #[command(hide = true)]
    Load(load::Options),
    /// Answers requests.
    #[command(hide = true)]
    Origin(origin::Options),
}

/// The measurements, and their repetitions.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rounds of load; each measures every proxy once [default: 5, head-to-head: 9, quick: 2].
    #[arg(long)]
    pub rounds: Option<u32>,
    /// A few cells and short windows: for development, not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Compare pairs: the client's proxy uses mutual TLS 1.3 to the server's proxy.
    /// CPU time and memory are the sum of both.
    #[arg(long)]
    pub pair: bool,
    /// Compare single proxies and pairs at 64 connections and at 1000 requests a second, and write one table of CPU
    /// time, added latency and memory that begins with whatever is worse than a peer. About 18 minutes, with --quick 3.
    #[arg(long, conflicts_with_all = ["pair", "filter", "parts"])]
    pub head_to_head: bool,
    /// Proxies to compare. `bare` forwards bytes without reading them: the lower bound of the cost of a proxy
    /// [default: maglor,haproxy,nginx,envoy; with --head-to-head without nginx].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Subject>,
    /// maglor-proxy binary to measure [default: it is built].
    #[arg(long)]
    pub maglor: Option<PathBuf>,
    /// Another maglor-proxy binary, such as that of an earlier commit, to compare in the same rounds.
    #[arg(long, value_name = "PATH")]
    pub earlier: Option<PathBuf>,
    /// linkerd2-proxy binary to compare in the same rounds, with a stand-in for Linkerd's control plane. All proxies
    /// then run in a network namespace, behind the same redirection, which needs root, ip and nft; without them,
    /// linkerd2-proxy is left out.
    #[arg(long, value_name = "PATH")]
    pub linkerd: Option<PathBuf>,
    /// Directory for the results [default: results/DATE[-LABEL] in this crate].
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Suffix of the default directory.
    #[arg(long)]
    pub label: Option<String>,
    /// Only cells whose name contains this, such as `h1-64B-64c` or `open`.
    #[arg(long, default_value = "")]
    pub filter: String,
    /// Parts to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Startup, Part::Memory, Part::Load])]
    pub parts: Vec<Part>,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Requests a second with half and with a tenth of a processor, as one instance of the Proxy-Service in the paper on
    /// LOR has. Needs root. Not part of the default.
    CpuLimit,
    /// Proportional set size and anonymous memory: idle, at 1000 requests a second, at 64 connections, 10 s later.
    Footprint,
    /// Processor time, throughput and latency.
    Load,
    /// Resident memory: idle, with idle connections, after a burst.
    Memory,
    /// Time to ready.
    Startup,
    /// Processor time and memory of 10 to 9700 requests in flight, each of which waits a second for its answer. Not
    /// part of the default.
    Waiting,
}

impl Options {
    /// Returns the proxies to compare, apart from those that are passed as a path.
    pub fn subjects(&self) -> Vec<Subject> {
        match (&*self.only, self.head_to_head) {
            ([], false) => Subject::PROXIES.to_vec(),
            ([], true) => vec![Subject::Maglor, Subject::Haproxy, Subject::Envoy],
            (only, _) => only.to_vec(),
        }
    }

    /// Returns the number of rounds of load.
    pub fn rounds(&self) -> u32 {
        let usual = match (self.quick, self.head_to_head) {
            (true, _) => 2,
            (false, true) => 9,
            (false, false) => 5,
        };
        self.rounds.unwrap_or(usual).max(1)
    }

    /// Returns the number of rounds of the memory part, which is far less noisy.
    pub fn memory_rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds().min(3) }
    }

    /// Returns the number of starts of each proxy in the start-up part.
    pub fn starts(&self) -> u32 {
        if self.quick { 5 } else { 20 }
    }

    /// Returns the cells to run.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let cells = if self.head_to_head {
            vec![HEADLINE, LATENCY]
        } else if self.quick {
            Scenario::quick()
        } else {
            Scenario::all()
        };
        cells
            .into_iter()
            .filter(|cell| cell.to_string().contains(&self.filter))
            // Applications use HTTP/1.1 to their sidecars.
            .filter(|cell| !self.pair || cell.protocol == Protocol::H1)
            .collect()
    }

    /// Returns the cells of requests in flight to run; with `--quick` without the largest.
    pub fn waiting(&self) -> Vec<Scenario> {
        let mut cells = Scenario::waiting();
        cells.truncate(if self.quick { 3 } else { cells.len() });
        cells.retain(|cell| cell.to_string().contains(&self.filter));
        cells
    }

    /// Returns the duration of load before the measurement window, and of the window.
    pub fn window(&self, cell: &Scenario) -> (Duration, Duration) {
        use crate::scenario::Loop::{Closed, Open, Waiting};
        let millis = match (self.quick, cell.mode) {
            (true, Closed) => (200, 600),
            (true, Open) => (200, 1000),
            (true, Waiting) => (1500, 2000),
            (false, Waiting) => (2000, 6000),
            (false, Closed) if *cell == HEADLINE => (500, 3000),
            (false, Closed) => (300, 1000),
            (false, Open) => (200, 1800),
        };
        (
            Duration::from_millis(millis.0),
            Duration::from_millis(millis.1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_filters() {
        let cli = Cli::try_parse_from(["compare", "--only", "haproxy,nginx"]).unwrap();
        assert_eq!(cli.options.subjects(), [Subject::Haproxy, Subject::Nginx]);
        assert_eq!(cli.options.rounds(), 5);
        assert_eq!(cli.options.scenarios().len(), 24);
        let cli = Cli::try_parse_from(["compare", "--quick", "--filter", "h2c"]).unwrap();
        assert_eq!(cli.options.scenarios().len(), 1);
        assert!(Cli::try_parse_from(["compare", "--only", "direct"]).is_err());
    }

    #[test]
    fn a_head_to_head_has_two_cells_and_no_parts() {
        let cli = Cli::try_parse_from(["compare", "--head-to-head"]).unwrap();
        assert_eq!(cli.options.scenarios(), [HEADLINE, LATENCY]);
        assert!(!cli.options.subjects().contains(&Subject::Nginx));
        for other in ["--pair", "--parts=load", "--filter=open"] {
            assert!(Cli::try_parse_from(["compare", "--head-to-head", other]).is_err());
        }
    }

    #[test]
    fn roles_are_subcommands() {
        let line = "compare load --target 127.0.0.1:1 --protocol h2c --body 64 --connections 2 \
                    --warmup-ms 1 --measure-ms 2 --watch 3,4";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Some(Role::Load(load)) = cli.role else {
            unreachable!("{cli:?}")
        };
        assert_eq!(load.watch, [3, 4]);
    }
}
