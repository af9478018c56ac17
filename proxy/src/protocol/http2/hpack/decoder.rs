//! Decodes field blocks into lines of text (RFC 7541, section 6).

use super::huffman;
use super::name::{self, Name};
use super::table::{self, FIELDS, OVERHEAD, STATIC, Table};
use crate::protocol::fields::Span;
use crate::protocol::http2::reason::{Malformed, Reason};

/// Size of the dynamic table in bytes: the default of the protocol (RFC 9113, section 6.5.2), since this proxy does
/// not send the setting.
const TABLE: usize = 4096;

/// State of decoding the field blocks of one peer.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
}

/// A field of a block.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol::http2) struct Line {
    pub(in crate::protocol::http2) name: Name,
    /// Whether all bytes of the value are allowed.
    pub(in crate::protocol::http2) valid: bool,
    /// Spans of the name and value in the text; `None` if they were not appended.
    pub(in crate::protocol::http2) spans: Option<(Span, Span)>,
    /// Index of the field if its name and value are in the static table, otherwise 0.
    pub(in crate::protocol::http2) number: usize,
    /// Size in bytes that counts towards the limit (RFC 9113, section 6.5.2).
    pub(in crate::protocol::http2) size: usize,
}

/// A field of either table.
struct Found<'a> {
    kind: Name,
    valid: bool,
    name: &'a [u8],
    value: &'a [u8],
}

/// How many of the remaining fields are appended to the text.
#[derive(Clone, Copy, Debug)]
pub(in crate::protocol::http2) enum Space {
    /// Fields with at most this many bytes in total.
    Left(usize),
    /// No fields: the block is decoded only to keep the table current.
    None,
}

impl Space {
    fn holds(self, size: usize) -> bool {
        matches!(self, Self::Left(left) if size <= left)
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: Table::new(TABLE),
        }
    }
}

impl Decoder {
    /// Returns the number of changes of the dynamic table so far. While it is the same, equal blocks mean the same.
    pub(in crate::protocol::http2) fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Decodes a whole block only to keep the table current.
    ///
    /// # Errors
    /// If the block cannot be decoded; the connection cannot continue.
    pub(crate) fn skip(&mut self, mut block: &[u8]) -> Result<(), Malformed> {
        let mut text = Vec::new();
        self.begin(&mut block)?;
        while self.next(&mut block, &mut text, Space::None)?.is_some() {}
        Ok(())
    }

    /// Decodes changes of the table's size, which may precede the first field (section 6.3).
    pub(in crate::protocol::http2) fn begin(&mut self, block: &mut &[u8]) -> Result<(), Malformed> {
        while let Some(0x20..=0x3f) = block.first() {
            let size = integer(block, 5)?;
            if size > TABLE {
                return Err(bad("a dynamic table size above SETTINGS_HEADER_TABLE_SIZE"));
            }
            self.table.resize(size);
        }
        Ok(())
    }

    /// Returns the next field of a block; `None` at its end. Appends the field to `text` as a line if there is space
    /// for it. A method, scheme or status from the static table is not appended.
    pub(in crate::protocol::http2) fn next(
        &mut self,
        block: &mut &[u8],
        text: &mut Vec<u8>,
        space: Space,
    ) -> Result<Option<Line>, Malformed> {
        let Some(first) = block.first() else {
            return Ok(None);
        };
        match first {
            0x80.. => self.indexed(block, text, space),
            0x40.. => self.literal(block, text, space, 6),
            0x20.. => return Err(bad("a dynamic table size update after a field")),
            _ => self.literal(block, text, space, 4),
        }
        .map(Some)
    }

    /// Decodes an indexed field (section 6.1).
    fn indexed(
        &self,
        block: &mut &[u8],
        text: &mut Vec<u8>,
        space: Space,
    ) -> Result<Line, Malformed> {
        let number = integer(block, 7)?;
        if let Some(number) = number.checked_sub(STATIC + 1) {
            return self.indexed_dynamic(number, text, space);
        }
        let Found {
            kind,
            valid,
            name,
            value,
        } = self.field(number)?;
        let size = name.len() + value.len() + OVERHEAD;
        // The index of these fields identifies them completely, so they need no text.
        let named = (2..=3).contains(&number) || (6..=14).contains(&number);
        let spans = (!named && space.holds(size)).then(|| append(text, name, value));
        Ok(Line {
            name: kind,
            valid,
            spans,
            number,
            size,
        })
    }

    /// Appends a field of the dynamic table, by its index there.
    fn indexed_dynamic(
        &self,
        number: usize,
        text: &mut Vec<u8>,
        space: Space,
    ) -> Result<Line, Malformed> {
        let (entry, line) = self.table.line(number).ok_or(OUT_OF_RANGE)?;
        let size = entry.size();
        let spans = space.holds(size).then(|| {
            let start = text.len();
            text.extend_from_slice(line);
            entry.spans(start)
        });
        Ok(Line {
            name: entry.name,
            valid: entry.valid,
            spans,
            number: 0,
            size,
        })
    }

    /// Decodes a literal field (section 6.2); a prefix of six bits adds the field to the table.
    fn literal(
        &mut self,
        block: &mut &[u8],
        text: &mut Vec<u8>,
        space: Space,
        prefix: u32,
    ) -> Result<Line, Malformed> {
        let start = text.len();
        let number = integer(block, prefix)?;
        let kind = if number == 0 {
            string(block, text)?;
            Name::of(&text[start..])
        } else {
            let Found { kind, name, .. } = self.field(number)?;
            text.extend_from_slice(name);
            kind
        };
        let name_end = text.len();
        text.extend_from_slice(b": ");
        let value_start = text.len();
        string(block, text)?;
        let value = &text[value_start..];
        let valid = name::is_value(value);
        let lengths = (name_end - start, value.len());
        let size = lengths.0 + lengths.1 + OVERHEAD;
        let spans = (
            Span::new(start, name_end - start),
            Span::new(value_start, value.len()),
        );
        text.extend_from_slice(b"\r\n");
        if prefix == 6 {
            self.table.insert((kind, valid), &text[start..], lengths);
        }
        let holds = space.holds(size);
        if !holds {
            text.truncate(start);
        }
        Ok(Line {
            name: kind,
            valid,
            spans: holds.then_some(spans),
            number: 0,
            size,
        })
    }

    /// Returns a field of either table, by its index.
    fn field(&self, number: usize) -> Result<Found<'_>, Malformed> {
        if let Some((name, value)) = number.checked_sub(1).and_then(|at| FIELDS.get(at)) {
            let kind = table::static_name(number);
            return Ok(Found {
                kind,
                valid: true,
                name: name.as_bytes(),
                value: value.as_bytes(),
            });
        }
        let found = number
            .checked_sub(STATIC + 1)
            .and_then(|number| self.table.get(number));
        let (entry, name, value) = found.ok_or(OUT_OF_RANGE)?;
        Ok(Found {
            kind: entry.name,
            valid: entry.valid,
            name,
            value,
        })
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

const OUT_OF_RANGE: Malformed = Malformed::new(Reason::Compression, "a field index out of range");

fn bad(what: &'static str) -> Malformed {
    Malformed::new(Reason::Compression, what)
}

/// Appends a field as a line.
fn append(text: &mut Vec<u8>, name: &[u8], value: &[u8]) -> (Span, Span) {
    let start = text.len();
    text.reserve(name.len() + value.len() + 4);
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
    (
        Span::new(start, name.len()),
        Span::new(start + name.len() + 2, value.len()),
    )
}

/// Decodes a number that begins in the lower bits of a byte (section 5.1). No meaningful number needs more than 28
/// further bits.
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    const CUT: Malformed = Malformed::new(Reason::Compression, "a truncated field block");
    let (first, mut rest) = block.split_first().ok_or(CUT)?;
    let most = (1_usize << prefix) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first().ok_or(CUT)?;
            rest = after;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 21 {
                return Err(bad("an integer that is too large"));
            }
        }
    }
    *block = rest;
    Ok(number)
}

/// Appends a string (section 5.2).
fn string(block: &mut &[u8], text: &mut Vec<u8>) -> Result<(), Malformed> {
    let coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (bytes, rest) = block
        .split_at_checked(length)
        .ok_or(bad("a string longer than its block"))?;
    *block = rest;
    if !coded {
        text.extend_from_slice(bytes);
        return Ok(());
    }
    huffman::decode(bytes, text).map_err(|_| bad("a string with an invalid Huffman code"))
}
