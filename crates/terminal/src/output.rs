//! Standard output: it may be closed by who reads it, or be a file on a disk that is full.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether required output could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Whether the reader is gone, or nothing more can be written.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Prints.
///
/// A reader that has gone (`maglor schema | head`) is no error. Any other failure is said once, and makes the exit
/// code ([`exit_code`]) one of failure.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else {
        return;
    };
    // Relaxed: nothing else is read by these.
    ENDED.store(true, Ordering::Relaxed);
    if error.kind() != io::ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        eprintln!("maglor: standard output: {error}");
    }
}

/// Whether it is invalid to print more.
#[must_use]
pub fn has_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// The exit code of a command, given that all it has printed must have been written.
#[must_use]
pub fn exit_code(code: ExitCode) -> ExitCode {
    match FAILED.load(Ordering::Relaxed) {
        true => ExitCode::FAILURE,
        false => code,
    }
}
