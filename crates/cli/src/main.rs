//! The `maglor` command line. One module per command.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use maglor_terminal::output;

mod advice;
mod advise;
mod analyze;
mod check;
mod figures;
mod graph;
mod health;
mod identity;
mod inject;
mod input;
mod install;
mod live;
mod manual;
mod model;
mod partition;
mod plan;
mod proxy_service;
mod sim;
mod uninject;

const EXAMPLES: &str = "\
Examples:
  Run a mesh on this machine, with mutual TLS and injected faults:
    maglor demo
  Compare least outstanding requests with random and round-robin:
    maglor demo balancing
  The same for 60 seconds, with eight servers and another policy:
    maglor demo balancing --for 60 --servers 8 --policy 'peak-ewma'
  Predicted latency with 1, 20 and 200 balancers:
    maglor model --balancers 1,20,200 --format table
  Draw the figures in less than a minute:
    maglor figures --out figures --quick
  Validate a configuration:
    maglor check maglor.yaml
  Diagnose the mesh of a cluster, watch its traffic, and show failed requests:
    maglor check
    maglor top services
    maglor tap deploy/web --status 5xx
  Show which services call which, with rates and latencies:
    maglor graph
  Find unsupported fields in Istio resources:
    maglor analyze istio/*.yaml
  Simulate a policy with 20 independent balancers:
    maglor sim --balancers 20 --policy 'bounce(tries=3)'
  Create a certificate authority, and issue a certificate for a proxy:
    maglor identity ca --trust-domain mesh.example --out ca
    maglor identity issue --ca ca --namespace shop --service-account cart --out cart
  Add sidecars to the pods of a manifest:
    maglor inject -f deployment.yaml | kubectl apply -f -
  Install the mesh in the cluster of the current kubeconfig:
    maglor install | kubectl apply --server-side -f -
  Place services on nodes so that few calls cross nodes:
    maglor partition --graph graph.yaml --nodes nodes.yaml
  Recommend CPU, memory, replicas, limits and timeouts from observations:
    maglor advise --observed day.yaml
  Decide whether a Proxy-Service pays off, and its size:
    maglor proxy-service plan --balancers 20 --servers 40 --rho 0.75 --service-ms 20
  Complete and validate configuration files in an editor:
    maglor schema > maglor.schema.json
  Complete this command in the shell:
    maglor completions bash > /etc/bash_completion.d/maglor

The proxy itself is a separate program, maglor-proxy.";

/// Maglor, a service mesh and reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "maglor", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Recommend resources, replicas, limits and timeouts from observations.
    /// Covers CPU and memory requests, replicas, limits, timeouts, retries and circuit breakers, each with its
    /// reason. Uses Algorithm 2 of the paper in docs/placement.md. Changes nothing.
    Advise(Box<advise::Options>),
    /// Report unsupported or conflicting fields in manifests before you apply them.
    ///
    /// Reads YAML or JSON files with HTTPRoutes, GRPCRoutes, the mesh's own kinds, and Istio's
    /// DestinationRule, VirtualService, PeerAuthentication and AuthorizationPolicy. Prints one line for each problem:
    /// file, line, resource, field and reason. A reference to an object that is in none of the files, such as a
    /// Service, is a warning. The exit code is 1 if a resource would not be accepted.
    Analyze(analyze::Options),
    /// Validate proxy configuration files, or diagnose the mesh of a cluster.
    /// With files, reports all errors at once. Without files, checks the API server, the CRDs, the controller, the
    /// webhook, identities, proxies, and pods without a sidecar, and suggests a fix for each problem.
    Check(Box<check::Options>),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    Demo(maglor_demo::Options),
    /// Show the endpoints of a service, as configured by the controller or as seen by a proxy.
    Endpoints(Box<live::endpoints::Options>),
    /// Draw the figures of the documentation, from the models and the simulator.
    Figures(figures::Options),
    /// Show the communication graph: which services call which, with rates and latencies.
    /// Reads the graph from the controller, or from Prometheus metrics of Maglor, Istio or Linkerd. Prints tables,
    /// pictures, or the input of `maglor partition`.
    Graph(Box<graph::Options>),
    /// Create a certificate authority, and issue certificates to files.
    Identity(identity::Options),
    /// Add sidecars to pod manifests, as the webhook does.
    Inject(inject::Options),
    /// Print the installation manifests.
    Install(install::Options),
    /// Write the man pages and completion scripts of maglor and maglor-controller.
    #[command(hide = true)]
    Manual {
        /// Folder in place of /usr/share.
        folder: PathBuf,
    },
    /// Compute the mean latency of least outstanding requests, by the paper's model and the corrected one.
    Model(model::Options),
    /// Place services on nodes so that little traffic crosses nodes, and print JSON.
    Partition(Box<partition::Options>),
    /// Show which replicas to move to another node, and the expected gain; simulate node failures.
    /// Reads the communication graph, the capacity of nodes and the current placement from the controller or a file,
    /// and computes the moves that pay off. Changes nothing.
    Plan(Box<plan::Options>),
    /// Decide whether a Proxy-Service pays off, and print its resources.
    ProxyService(proxy_service::Options),
    /// Show configuration changes, how fast proxies acknowledged them, and which proxies have not.
    Receipts(Box<live::receipts::Options>),
    /// Show routes, as configured by the controller or as in force in a proxy.
    Routes(Box<live::routes::Options>),
    /// Print the JSON Schema of the proxy's configuration file.
    Schema,
    /// Simulate balancers and servers under a policy, with the proxy's own balancing code, and print JSON.
    Sim(Box<sim::Options>),
    /// Show request statistics: success, rate, latencies, retries, ejections, mTLS.
    Stat(Box<live::stat::Options>),
    /// Stream finished requests from the access logs of proxies.
    Tap(Box<live::tap::Options>),
    /// Show request statistics continuously, busiest first.
    Top(Box<live::top::Options>),
    /// Restart workloads without sidecars, before uninstalling the mesh.
    Uninject(Box<uninject::Options>),
    /// Print the manifests to delete, in order.
    Uninstall(install::UninstallOptions),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return advice::refuse(&error),
    };
    output::exit_code(run(cli.command))
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Advise(options) => advise::run(&options),
        Command::Analyze(options) => analyze::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Completions { shell } => completions(shell),
        Command::Endpoints(options) => live::endpoints::run(&options),
        Command::Demo(options) => maglor_demo::run(&options),
        Command::Figures(options) => figures::run(&options),
        Command::Graph(options) => graph::run(&options),
        Command::Identity(options) => identity::run(&options),
        Command::Inject(options) => inject::run(&options),
        Command::Install(options) => install::run(&options),
        Command::Manual { folder } => manual::run(Cli::command(), &folder),
        Command::Model(options) => model::run(&options),
        Command::Partition(options) => partition::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::ProxyService(options) => proxy_service::run(&options),
        Command::Receipts(options) => live::receipts::run(&options),
        Command::Routes(options) => live::routes::run(&options),
        Command::Schema => {
            output::print(&format!("{:#}\n", maglor_config::schema()));
            ExitCode::SUCCESS
        }
        Command::Sim(options) => sim::run(&options),
        Command::Stat(options) => live::stat::run(&options),
        Command::Tap(options) => live::tap::run(&options),
        Command::Top(options) => live::top::run(&options),
        Command::Uninject(options) => uninject::run(&options),
        Command::Uninstall(options) => install::uninstall(&options),
    }
}

fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "maglor", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Command lines of a text, without prompts, comments, pipes and redirections, as words.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let text = text.replace("\\\n", " ");
        let lines = text.lines().map(str::trim);
        let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
        let lines = lines.filter(|line| line.starts_with("maglor "));
        let words = |line: &str| {
            let mut words = Vec::new();
            // Every other piece is between two quotes.
            for (at, piece) in line.split('\'').enumerate() {
                match at % 2 {
                    0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                    _ => words.push(piece.to_owned()),
                }
            }
            let ends = |word: &String| ["|", ">", "&"].contains(&&**word) || word.starts_with('#');
            let end = words.iter().position(ends).unwrap_or(words.len());
            words.truncate(end);
            words.retain(|word| word != "$PROXIES");
            words
        };
        lines.map(words).collect()
    }

    fn helps(command: &clap::Command, texts: &mut Vec<String>) {
        texts.extend(command.get_after_help().map(ToString::to_string));
        for inner in command.get_subcommands() {
            helps(inner, texts);
        }
    }

    #[test]
    fn every_command_line_that_is_shown_is_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts = Vec::new();
        helps(&Cli::command(), &mut texts);
        for entry in std::fs::read_dir(root.join("docs")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let blocks = text.split("```").skip(1).step_by(2);
            texts.extend(blocks.map(str::to_owned));
        }
        let lines: Vec<_> = texts.iter().flat_map(|text| command_lines(text)).collect();
        assert!(lines.len() > 80, "{}", lines.len());
        for line in lines {
            if let Err(error) = Cli::try_parse_from(&line) {
                panic!("{}: {error}", line.join(" "));
            }
        }
    }

    #[test]
    fn policies_are_checked_while_parsing() {
        let parse = |policy| Cli::try_parse_from(["maglor", "demo", "--policy", policy]);
        assert!(parse("maglev(table_size=65537)").is_ok());
        let error = parse("maglev(table_size=10)").expect_err("10 is not prime");
        assert!(error.to_string().contains("prime"), "{error}");
    }
}
