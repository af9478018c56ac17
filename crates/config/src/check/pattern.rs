//! Compiles regular expressions, within bounds of size and number.

use regex::{Regex, RegexBuilder};

use super::Scope;
use crate::report::At;

/// The maximum compiled size of one expression in bytes.
const MAX_SIZE: usize = 256 << 10;
/// The maximum number of expressions in a configuration.
const MAX_PATTERNS: usize = 2000;

/// Compiles an expression that must match a whole text.
pub(super) fn whole(text: &str, at: &At<'_>, scope: &Scope<'_>) -> Option<Regex> {
    // Compiled alone first: `a)(b` would become valid between the parentheses.
    find(text, at, scope)?;
    anchored(text)
        .map_err(|error| {
            at.error("this regular expression does not compile")
                .help(explain(&error))
        })
        .ok()
}

/// Returns whether the empty text matches the whole of an expression; `false` if it does not compile.
#[must_use]
pub fn matches_empty(expression: &str) -> bool {
    anchored(expression).is_ok_and(|regex| regex.is_match(""))
}

fn anchored(text: &str) -> Result<Regex, regex::Error> {
    compile(&format!("^(?:{text})$")).or_else(|_| {
        // A comment at the end of a `(?x)` expression hides the closing parenthesis.
        compile(&format!("^(?:{text}\n)$"))
    })
}

/// Compiles an expression that may match anywhere in a text.
pub(super) fn find(text: &str, at: &At<'_>, scope: &Scope<'_>) -> Option<Regex> {
    let count = scope.patterns.get() + 1;
    scope.patterns.set(count);
    if count > MAX_PATTERNS {
        if count == MAX_PATTERNS + 1 {
            at.error(format!("more than {MAX_PATTERNS} regular expressions"))
                .help("use prefixes and exact matches, which need less memory and time");
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

/// Returns the reason of an error, without the drawing of `regex`, since the source line is shown anyway.
fn explain(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("the expression needs more than {limit} bytes when compiled")
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or_default();
            reason.trim().trim_start_matches("error: ").to_owned()
        }
    }
}
