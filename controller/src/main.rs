//! `maglor-controller`: runs the control plane and returns its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    maglor_controller::args::main()
}
