//! Formatting of errors that prevent a start; `--check` and the start itself report them in the same form.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use maglor_proxy::RunError;

/// Formats an error with its place in the configuration file and a hint to fix it.
pub(super) fn format(error: &RunError, file: Option<&Path>) -> String {
    let help = help(error);
    match (error, file) {
        // Configuration errors already name their places.
        (RunError::Config(errors), _) => errors.to_string(),
        (error, Some(file)) => maglor_config::blame(file, &error.to_string(), help).to_string(),
        (error, None) => {
            let help = help.map(|help| format!("\n  = help: {help}"));
            format!("maglor-proxy: error: {error}{}", help.unwrap_or_default())
        }
    }
}

/// Returns the underlying operating system error, if there is one.
fn of_system<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn help(error: &RunError) -> Option<String> {
    let text = match of_system(error)?.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there, which `ss -ltnp` shows; to check a file for a running proxy, use `--check --reload`"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has the address: `ip address` lists them"
        }
        io::ErrorKind::PermissionDenied if is_port(error) => {
            "ports below 1024 need root, or the capability CAP_NET_BIND_SERVICE"
        }
        io::ErrorKind::PermissionDenied => {
            "the user of the proxy has no permission to open it: check the owner and mode of the file and its directories"
        }
        io::ErrorKind::NotFound => return Some(not_found(std::env::current_dir())),
        io::ErrorKind::IsADirectory => "it is a folder: name a file in it",
        _ => return None,
    };
    Some(text.to_owned())
}

fn is_port(error: &RunError) -> bool {
    error.to_string().contains("cannot bind")
}

fn not_found(folder: io::Result<PathBuf>) -> String {
    let folder = folder.map_or_else(
        |_| "the working directory".to_owned(),
        |folder| folder.display().to_string(),
    );
    format!("names of files are relative to the folder in which the proxy is started, {folder}")
}
