//! The format of the tables.
//!
//! ```text
//! # A comment.
//! [group] expected outcome, in words of the area
//! | a line of the template; CR and LF are added
//! > a line without them
//! - value
//! - value => another expected outcome
//! - name :: value
//! ```
//!
//! Each `- value` is a case. Its text is the group's template with the value in place of each `@`;
//! without a template it is the value itself. Its name is its group and its value, or the name
//! before ` :: `. A value may be empty.
//!
//! In texts `\r`, `\n`, `\t`, `\0`, `\\`, `\s` (space), `\a` (an `@`) and `\xHH` stand for one
//! byte, and `\{N TEXT}` for `TEXT` repeated `N` times. Characters that are not ASCII stand for
//! their UTF-8.

use std::collections::BTreeSet;

/// A case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Case {
    /// `group/value`, unique in its table.
    pub name: String,
    /// The expected outcome, in words of the area.
    pub expected: String,
    /// Lines with escapes.
    lines: Vec<String>,
}

impl Case {
    /// Returns the bytes of all lines.
    ///
    /// # Panics
    ///
    /// If an escape is malformed.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| unescape(line)).collect()
    }

    /// Returns the lines as written, without line ends; a line may hold several commands, with
    /// ` && ` between them.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .flat_map(|line| line.strip_suffix(r"\r\n").unwrap_or(line).split(" && "))
    }
}

/// Parses a table.
///
/// # Panics
///
/// If it is malformed, or two cases have the same name.
#[must_use]
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let (mut group, mut expected, mut template) = ("", "", Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        match line.split_at_checked(1) {
            None | Some(("#", _)) => {}
            Some(("[", rest)) => {
                let (name, rest) = rest
                    .split_once(']')
                    .unwrap_or_else(|| panic!("line {number}: no ]"));
                (group, expected) = (name, rest.trim());
                template.clear();
            }
            Some(("|", rest)) => {
                let rest = rest.strip_prefix(' ').unwrap_or(rest);
                template.push(format!(r"{rest}\r\n"));
            }
            Some((">", rest)) => template.push(rest.strip_prefix(' ').unwrap_or(rest).to_owned()),
            Some(("-", rest)) => {
                cases.push(case(group, expected, &template, rest.trim()));
            }
            _ => panic!("line {number}: \"{line}\" begins with none of # [ | > -"),
        }
    }
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    if names.len() < cases.len() {
        let mut seen = BTreeSet::new();
        let again = cases.iter().find(|case| !seen.insert(&case.name));
        panic!("two cases are called {:?}", again.map(|case| &case.name));
    }
    cases
}

fn case(group: &str, expected: &str, template: &[String], text: &str) -> Case {
    const LONGEST: usize = 60;
    let (text, expected) = text.split_once("=> ").unwrap_or((text, expected));
    let text = text.trim();
    let (name, value) = match (text.split_once(":: "), text.strip_suffix("::")) {
        (Some((name, value)), _) => (name.trim(), value.trim()),
        (None, Some(name)) => (name.trim(), ""),
        (None, None) => (text, text),
    };
    let name: String = name.chars().take(LONGEST).collect();
    let lines = match template {
        [] => vec![value.to_owned()],
        lines => lines.iter().map(|line| line.replace('@', value)).collect(),
    };
    assert!(!expected.is_empty(), "{group}/{name}: no expected outcome");
    Case {
        name: format!("{group}/{name}"),
        expected: expected.trim().to_owned(),
        lines,
    }
}

/// Returns the bytes of a text with escapes.
///
/// # Panics
///
/// If an escape is malformed.
#[must_use]
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let (escape, after) = rest[at + 1..].split_at(1);
        rest = after;
        match escape {
            "r" => bytes.push(b'\r'),
            "n" => bytes.push(b'\n'),
            "t" => bytes.push(b'\t'),
            "0" => bytes.push(0),
            "s" => bytes.push(b' '),
            "a" => bytes.push(b'@'),
            "\\" => bytes.push(b'\\'),
            "x" => {
                let (digits, after) = rest.split_at(2);
                bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                rest = after;
            }
            "{" => {
                let (inside, after) = rest.split_once('}').expect("a } after \\{");
                let (count, text) = inside.split_once(' ').expect("\\{N TEXT}");
                let count = count.parse().expect("a number after \\{");
                bytes.extend_from_slice(&unescape(text).repeat(count));
                rest = after;
            }
            other => panic!("\\{other} in \"{text}\""),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_take_values_and_cases_their_own_outcomes() {
        let cases = parse(
            "# About.\n[te] 400\n| POST / HTTP/1.1\n| te: @\n|\n> 0\n- x\\sy\n- chunked => ok\n- none ::\n[other] cut\n- abc\n",
        );
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["te/x\\sy", "te/chunked", "te/none", "other/abc"]);
        assert_eq!(cases[0].bytes(), b"POST / HTTP/1.1\r\nte: x y\r\n\r\n0");
        assert_eq!(cases[1].expected, "ok");
        assert_eq!(cases[0].expected, "400");
        assert_eq!(cases[3].bytes(), b"abc");
        let two = &parse("[a] b\n| x\n| @\n- y && z\n")[0];
        assert_eq!(two.commands().collect::<Vec<_>>(), ["x", "y", "z"]);
    }

    #[test]
    fn escapes_stand_for_bytes() {
        assert_eq!(unescape(r"a\r\n\t\0\\\s\a\x7f"), b"a\r\n\t\0\\ @\x7f");
        assert_eq!(unescape(r"<\{3 ab\n}>"), b"<ab\nab\nab\n>");
        assert_eq!(unescape("é"), "é".as_bytes());
    }

    #[test]
    #[should_panic(expected = "two cases")]
    fn names_are_unique() {
        let _ = parse("[a] 400\n- x\n- x\n");
    }
}
