//! `mesh`: measures whole applications behind real proxies. See `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::mesh::{self, Cli};

fn main() -> ExitCode {
    match mesh::run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
