//! Reads input files. Errors contain the file's name and the line.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use maglor_service_graph::file::FileError;
use thiserror::Error;

/// Reason why a file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum InputError {
    #[error("{file}: {error}")]
    Read { file: String, error: io::Error },
    #[error("{}: {error}", place(file, *line))]
    File {
        file: String,
        line: Option<usize>,
        error: Box<FileError>,
    },
}

fn place(file: &str, line: Option<usize>) -> String {
    line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
}

impl InputError {
    /// Creates an error about a file's contents.
    pub(crate) fn of(path: &Path, error: FileError) -> Self {
        Self::File {
            file: path.display().to_string(),
            line: error.line(),
            error: Box::new(error),
        }
    }
}

/// Returns the text of a file, without the byte order mark that some editors add; `-` is standard
/// input.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = match path == Path::new("-") {
        true => standard_input(),
        false => std::fs::read_to_string(path),
    }?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// Reads standard input. This is possible only once, because a second read would look like an empty file.
fn standard_input() -> io::Result<String> {
    static READ: AtomicBool = AtomicBool::new(false);
    match READ.swap(true, Ordering::Relaxed) {
        true => Err(io::Error::other("only one file can be standard input")),
        false => io::read_to_string(io::stdin()),
    }
}

/// Returns the text of a file. An error contains the file's name.
pub(crate) fn text(path: &Path) -> Result<String, InputError> {
    read_text(path).map_err(|error| InputError::Read {
        file: path.display().to_string(),
        error,
    })
}

/// Reads and parses a file.
pub(crate) fn read<T>(
    path: &Path,
    parse: fn(&str) -> Result<T, FileError>,
) -> Result<T, InputError> {
    parse(&text(path)?).map_err(|error| InputError::of(path, error))
}
