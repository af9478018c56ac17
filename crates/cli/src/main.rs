//! The `maglor` command line. There is one module per command; [`help`] groups the commands, and [`moved`] reports
//! those that were renamed since the last release.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use maglor_telemetry::command_line::output;

mod advice;
mod analyze;
mod check;
mod graph;
mod health;
mod help;
mod identity;
mod inject;
mod input;
mod install;
mod live;
mod manual;
mod moved;
mod plan;

/// Maglor, a service mesh and reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "maglor", version, after_help = help::EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report unsupported or conflicting fields in manifests.
    ///
    /// Run this command before you apply manifests. Reads YAML or JSON files with HTTPRoutes, GRPCRoutes, the mesh's
    /// own kinds, and
    Analyze(analyze::Options),
    /// Validate configuration files, or diagnose the mesh of a cluster.
    ///
    /// With files, reports all errors at once. Without files, checks the API server, the CRDs, the controller, the
    /// webhook, identities, proxies, and pods without a sidecar, and suggests a fix for each problem.
    Check(Box<check::Options>),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Open the live web page of the mesh.
    ///
    /// Serves the controller's page on this machine, through a port-forward. The page has the graph, services with
    /// their endpoints, changes, decisions, and a day of history.
    Dashboard(Box<live::dashboard::Options>),
    Demo(maglor_cli::demo::Options),
    /// Show the endpoints of a service, their health and load.
    ///
    /// The endpoints are those that the controller has configured or, with `--of` or `--proxy`, those that a proxy
    /// uses.
    Endpoints(Box<live::endpoints::Options>),
    /// Show which services call which, with rates and latencies.
    ///
    /// Reads the communication graph from the controller, or from Prometheus metrics of Maglor, Istio or Linkerd.
    /// Prints tables, pictures, or the input of `maglor plan placement`.
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
        /// Folder to write to, instead of /usr/share.
        folder: PathBuf,
    },
    /// Compute moves, placements, tuning and Proxy-Services (read-only).
    Plan(plan::Options),
    /// Show configuration changes, and which proxies acknowledged them.
    ///
    /// Shows how long the proxies took to acknowledge a change, and which proxies have not acknowledged it.
    Receipts(Box<live::receipts::Options>),
    /// Show routes, as configured or as in force in a proxy.
    Routes(Box<live::routes::Options>),
    /// Print the JSON Schema of the proxy's configuration file.
    Schema,
    /// Show request statistics: success, rate, latencies, retries, mTLS.
    Stat(Box<live::stat::Options>),
    /// Stream finished requests from the access logs of proxies.
    Tap(Box<live::tap::Options>),
    /// Show request statistics continuously, busiest first.
    Top(Box<live::top::Options>),
    /// Print the manifests to delete, in order; or remove the sidecars.
    Uninstall(install::UninstallOptions),
    /// Explain a failed or slow request, or list those of the last minutes.
    ///
    /// Joins what the proxies on the request's way have kept: routes and rules, attempts with the queues that the
    /// policy saw, and where the time went. The first line is the cause.
    Why(Box<live::why::Options>),
}

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<_> = arguments
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(code) = moved::refuse(&arguments) {
        return code;
    }
    let matches = help::grouped(Cli::command()).try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    match cli {
        Ok(cli) => output::exit_code(run(cli.command)),
        Err(error) => advice::refuse(&error),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Analyze(options) => analyze::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Completions { shell } => completions(shell),
        Command::Dashboard(options) => live::dashboard::run(&options),
        Command::Endpoints(options) => live::endpoints::run(&options),
        Command::Demo(options) => maglor_cli::demo::run(&options),
        Command::Graph(options) => graph::run(&options),
        Command::Identity(options) => identity::run(&options),
        Command::Inject(options) => inject::run(&options),
        Command::Install(options) => install::run(&options),
        Command::Manual { folder } => manual::run(Cli::command(), &folder),
        Command::Plan(options) => plan::run(&options),
        Command::Receipts(options) => live::receipts::run(&options),
        Command::Routes(options) => live::routes::run(&options),
        Command::Schema => {
            output::print(&format!("{:#}\n", maglor_config::schema()));
            ExitCode::SUCCESS
        }
        Command::Stat(options) => live::stat::run(&options),
        Command::Tap(options) => live::tap::run(&options),
        Command::Top(options) => live::top::run(&options),
        Command::Uninstall(options) => install::uninstall(&options),
        Command::Why(options) => live::why::run(&options),
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

    /// Returns the command lines in a text as words, without prompts, comments, pipes and redirections.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let text = text.replace("\\\n", " ");
        let lines = text.lines().map(str::trim);
        let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
        let lines = lines.filter(|line| line.starts_with("maglor "));
        let words = |line: &str| {
            let mut words = Vec::new();
            // Every other piece is inside quotes.
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
