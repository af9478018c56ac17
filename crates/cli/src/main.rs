//! The `maglor` command line. One module a command.

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
mod identity;
mod inject;
mod input;
mod install;
mod live;
mod model;
mod partition;
mod plan;
mod proxy_service;
mod sim;
mod uninject;

const EXAMPLES: &str = "\
Examples:
  A mesh on this machine, with faults: four services, a proxy beside each replica, mutual TLS:
    maglor demo
  See least outstanding requests beside random and round-robin, with real requests:
    maglor demo balancing
  The same for 60 seconds with eight servers and another policy:
    maglor demo balancing --for 60 --servers 8 --policy 'peak-ewma'
  What theory says about 1, 20 and 200 balancers:
    maglor model --balancers 1,20,200 --format table
  The paper's figures and ours, in less than a minute:
    maglor figures --out figures --quick
  Look whether a configuration is right, before the proxy gets it:
    maglor check maglor.yaml
  Look what is wrong with the mesh of a cluster; what it does; which requests go by:
    maglor check
    maglor top services
    maglor tap deploy/web --status 5xx
  Who calls whom, how often and how fast:
    maglor graph
  What of Istio's resources would not be done:
    maglor analyze istio/*.yaml
  What 20 balancers that see only their own requests make of a policy:
    maglor sim --balancers 20 --policy 'bounce(tries=3)'
  An authority for mutual TLS, and a certificate of it for a proxy:
    maglor identity ca --trust-domain mesh.example --out ca
    maglor identity issue --ca ca --namespace shop --service-account cart --out cart
  The pods of a file with sidecars:
    maglor inject -f deployment.yaml | kubectl apply -f -
  The mesh into the cluster of the current kubeconfig:
    maglor install | kubectl apply --server-side -f -
  Where to run 2 replicas of web and 3 of cart, so that their calls stay on a node:
    maglor partition --graph graph.yaml --nodes nodes.yaml
  What CPU, memory, replicas, limits and timeouts to set, and why, from what was observed:
    maglor advise --observed day.yaml
  Would proxies in front of a service pay, and how many?
    maglor proxy-service plan --balancers 20 --servers 40 --rho 0.75 --service-ms 20
  Completion and checking of configuration files in an editor:
    maglor schema > maglor.schema.json
  Completion of this command:
    maglor completions bash > /etc/bash_completion.d/maglor

The proxy itself is the program maglor-proxy.";

/// Maglor: a small reverse proxy and sidecar that balances well.
#[derive(Debug, Parser)]
#[command(name = "maglor", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what to set for each service, from what was observed, with the reasons.
    ///
    /// Requests of CPU and memory, replicas, limits, timeouts, retries and breakers, by Algorithm 2 of
    /// the paper in docs/placement.md. It is called what it does: it changes nothing.
    Advise(Box<advise::Options>),
    /// Say what of Kubernetes resources the mesh would not do, before they are applied.
    ///
    /// Reads YAML or JSON files with HTTPRoutes, GRPCRoutes, the mesh's own kinds, and Istio's
    /// DestinationRule, VirtualService, PeerAuthentication and AuthorizationPolicy. Each problem is a
    /// line with file, line, resource, field and reason. What a resource names and no file has, such as
    /// a Service, is a warning. The exit code is 1 where a resource would not be in force.
    Analyze(analyze::Options),
    /// Check configuration files of the proxy, or without files the mesh of a cluster.
    ///
    /// Of files it says everything that is wrong with them. Of a cluster it looks at the API server, the
    /// mesh's resources, its controller, webhook, identities and proxies, and at pods without proxy; what
    /// is not well comes with what to do about it.
    Check(Box<check::Options>),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    Demo(maglor_demo::Options),
    /// Show who serves a service: as the controller says, or as a proxy sees it.
    Endpoints(Box<live::endpoints::Options>),
    /// Draw the figures of the paper and ours, from the models and the simulator.
    Figures(figures::Options),
    /// Show who calls whom, how often and how fast: the communication graph.
    ///
    /// Asks the controller, to which proxies report; or a Prometheus, also of Istio or Linkerd. As tables,
    /// pictures, or what `maglor partition` reads.
    Graph(Box<graph::Options>),
    /// Make an authority for mutual TLS, and certificates of it for proxies that read files.
    Identity(identity::Options),
    /// Give the pods in files sidecars, as the webhook does in a cluster, and print them.
    Inject(inject::Options),
    /// Print what makes a cluster have the mesh, for kubectl.
    Install(install::Options),
    /// Compute the mean latency of least outstanding requests, by the paper's model and by ours.
    Model(model::Options),
    /// Place services on nodes so that little traffic leaves a node, and print JSON.
    Partition(Box<partition::Options>),
    /// Show which replicas would run better on another node, and what that would win; what if a node fails?
    ///
    /// Takes the graph of the mesh, what nodes have, and where everything runs, from the controller or a
    /// file, and places everything anew as far as it pays. Nothing is changed.
    Plan(Box<plan::Options>),
    /// Say when proxies in front of a service pay, and what to apply.
    ProxyService(proxy_service::Options),
    /// Show what has changed for proxies: who has it, how long that took, who lacks it.
    Receipts(Box<live::receipts::Options>),
    /// Show where requests go: as the controller says, or as a proxy has it in force.
    Routes(Box<live::routes::Options>),
    /// Print the JSON Schema of the proxy's configuration file.
    Schema,
    /// Simulate balancers and servers under a policy, with the proxy's own code, and print JSON.
    Sim(Box<sim::Options>),
    /// Show how requests fare: success, rate, latencies, retries, ejections, mTLS.
    Stat(Box<live::stat::Options>),
    /// Show requests of proxies as they end.
    Tap(Box<live::tap::Options>),
    /// Show how requests fare, again and again, the busiest first.
    Top(Box<live::top::Options>),
    /// Take the mesh out of the pods of a cluster, before it is uninstalled.
    Uninject(Box<uninject::Options>),
    /// Print what makes a cluster have the mesh no more, for kubectl, in the order of its deletion.
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
