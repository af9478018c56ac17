//! Parses text into a tree, within bounds.

use saphyr_parser::Parser;

use super::build::Builder;
use super::explain::explain;
use super::tree::{Fault, Place, Tree, syntax};

/// The maximum size of a text in bytes.
pub(crate) const MAX_BYTES: usize = 8 << 20;

impl Tree {
    /// Parses a text with a single document.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        check_text(text)?;
        Self::build(text).map_err(|fault| explain(text, fault))
    }

    fn build(text: &str) -> Result<Self, Fault> {
        let mut builder = Builder::default();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            match event {
                Ok((event, span)) => builder.event(event, &span)?,
                Err(error) => {
                    let path = builder.path();
                    return Err(syntax(Place::at(error.marker()), path, error.info()));
                }
            }
        }
        builder.finish()
    }
}

/// Checks the size and the characters of a text, before the parser reads it.
fn check_text(text: &str) -> Result<(), Fault> {
    let start = Place {
        line: 1,
        column: 0,
        length: 1,
    };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; maximum {MAX_BYTES}", text.len());
        return Err(syntax(start, String::new(), &message));
    }
    // Characters that are line breaks in YAML 1.1 but not in YAML 1.2 would let two readers see two
    // different files.
    let breaks = ['\u{85}', '\u{2028}', '\u{2029}'];
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let forbidden = |c: char| control(c) || breaks.contains(&c);
    let Some(at) = text.find(forbidden) else {
        return Ok(());
    };
    let (before, rest) = text.split_at(at);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let place = Place {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count(),
        length: 1,
    };
    let code = rest.chars().next().map_or(0, u32::from);
    let message = format!("the invisible character U+{code:04X} is not allowed");
    Err(syntax(place, String::new(), &message))
}
