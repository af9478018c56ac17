//! `hostile`: runs the hostile suite with other proxies. See `docs/hostile.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::hostile::{self, Options};

fn main() -> ExitCode {
    match hostile::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
