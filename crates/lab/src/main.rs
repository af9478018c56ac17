//! The `maglor-lab` command line: models, simulations and figures of balancing policies, and load. One module per command.
//!
//! Operators need none of them; what they use is in `maglor`.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use maglor_telemetry::command_line::{arguments, output};

mod commands;

const EXAMPLES: &str = "\
Examples:
  maglor-lab sim --balancers 1,20,200 -o table
  maglor-lab model --balancers 1,20,200 -o table
  maglor-lab figures --out figures --quick
  maglor-lab load http://127.0.0.1:8080/ --rate 500

`maglor-lab COMMAND --help` has options and examples. Background: docs/simulation.md,
docs/model.md, docs/load.md.";

/// Experiments with load balancing: models, simulations, figures, load.
#[derive(Debug, Parser)]
#[command(name = "maglor-lab", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Draw the figures of the documentation, from the models and the simulator.
    Figures(commands::figures::Options),
    /// Send requests to a URL, as users or at a fixed rate, and report latencies.
    Load(Box<commands::load::options::Options>),
    /// Compute the mean latency of least outstanding requests, by the paper's model and the corrected one.
    Model(commands::model::Options),
    /// Simulate balancers and servers under a policy, with the proxy's own balancing code.
    Sim(Box<commands::sim::options::Options>),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => output::exit_code(run(cli.command)),
        Err(error) => arguments::refuse_value(&error).unwrap_or_else(|| error.exit()),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Completions { shell } => completions(shell),
        Command::Figures(options) => commands::figures::run(&options),
        Command::Load(options) => commands::load::run(&options),
        Command::Model(options) => commands::model::run(&options),
        Command::Sim(options) => commands::sim::run(&options),
    }
}

fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "maglor-lab", &mut script);
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

    /// Arguments of the lines of a text that are commands of this program.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let text = text.replace("\\\n", " ");
        let lines = text.lines().map(str::trim);
        let words = |line: &str| {
            let mut words = Vec::new();
            // Every other piece is between two quotes.
            for (at, piece) in line.split('\'').enumerate() {
                match at % 2 {
                    0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                    _ => words.push(piece.to_owned()),
                }
            }
            let end = words.iter().position(|word| word.starts_with(['>', '|']));
            words.truncate(end.unwrap_or(words.len()));
            words
        };
        let lines = lines.filter(|line| line.starts_with("maglor-lab "));
        lines.map(words).collect()
    }

    #[test]
    fn every_example_in_the_help_is_valid() {
        let command = Cli::command();
        let texts = command.get_subcommands().chain([&command]);
        let texts = texts.filter_map(clap::Command::get_after_help);
        let texts = texts
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        let lines = command_lines(&texts);
        assert!(lines.len() > 15, "{}", lines.len());
        for line in lines {
            if let Err(error) = Cli::try_parse_from(&line) {
                panic!("{}: {error}", line.join(" "));
            }
        }
    }
}
