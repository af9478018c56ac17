//! The program of `cargo xtask cluster`.

use std::process::ExitCode;

use clap::Parser as _;
use maglor_testkit::cluster::command::{Arguments, run};

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
