//! `compare`: measures Maglor and its peers, with one command. See `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::options::{Cli, Role};
use maglor_benches::{Result, compare, forward, linkerd, load, origin};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<bool> {
    match cli.role {
        None => compare::run(cli.options),
        Some(Role::Forward(options)) => forward::run(&options).map(|()| true),
        Some(Role::Hold(target)) => load::hold(&target).map(|()| true),
        Some(Role::LinkerdControl(options)) => linkerd::run(&options).map(|()| true),
        Some(Role::Load(options)) => load::run(&options).map(|()| true),
        Some(Role::Origin(options)) => origin::run(&options).map(|()| true),
    }
}
