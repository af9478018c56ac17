//! The command line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::crd;

const EXAMPLES: &str = "\
Examples:
  Tell Kubernetes about the mesh's own resources:
    maglor-controller crds | kubectl apply -f -";

/// The control plane of Maglor.
#[derive(Debug, Parser)]
#[command(name = "maglor-controller", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the definitions of the mesh's own resources as YAML.
    Crds,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Crds => crds(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("maglor-controller: {message}");
            ExitCode::FAILURE
        }
    }
}

fn crds() -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for (_, text) in crd::yaml().map_err(|error| error.to_string())? {
        write!(out, "---\n{text}").map_err(|error| format!("cannot write: {error}"))?;
    }
    Ok(())
}
