//! Suggestions for unknown fields.

use super::{foreign_terms, shapes};
use crate::suggest::{nearest, one_of};
use crate::yaml::short;

/// The value of an unknown field and its sibling fields.
#[derive(Debug, Default)]
pub(crate) struct Context<'t> {
    /// The value of the field; `None` if it is not a scalar.
    pub(crate) value: Option<&'t str>,
    /// The other fields of the same mapping that are scalars, with their values.
    pub(crate) siblings: Vec<(&'t str, &'t str)>,
}

/// Returns a replacement for an unknown field of a mapping with the fields `known`.
pub(crate) fn for_field(found: &str, known: &[&str], context: &Context<'_>) -> Option<String> {
    if found == "<<" {
        return Some("merge keys are not supported; use an alias for the whole value".into());
    }
    let word = snake(found);
    let own = foreign_terms::block_of(known);
    let did_you_mean = |word: &str| Some(format!("did you mean `{word}`?"));
    if let Some(same) = known.iter().find(|field| snake(field) == word) {
        return did_you_mean(same);
    }
    if let Some(help) = own.and_then(|own| foreign_terms::of(&word, own.name)) {
        return Some(fill(help, found, context));
    }
    let near = nearest(&word, known.iter().copied());
    if let Some(near) = near.filter(|near| near.len().abs_diff(word.len()) <= 1) {
        return did_you_mean(near);
    }
    foreign_terms::elsewhere(&word, known)
        .or_else(|| near.and_then(did_you_mean))
        .or_else(|| foreign_terms::absent(&word))
        .or_else(|| Some(format!("expected {}", one_of(known))))
}

/// Inserts the written value into a help text.
fn fill(help: &str, found: &str, context: &Context<'_>) -> String {
    let beside = |name: &str| {
        let mut siblings = context.siblings.iter();
        siblings
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let mut text = help.to_owned();
    let mut put = |token: &str, value: &dyn Fn() -> String| {
        if text.contains(token) {
            text = text.replace(token, &value());
        }
    };
    let value = context.value;
    let short_value = || value.map(short).filter(|text| !text.is_empty());
    put("{name}", &|| short(found));
    put("{value}", &|| short_value().unwrap_or_else(|| "…".into()));
    put("{address}", &|| {
        let joined = match (found, value, beside("address")) {
            ("port", Some(port), Some(host)) if !host.contains(':') => {
                Some(format!("{host}:{port}"))
            }
            _ => value.map(str::to_owned),
        };
        let address = joined.and_then(|text| shapes::listen(&text));
        address.unwrap_or_else(|| "IP:PORT".into())
    });
    put("{endpoint}", &|| {
        let joined = match (found, value, beside("address").or(beside("host"))) {
            ("port", Some(port), Some(host)) if !host.contains(':') => {
                Some(format!("{host}:{port}"))
            }
            _ => value.map(str::to_owned),
        };
        let address = joined.and_then(|text| shapes::endpoint(&text));
        address.unwrap_or_else(|| "\"HOST:PORT\"".into())
    });
    put("{domains}", &|| {
        value
            .and_then(shapes::domains)
            .unwrap_or_else(|| "NAME".into())
    });
    put("{policy}", &|| {
        let named = value
            .and_then(shapes::policy)
            .or_else(|| shapes::policy(found));
        named.unwrap_or_else(|| "lor(choices=2)".into())
    });
    text
}

/// Converts a word to snake case: `connectTimeout`, `connect-timeout` and `ConnectTimeout` → `connect_timeout`.
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
