//! `distribution`: measures how fast changes of a cluster reach its proxies. See
//! `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::distribution::{self, Options};

fn main() -> ExitCode {
    match distribution::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
