//! Standard output, which may be closed by its reader, or be a file on a full disk.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether required output could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Whether the reader is gone, or nothing more can be written.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Prints a text.
///
/// A closed reader (`maglor schema | head`) is no error. Any other failure is reported once, and
/// the exit code ([`exit_code`]) becomes a failure.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else {
        return;
    };
    // Relaxed: no other data depend on these.
    ENDED.store(true, Ordering::Relaxed);
    if error.kind() != io::ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        eprintln!("maglor: standard output: {error}");
    }
}

/// Returns whether further output is useless.
#[must_use]
pub fn has_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// Returns the exit code of a command, a failure if required output was lost.
#[must_use]
pub fn exit_code(code: ExitCode) -> ExitCode {
    match FAILED.load(Ordering::Relaxed) {
        true => ExitCode::FAILURE,
        false => code,
    }
}
