//! Standard output that may be closed by who reads it.

use std::io::{self, Write as _};

/// Prints; a reader that has gone (`maglor schema | head`) is no error.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
