//! Suggestions for unknown fields, values of a wrong type, and terms of other proxies.
//!
//! Nothing here affects whether a configuration is valid. It runs after an error was found, with
//! the text around it.

mod choices;
pub(crate) mod foreign;
pub(crate) mod shapes;
mod values;
mod words;

use crate::suggest::{nearest, one_of};
use crate::yaml::{Cause, DecodeError, Found, Id, Tree};

pub(crate) use choices::for_choice;

/// Returns whether a word is a field of some block.
pub(crate) fn is_field(word: &str) -> bool {
    words::is_field(word)
}

/// Returns whether a word is a field of the document itself.
pub(crate) fn is_top_level(word: &str) -> bool {
    words::block("Document").is_some_and(|block| block.fields.contains(&word))
}

/// The value of an unknown field and its sibling fields.
#[derive(Debug, Default)]
pub(crate) struct Context<'t> {
    /// Its value, if it is a scalar.
    pub(crate) value: Option<&'t str>,
    /// The other fields of the mapping that are scalars.
    pub(crate) siblings: Vec<(&'t str, &'t str)>,
}

/// Returns the help of an error, derived from the text around it; `None` if it adds nothing to the
/// error's own.
pub(crate) fn refine(tree: &Tree, error: &DecodeError) -> Option<String> {
    let node = error.node()?;
    match error.cause() {
        Cause::Field(known) => {
            let (entries, value) = tree.pair_of(node)?;
            let scalar = |id: Id| tree.text(id);
            let context = Context {
                value: scalar(value),
                siblings: entries
                    .iter()
                    .filter(|(key, _)| *key != node)
                    .filter_map(|(key, value)| Some((scalar(*key)?, scalar(*value)?)))
                    .collect(),
            };
            for_field(tree.text(node)?, known, &context)
        }
        Cause::Type(expected) => {
            let found = Found::of(tree, node);
            values::for_value(&error.path(), expected, &found)
        }
        Cause::Other => tree.text(node).and_then(shapes::template),
    }
}

/// Returns a replacement for an unknown field where `known` ones are expected.
pub(crate) fn for_field(found: &str, known: &[&str], context: &Context<'_>) -> Option<String> {
    if found == "<<" {
        return Some("merge keys are not supported; use an alias for the whole value".into());
    }
    let word = snake(found);
    let own = words::block_of(known);
    let did_you_mean = |word: &str| Some(format!("did you mean `{word}`?"));
    if let Some(same) = known.iter().find(|field| snake(field) == word) {
        return did_you_mean(same);
    }
    if let Some(help) = own.and_then(|own| words::of(&word, own.name)) {
        return Some(shapes::fill(help, found, context));
    }
    let near = nearest(&word, known.iter().copied());
    if let Some(near) = near.filter(|near| near.len().abs_diff(word.len()) <= 1) {
        return did_you_mean(near);
    }
    words::elsewhere(&word, known)
        .or_else(|| near.and_then(did_you_mean))
        .or_else(|| words::absent(&word))
        .or_else(|| Some(format!("expected {}", one_of(known))))
}

/// Converts `connectTimeout`, `connect-timeout` and `ConnectTimeout` → `connect_timeout`.
fn snake(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 2);
    let mut before = '_';
    for c in word.chars().take(64) {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            snake.push('_');
        }
        before = c;
        snake.push(match c {
            '-' | ' ' | '.' => '_',
            c => c.to_ascii_lowercase(),
        });
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_in_one_form() {
        for word in [
            "connectTimeout",
            "connect-timeout",
            "ConnectTimeout",
            "connect_timeout",
        ] {
            assert_eq!(snake(word), "connect_timeout");
        }
        assert_eq!(snake("http2Protocol"), "http2_protocol");
        assert_eq!(snake("URL"), "url");
    }
}
