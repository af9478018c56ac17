//! Lists and mappings in brackets whose lines are indented less than YAML 1.2 requires, as
//!
//! ```yaml
//! args: [
//! --verbose
//! ]
//! ```
//!
//! `kubectl` reads them, because libyaml and go-yaml do. Inside brackets indentation means nothing,
//! so such lines are indented further until the parser accepts them; line numbers stay the same.

use std::borrow::Cow;

use saphyr_parser::{Parser, ScanError};

/// The indentation to add, which exceeds the depth of any text.
const INDENT: &str = "                                                                                                                                ";
/// The maximum number of bytes that are parsed again, in total.
const MAX_WORK: usize = 16 << 20;

/// Returns the text in a form that the parser accepts; unchanged if the error is not the indentation.
pub(super) fn indented(text: &str) -> Cow<'_, str> {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    let mut work = 0;
    let mut whole = Cow::Borrowed(text);
    while let Some(error) = first_error(&whole) {
        if lines.is_empty() {
            lines = text.split_inclusive('\n').map(Cow::Borrowed).collect();
        }
        work += whole.len();
        if work > MAX_WORK || !indent(&mut lines, &whole, &error) {
            return Cow::Borrowed(text);
        }
        whole = Cow::Owned(lines.concat());
    }
    whole
}

fn first_error(text: &str) -> Option<ScanError> {
    Parser::new_from_str(text).find_map(Result::err)
}

/// Indents the lines that an error is about; returns whether there were any.
fn indent(lines: &mut [Cow<'_, str>], whole: &str, error: &ScanError) -> bool {
    let at = error.marker().line().saturating_sub(1);
    let which = match error.info() {
        "invalid indentation" | "invalid indentation in flow construct" => at..at + 1,
        // The scalar begins here, and continues further to the left.
        "invalid indentation in quoted scalar" => {
            let ends = at + quoted_lines(whole, error.marker().index());
            at + 1..ends + 1
        }
        _ => return false,
    };
    let mut any = false;
    for line in lines.get_mut(which).unwrap_or_default() {
        if !line.starts_with(INDENT) {
            *line = Cow::Owned(format!("{INDENT}{line}"));
            any = true;
        }
    }
    any
}

/// Returns the number of line breaks in the quoted string at a character of a text.
fn quoted_lines(text: &str, at: usize) -> usize {
    let mut rest = text.chars().skip(at);
    let quote = rest.next();
    let mut breaks = 0;
    while let Some(c) = rest.next() {
        match c {
            '\n' => breaks += 1,
            '\\' if quote == Some('"') => {
                breaks += usize::from(rest.next() == Some('\n'));
            }
            // Two single quotes are an escaped one, and the text continues.
            c if Some(c) == quote => {
                let mut after = rest.clone();
                if quote == Some('\'') && after.next() == quote {
                    rest = after;
                    continue;
                }
                break;
            }
            _ => {}
        }
    }
    breaks
}

#[cfg(test)]
mod tests {
    use super::super::documents;

    /// Returns the result of libyaml, by its port to Rust.
    fn expected(text: &str) -> serde_json::Value {
        serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn brackets_may_be_indented_as_kubectl_takes_them() {
        for text in [
            "args: [\n  a,\n  b\n]\n",
            "args: [\na,\nb\n]\nc: d\n",
            "spec:\n  args: [\n    a,\n  ]\n  b: {\n  c: d,\n}\n",
            "spec:\n  a: {b: [\n{c: d},\n{e: f}]}\n",
            "a:\n  - b: [\n    c\n  ]\n  - d\n",
            "a:\n  b: ['c\nd', \"e\nf\\\n  g\"]\n",
            "a:\n  b: 'it''s\n\nlong'\nc: 1\n",
            "a:\n  b: [ # one\n# two\n  c # three\n]\n",
            "a: {\n\"b\": 1,\n\n'c': [\n1, 2\n]\n}\n",
        ] {
            let found = documents(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].value, expected(text), "{text}");
        }
    }

    #[test]
    fn what_libyaml_refuses_is_refused() {
        for text in [
            "a: [\n",
            "a:\n    b: 1\n  c: 2\n",
            "a: [b\nc: d\n",
            "a: 'b\n",
            "a:\n  b: 'c\n---\nd'\n",
        ] {
            assert!(documents(text).is_err(), "{text}");
            assert!(
                serde_yaml::from_str::<serde_json::Value>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn the_work_is_bounded() {
        let many = format!("a:\n  b: [\n{}]\n", "c,\n".repeat(100_000));
        let begun = std::time::Instant::now();
        drop(documents(&many));
        assert!(begun.elapsed().as_secs() < 60);
    }
}
