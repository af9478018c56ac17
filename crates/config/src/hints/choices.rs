//! Suggestions for enumerated values, including their names in other programs.

use crate::suggest::{nearest, one_of};

/// Pairs of a word, in lower case with letters and digits only, and our value for it. The first pair whose value is one
/// of the expected values applies.
const WORDS: &[(&str, &str)] = &[
    ("10", "1.2"),
    ("11", "1.2"),
    ("12", "1.2"),
    ("13", "1.3"),
    ("all", "debug"),
    ("any", "auto"),
    ("both", "auto"),
    ("clf", "text"),
    ("combined", "text"),
    ("common", "text"),
    ("critical", "error"),
    ("decode", "decode-and-merge-slashes"),
    ("disable", "off"),
    ("disabled", "off"),
    ("dns", "static"),
    ("eds", "static"),
    ("err", "error"),
    ("false", "off"),
    ("fatal", "error"),
    ("grpc", "http2"),
    ("h1", "http1"),
    ("h2", "http2"),
    ("h2c", "http2"),
    ("http", "http1"),
    ("http10", "http1"),
    ("http11", "http1"),
    ("http20", "http2"),
    ("https", "auto"),
    ("information", "info"),
    ("line", "text"),
    ("logicaldns", "static"),
    ("merge", "merge-slashes"),
    ("mtls", "strict"),
    ("mutual", "strict"),
    ("no", "off"),
    ("none", "off"),
    ("notice", "info"),
    ("on", "require"),
    ("on", "append"),
    ("on", "v2"),
    ("optional", "accept"),
    ("optional", "permissive"),
    ("originaldst", "original-destination"),
    ("overwrite", "replace"),
    ("plain", "text"),
    ("required", "require"),
    ("sanitize", "replace"),
    ("set", "replace"),
    ("strictdns", "static"),
    ("tls12", "1.2"),
    ("tls13", "1.3"),
    ("tlsv1", "1.2"),
    ("tlsv11", "1.2"),
    ("tlsv12", "1.2"),
    ("tlsv13", "1.3"),
    ("true", "require"),
    ("true", "append"),
    ("true", "v2"),
    ("v1v2", "accept"),
    ("verbose", "debug"),
    ("warning", "warn"),
    ("yes", "require"),
    ("yes", "append"),
    ("yes", "v2"),
];

/// Returns the value that was probably meant, and all possible values.
pub(crate) fn for_choice(found: &str, expected: &[&str]) -> String {
    let plain: String = found
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let named = WORDS
        .iter()
        .filter(|(word, _)| *word == plain)
        .find_map(|(_, choice)| expected.iter().find(|one| *one == choice));
    let near = named
        .copied()
        .or_else(|| nearest(found, expected.iter().copied()));
    match near {
        Some(near) if expected.len() > 1 => {
            format!("write `{near}`; the choices are {}", one_of(expected))
        }
        Some(near) => format!("write `{near}`"),
        None => format!("the choices are {}", one_of(expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_call_it_is_known() {
        let help = for_choice("HTTP/1.1", &["auto", "http1", "http2"]);
        assert!(help.starts_with("write `http1`"), "{help}");
        let help = for_choice("WARNING", &["error", "warn", "info"]);
        assert!(help.starts_with("write `warn`"), "{help}");
        let help = for_choice("zebra", &["apple", "pear"]);
        assert_eq!(help, "the choices are `apple` or `pear`");
    }
}
