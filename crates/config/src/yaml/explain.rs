//! Explains syntax errors: the parser's message about a line is often not the actual error.
//!
//! These are heuristics over the text around an error, the most specific first. They run only after the parser has
//! rejected the text, so they cannot reject anything.

use super::brackets;
use super::excerpt::short;
use super::explanation::Explanation;
use super::tree::{Fault, Place};
use crate::hints::{foreign, foreign_terms, shapes};

/// The length above which words are ignored, since the text may be untrusted.
const MAX_WORD: usize = 256;

/// Returns the same fault with a better message.
pub(super) fn explain(text: &str, fault: Fault) -> Fault {
    let ours = [
        "more than ",
        "lists and mappings",
        "a second ",
        "an alias inside",
        "the tag ",
    ];
    if ours
        .iter()
        .any(|beginning| fault.message.starts_with(beginning))
    {
        return fault;
    }
    if let Some(foreign) = foreign(text) {
        return foreign;
    }
    let lines: Vec<&str> = text.lines().collect();
    let Some(why) = why(&lines, &fault) else {
        return fault;
    };
    Fault {
        place: Place {
            line: why.line + 1,
            column: why.column,
            length: why.length,
        },
        message: why.message,
        help: Some(why.help),
        ..fault
    }
}

/// Returns the error for a text that is a file of another program.
pub(crate) fn foreign(text: &str) -> Option<Fault> {
    let found = foreign::recognise(text)?;
    Some(Fault {
        place: Place {
            line: found.line,
            column: 0,
            length: usize::MAX,
        },
        path: String::new(),
        message: found.message.into(),
        help: Some(found.help.into()),
        note: None,
    })
}

fn why(lines: &[&str], fault: &Fault) -> Option<Explanation> {
    let at = fault.place.line - 1;
    // The cause of a parser error is often a line above.
    let above = (0..at.min(lines.len()))
        .rev()
        .find(|i| !is_blank(lines[*i]));
    let here = Some(at).filter(|at| *at < lines.len());
    let either = |look: &dyn Fn(usize, &str) -> Option<Explanation>| {
        here.and_then(|i| look(i, lines[i]))
            .or_else(|| above.and_then(|i| look(i, lines[i])))
    };
    let below = (at + 1 < lines.len()).then_some(at + 1);
    tab(lines, [above, here, below])
        .or_else(|| here.and_then(|i| escape(i, lines[i], fault)))
        .or_else(|| either(&unquoted))
        .or_else(|| either(&no_colon))
        .or_else(|| brackets::unclosed(lines, at, fault.place.column))
        .or_else(|| here.and_then(|i| second_colon(i, lines[i], fault.place.column)))
        .or_else(|| outside(lines, at))
        .or_else(|| here.and_then(|i| indentation(lines, i)))
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

/// Returns the number of characters before the first key of a line, which may follow dashes, and the rest of the line.
fn key_of(line: &str) -> (usize, &str) {
    let mut rest = line.trim_start();
    while let Some(after) = rest.strip_prefix("- ") {
        rest = after.trim_start();
    }
    (line.chars().count() - rest.chars().count(), rest)
}

fn tab(lines: &[&str], places: [Option<usize>; 3]) -> Option<Explanation> {
    let line = places.into_iter().flatten().find(|i| {
        let line = lines[*i];
        line[..line.len() - line.trim_start().len()].contains('\t')
    })?;
    Some(Explanation {
        line,
        column: lines[line].find('\t').unwrap_or_default(),
        length: 1,
        message: "the line is indented by a tab".into(),
        help: "YAML is indented with spaces, never with tabs".into(),
    })
}

/// Explains an invalid escape such as `"\d+"`, or a quote without an end.
fn escape(line: usize, text: &str, fault: &Fault) -> Option<Explanation> {
    let column = fault.place.column;
    let quoted: String = text.chars().skip(column).collect();
    let escape = fault.message.contains("escape");
    if !escape && fault.message.contains("quoted scalar") && quoted.starts_with(['"', '\'']) {
        return Some(Explanation {
            line,
            column,
            length: 1,
            message: "the quote is not closed".into(),
            help: format!("add the `{}`", &quoted[..1]),
        });
    }
    if !escape {
        return None;
    }
    let inner = quoted.strip_prefix('"')?.split('"').next()?;
    Some(Explanation {
        line,
        column,
        length: inner.chars().count() + 2,
        message: "invalid escape sequence: `\\` begins an escape in double quotes".into(),
        help: format!("use single quotes: '{}'", short(inner)),
    })
}

/// Explains an unquoted value that begins with a special character: `*.example.com`, `[::]:80`, `@x`, `%x`.
fn unquoted(line: usize, text: &str) -> Option<Explanation> {
    let chars: Vec<char> = text.chars().collect();
    let starts = brackets::value_starts(&chars);
    starts.into_iter().find_map(|column| {
        let rest = &chars[column..];
        let rest = &rest[..rest.len().min(MAX_WORD)];
        let ends = |c: &char| matches!(c, ',' | ']' | '}' | ' ' | '\t');
        let word: String = rest.iter().take_while(|c| !ends(c)).collect();
        let (word, what) = match rest.first()? {
            '*' if !word[1..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') => {
                (word, "an unquoted `*` begins an alias")
            }
            '@' | '`' => (word, "unquoted text cannot begin with `@` or a backtick"),
            '%' => (word, "unquoted text cannot begin with `%`"),
            '[' => (ipv6(rest)?, "an unquoted `[` begins a list"),
            '{' if rest.get(1) == Some(&'{') => {
                return Some(Explanation {
                    line,
                    column,
                    length: 2,
                    message: "`{{` begins a template, which is not expanded".into(),
                    help: shapes::template("{{").unwrap_or_default(),
                });
            }
            _ => return None,
        };
        Some(Explanation {
            line,
            column,
            length: word.chars().count(),
            message: format!("{what}; the text is not quoted"),
            help: format!("quote the text: `\"{}\"`", short(&word)),
        })
    })
}

/// Matches an IPv6 address in brackets, `[::1]:80`, with or without port.
fn ipv6(rest: &[char]) -> Option<String> {
    let end = rest.iter().position(|c| *c == ']')?;
    let inner: String = rest[1..end].iter().collect();
    inner.parse::<std::net::Ipv6Addr>().ok()?;
    let is_port = |c: &&char| **c == ':' || c.is_ascii_digit();
    let tail = rest[end + 1..].iter().take_while(is_port);
    Some(format!("[{inner}]{}", tail.collect::<String>()))
}

/// Explains a missing colon or space: `address:127.0.0.1:80`, `address 127.0.0.1:80`.
fn no_colon(line: usize, text: &str) -> Option<Explanation> {
    let (column, rest) = key_of(text);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (key, tail) = rest.split_at(end);
    if rest.contains(": ") || rest.ends_with(':') || !foreign_terms::is_field(key) {
        return None;
    }
    let (value, message) = match tail.strip_prefix(':') {
        Some(value) if !value.starts_with(' ') => {
            (value, format!("there is no space after `{key}:`"))
        }
        None if tail.starts_with(' ') => {
            (tail.trim_start(), format!("there is no `:` after `{key}`"))
        }
        _ => return None,
    };
    let value = value.trim_start_matches(['=', ' ']);
    (!value.is_empty()).then(|| Explanation {
        line,
        column,
        length: rest.chars().count(),
        message,
        help: format!("write `{key}: {}`", short(value)),
    })
}

/// Explains a second colon in an unquoted value: `body: note: this`.
fn second_colon(line: usize, text: &str, column: usize) -> Option<Explanation> {
    let chars: Vec<char> = text.chars().collect();
    let starts = brackets::value_starts(&chars);
    // The value that contains the error, or that ends before it.
    let follows_colon = |start: &usize| chars[..*start].iter().rfind(|c| **c != ' ') == Some(&':');
    let start = starts
        .into_iter()
        .rfind(|start| *start < column)
        .filter(follows_colon)?;
    let value: String = chars[start..].iter().collect();
    let ends = value.find([',', '}', ']']).unwrap_or(value.len());
    let value = value[..ends].trim_end();
    if !value.contains(": ") || value.starts_with(['"', '\'', '{', '[']) {
        return None;
    }
    Some(Explanation {
        line,
        column: start,
        length: value.chars().count(),
        message: "unquoted text contains `: `".into(),
        help: format!("quote the text: `\"{}\"`", short(value)),
    })
}

/// Explains an unknown field at the top level before the error, which has lost its indentation.
fn outside(lines: &[&str], at: usize) -> Option<Explanation> {
    let end = at.min(lines.len());
    let line = (0..end).rev().find(|i| {
        let line = lines[*i];
        !is_blank(line) && !line.starts_with([' ', '-', '{', '}', '[', ']', '"'])
    })?;
    let key = lines[line].split(':').next()?;
    if foreign_terms::is_top_level(key) || !foreign_terms::is_field(key) {
        return None;
    }
    let above = (0..line).rev().find(|i| !is_blank(lines[*i]))?;
    let (column, _) = key_of(lines[above]);
    Some(Explanation {
        line,
        column: 0,
        length: key.chars().count(),
        message: format!("unknown top-level field `{key}`"),
        help: format!(
            "indent the line by {column} spaces, like line {}; top-level fields are, for example, \
             `listeners` and `clusters`",
            above + 1
        ),
    })
}

/// Explains a line whose first key is not aligned with any key above.
fn indentation(lines: &[&str], at: usize) -> Option<Explanation> {
    let (column, rest) = key_of(lines[at]);
    if !rest.contains(':') {
        return None;
    }
    // The columns of the open keys, with their lines.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (i, line) in lines.iter().enumerate().take(at) {
        if is_blank(line) {
            continue;
        }
        let (column, _) = key_of(line);
        open.retain(|(other, _)| *other < column);
        open.push((column, i));
    }
    if open.iter().any(|(other, _)| *other == column) {
        return None;
    }
    let (near, like) = open
        .into_iter()
        .min_by_key(|(other, _)| other.abs_diff(column))?;
    let key = rest.split(':').next().unwrap_or_default();
    Some(Explanation {
        line: at,
        column,
        length: key.chars().count(),
        message: format!(
            "`{}` begins at column {}, unlike any line above",
            short(key),
            column + 1
        ),
        help: format!(
            "indent the line by {near} spaces, like `{}` in line {}",
            short(key_of(lines[like]).1.split(':').next().unwrap_or_default()),
            like + 1
        ),
    })
}
