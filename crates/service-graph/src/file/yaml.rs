//! Parses YAML 1.2, and so JSON, into a tree with line numbers. Only the features that these files need are supported:
//! no anchors, no tags, one document.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::FileError;

/// The maximum nesting depth.
const MAX_DEPTH: usize = 16;

/// A value with the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A mapping, whose keys are text and unique.
    Mapping(Vec<(Box<str>, Node)>),
    /// A scalar; `plain` if it was not quoted, so that it may be a number.
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    Sequence(Vec<Node>),
}

/// Parses a text.
pub(super) fn read(text: &str) -> Result<Node, FileError> {
    let text = with_whole_characters(text);
    let mut reader = Reader {
        parser: Parser::new_from_str(&text),
        line: 1,
    };
    let root = loop {
        match reader.next()? {
            Some(Event::StreamStart | Event::DocumentStart(_)) => {}
            Some(Event::StreamEnd | Event::DocumentEnd) | None => return Err(FileError::Empty),
            Some(event) => break reader.node(event, 0)?,
        }
    };
    loop {
        match reader.next()? {
            None => return Ok(root),
            Some(Event::DocumentStart(_)) => return Err(reader.fault("a second document begins")),
            Some(_) => {}
        }
    }
}

/// Joins surrogate pairs: JSON may write a character as two escape sequences (RFC 8259, section 7: `\ud83d\ude00`),
/// which YAML does not support.
fn with_whole_characters(text: &str) -> Cow<'_, str> {
    let json = text.trim_start().starts_with('{');
    if !json || !text.contains("\\u") {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let character = match (half(escape), escape.get(6..).and_then(half)) {
            (Some(high @ 0xd800..0xdc00), Some(low)) => char::decode_utf16([high, low]).next(),
            _ => None,
        };
        let length = if let Some(Ok(character)) = character {
            whole.push(character);
            12
        } else {
            // The backslash and the character it escapes, which may be another backslash.
            let escaped = escape.chars().nth(1).map_or(0, char::len_utf8);
            whole.push_str(&escape[..1 + escaped]);
            1 + escaped
        };
        rest = &escape[length..];
    }
    whole.push_str(rest);
    Cow::Owned(whole)
}

/// Parses the number of an escape sequence `\uXXXX` at the beginning of a text.
fn half(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    line: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<Event<'a>>, FileError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.line = line(&span);
                Ok(Some(event))
            }
            Some(Err(error)) => Err(FileError::Syntax {
                line: error.marker().line().max(1),
                message: error.info().to_owned(),
            }),
            None => Ok(None),
        }
    }

    fn fault(&self, message: &str) -> FileError {
        FileError::Syntax {
            line: self.line,
            message: message.to_owned(),
        }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, FileError> {
        let line = self.line;
        if depth > MAX_DEPTH {
            return Err(self.fault("nested too deeply"));
        }
        let value = match event {
            Event::Scalar(text, style, _, tag) => {
                if tag.is_some() {
                    return Err(self.fault("tags are not supported"));
                }
                let plain = style == ScalarStyle::Plain;
                Value::Scalar {
                    text: text.into(),
                    plain,
                }
            }
            Event::SequenceStart(..) => Value::Sequence(self.sequence(depth)?),
            Event::MappingStart(..) => Value::Mapping(self.mapping(depth)?),
            Event::Alias(_) => {
                return Err(self.fault("YAML aliases are not supported; write the value itself"));
            }
            _ => return Err(self.fault("a value is missing")),
        };
        Ok(Node { line, value })
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Node>, FileError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                None | Some(Event::SequenceEnd) => return Ok(items),
                Some(event) => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<(Box<str>, Node)>, FileError> {
        let mut entries: Vec<(Box<str>, Node)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let key: Box<str> = match self.next()? {
                None | Some(Event::MappingEnd) => return Ok(entries),
                Some(Event::Scalar(text, ..)) => text.into(),
                Some(_) => return Err(self.fault("keys must be strings")),
            };
            if !seen.insert(key.clone()) {
                return Err(self.fault(&format!("`{key}` is defined twice")));
            }
            let Some(event) = self.next()? else {
                return Err(self.fault("a value is missing"));
            };
            entries.push((key, self.node(event, depth + 1)?));
        }
    }
}

fn line(span: &Span) -> usize {
    span.start.line().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_characters_are_joined_in_json_only() {
        let of = |text: &str| match read(text).map(|node| node.value) {
            Ok(Value::Mapping(entries)) => entries.into_iter().next().map(|(key, _)| key.into()),
            _ => None,
        };
        let some = |key: &str| Some(key.to_owned());
        assert_eq!(of(r#"{"\ud83d\ude00": 1}"#), some("😀"));
        assert_eq!(of(r#" {"a\u00e9\ud83d\uDE00\"b": 1}"#), some("aé😀\"b"));
        assert_eq!(of(r#"{"\\ud83d\\ude00": 1}"#), some(r"\ud83d\ude00"));
        assert_eq!(of(r#"{"\ue000\u0041": 1}"#), some("\u{e000}A"));
        assert_eq!(of(r"'\ud83d\ude00': 1"), some(r"\ud83d\ude00"));
        for alone in [
            r#"{"\ud83d": 1}"#,
            r#"{"\ud83dx": 1}"#,
            r#"{"\ude00\ud83d": 1}"#,
        ] {
            assert_eq!(of(alone), None, "{alone}");
        }
        for cut in ["{\"\\", "{\"\\u", "{\"\\ud83d\\", "{\"\\ud83d\\ué"] {
            assert!(read(cut).is_err(), "{cut}");
        }
    }
}
