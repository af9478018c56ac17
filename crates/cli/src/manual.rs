//! `maglor manual`: writes man pages and completion scripts, for packages.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;

/// Writes those of this program, and of the controller, which is linked here and needs no subcommand for it.
pub(crate) fn run(maglor: Command, folder: &Path) -> ExitCode {
    for command in [maglor, maglor_controller::args::command()] {
        if let Err(error) = maglor_manual::write(command, folder) {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
