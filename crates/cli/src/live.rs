//! Commands that query the admin ports of a running mesh's controller and proxies.
//!
//! [`access`] locates and queries admin ports, in a cluster or at given addresses; [`listing`] has options of two
//! commands; [`table`] prints results. Each of the other modules is a command.

pub(crate) mod access;
mod csv;
pub(crate) mod dashboard;
pub(crate) mod endpoints;
mod error;
mod listing;
pub(crate) mod receipts;
pub(crate) mod routes;
mod served;
pub(crate) mod stat;
pub(crate) mod table;
pub(crate) mod tap;
pub(crate) mod top;
mod traffic;
pub(crate) mod why;

use std::future::Future;
use std::process::ExitCode;

pub(crate) use self::error::LiveError;

/// Runs a command. An error is printed as one line on standard error, and the exit code is 1.
pub(crate) fn run(command: impl Future<Output = Result<(), LiveError>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LiveError::Runtime);
    match runtime.and_then(|runtime| runtime.block_on(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("maglor: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
