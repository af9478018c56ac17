//! `control-planes`: compares the controller with the control planes of other meshes. See `benches/README.md`.

use std::process::ExitCode;

use clap::Parser;
use maglor_benches::control_planes::{self, Options};

fn main() -> ExitCode {
    match control_planes::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
