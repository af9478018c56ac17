//! `users`: puts users on Bookinfo, behind plain Kubernetes and in meshes. See `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::users::{self, Options};

fn main() -> ExitCode {
    match users::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
