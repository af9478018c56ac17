//! `resilience`: measures the effect of failures, overload and restarts on clients of a proxy. See
//! `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::resilience::{self, Options};

fn main() -> ExitCode {
    match resilience::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
