//! `cargo xtask demo`: the demo without the rest of the command line, because it is built in a
//! third of the time.

use std::process::ExitCode;

use clap::Parser;
use maglor_telemetry::command_line::output;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask demo", bin_name = "cargo xtask demo")]
struct Cli {
    #[command(flatten)]
    options: maglor_cli::demo::Options,
}

fn main() -> ExitCode {
    output::exit_code(maglor_cli::demo::run(&Cli::parse().options))
}
