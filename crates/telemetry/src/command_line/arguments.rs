//! Errors of a command line in our words.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// Value names in clap's messages, and our names for them.
const VALUES: &[(&str, &str)] = &[
    ("invalid digit found in string", "write a whole number"),
    (
        "cannot parse integer from empty string",
        "write a whole number",
    ),
    ("invalid float literal", "expected a number, such as 0.75"),
    (
        "cannot parse float from empty string",
        "expected a number, such as 0.75",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number too small to fit in target type",
        "the number is too small",
    ),
];

/// Reports an invalid value in one line, and returns exit code 2; `None` for other errors.
#[must_use]
pub fn refuse_value(error: &clap::Error) -> Option<ExitCode> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text = error.to_string();
    let mut line = text.lines().next().unwrap_or_default().to_owned();
    for (theirs, ours) in VALUES {
        line = line.replace(theirs, ours);
    }
    eprintln!("{line}");
    Some(ExitCode::from(2))
}
