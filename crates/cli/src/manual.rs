//! `maglor manual`: writes man pages and completion scripts, for packages.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use maglor_telemetry::command_line::manual::{Section, write};

/// Writes the files of this program and of the controller. The controller is linked into this program and needs no
/// separate command.
pub(crate) fn run(maglor: Command, folder: &Path) -> ExitCode {
    let controller = maglor_controller::args::command();
    for (command, section) in [
        (maglor, Section::UserCommands),
        (controller, Section::Daemons),
    ] {
        if let Err(error) = write(command, section, folder) {
            eprintln!("{}: {error}", folder.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
