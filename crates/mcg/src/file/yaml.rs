//! YAML 1.2, and so JSON, as a tree that knows its lines. Only what such files need: no anchors, no
//! tags, one document.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::FileError;

/// No file of ours is nested deeper.
const MAX_DEPTH: usize = 16;

/// A value and the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Keys are text and unique.
    Mapping(Vec<(Box<str>, Node)>),
    /// `plain` when it was not quoted, so that it may be a number.
    Scalar {
        text: Box<str>,
        plain: bool,
    },
    Sequence(Vec<Node>),
}

/// Reads a text.
pub(super) fn read(text: &str) -> Result<Node, FileError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
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
            return Err(self.fault("this is nested too deep"));
        }
        let value = match event {
            Event::Scalar(text, style, _, tag) => {
                if tag.is_some() {
                    return Err(self.fault("tags mean nothing here"));
                }
                let plain = style == ScalarStyle::Plain;
                Value::Scalar {
                    text: text.into(),
                    plain,
                }
            }
            Event::SequenceStart(..) => Value::Sequence(self.sequence(depth)?),
            Event::MappingStart(..) => Value::Mapping(self.mapping(depth)?),
            Event::Alias(_) => return Err(self.fault("write the value itself, not an alias")),
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
                Some(_) => return Err(self.fault("a key has to be a name")),
            };
            if !seen.insert(key.clone()) {
                return Err(self.fault(&format!("`{key}` is there twice")));
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
