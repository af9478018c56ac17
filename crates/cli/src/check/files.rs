//! Validates configuration files, like `maglor-proxy --check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maglor_telemetry::command_line::output;

use crate::input::read_text;

/// Validates files and prints errors. As with the proxy, the exit code is 2 if any file is invalid. `-` is standard
/// input.
pub(super) fn run(files: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let loaded = match file == Path::new("-") {
            false => maglor_config::load(file),
            true => match read_text(file) {
                Ok(text) => maglor_config::parse(&text, "-"),
                Err(error) => {
                    eprintln!("-: error: cannot read standard input: {error}");
                    code = ExitCode::from(2);
                    continue;
                }
            },
        };
        match loaded {
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
