//! The `maglor-proxy` binary: arguments, configuration, exit code.

use std::process::ExitCode;

use clap::Parser as _;

mod args;

fn main() -> ExitCode {
    args::Args::parse().run()
}
