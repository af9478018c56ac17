//! `maglor-controller`: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    maglor_controller::args::main()
}
