//! Regular expressions, within bounds of size and number.

use regex::{Regex, RegexBuilder};

use super::Scope;
use crate::report::At;

/// Compiled size of one expression.
const MAX_SIZE: usize = 256 << 10;
/// Expressions in a configuration.
const MAX_PATTERNS: usize = 2000;

/// An expression that must match a whole text.
pub(super) fn whole(text: &str, at: &At<'_>, scope: &Scope<'_>) -> Option<Regex> {
    // Compiled alone first: `a)(b` would become valid between the parentheses.
    find(text, at, scope)?;
    let anchored = compile(&format!("^(?:{text})$")).or_else(|_| {
        // A comment at the end of a `(?x)` expression hides the closing parenthesis.
        compile(&format!("^(?:{text}\n)$"))
    });
    anchored
        .map_err(|error| {
            at.error("this regular expression does not compile")
                .help(explain(&error))
        })
        .ok()
}

/// An expression that may match anywhere in a text.
pub(super) fn find(text: &str, at: &At<'_>, scope: &Scope<'_>) -> Option<Regex> {
    let count = scope.patterns.get() + 1;
    scope.patterns.set(count);
    if count > MAX_PATTERNS {
        if count == MAX_PATTERNS + 1 {
            at.error(format!("more than {MAX_PATTERNS} regular expressions"))
                .help("prefixes and exact matches are cheaper");
        }
        return None;
    }
    if at.report().is_full() {
        return None;
    }
    compile(text)
        .map_err(|error| {
            at.error("this regular expression does not compile")
                .help(explain(&error))
        })
        .ok()
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .size_limit(MAX_SIZE)
        .nest_limit(50)
        .build()
}

/// The reason without the drawing: the source line is shown anyway.
fn explain(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("too large: more than {limit} bytes when compiled")
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default();
            reason.trim().trim_start_matches("error: ").to_owned()
        }
    }
}
