//! `place`: measures the effect of the placement of replicas on an application whose nodes are
//! apart. See `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::place::{self, Options};

fn main() -> ExitCode {
    match place::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
