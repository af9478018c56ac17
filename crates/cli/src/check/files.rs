//! What `maglor-proxy --check` says, for any number of files.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::output;

/// Prints what is wrong; the exit code is the proxy's: 2 if any file was refused.
pub(super) fn run(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match maglor_config::load(file) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    eprintln!("{warning}");
                }
                output::print(&format!("{}: configuration is valid\n", file.display()));
            }
            Err(errors) => {
                eprintln!("{errors}");
                code = ExitCode::from(2);
            }
        }
    }
    code
}
