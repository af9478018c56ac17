//! One field of a message, as spans of the message's text, and names to look up.

use http::HeaderName;

use super::Known;

/// A name to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(super) known: Known,
    pub(super) text: &'a [u8],
}

impl<'a> Key<'a> {
    /// Creates a key for any name.
    pub(crate) fn new(name: &'a [u8]) -> Self {
        Self {
            known: Known::of(name),
            text: name,
        }
    }

    /// Creates a key for a name that is none of the known ones.
    pub(crate) const fn unlisted(name: &'a [u8]) -> Self {
        Self {
            known: Known::Other,
            text: name,
        }
    }
}

impl From<Known> for Key<'static> {
    fn from(known: Known) -> Self {
        Self {
            known,
            text: known.as_str().as_bytes(),
        }
    }
}

impl<'a> From<&'a HeaderName> for Key<'a> {
    fn from(name: &'a HeaderName) -> Self {
        Self::new(name.as_str().as_bytes())
    }
}

/// A part of a message's text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, len: usize) -> Self {
        // Heads are far smaller than 4 GiB; an out-of-range span would read as empty.
        let to = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            start: to(start),
            end: to(start + len),
        }
    }

    /// Returns the span of `part`, a subslice of a head.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "heads are far smaller than 4 GiB; a check for each part of each field is 5 % of parsing"
    )]
    pub(crate) fn within(head: &[u8], part: &[u8]) -> Self {
        let start = (part.as_ptr() as usize - head.as_ptr() as usize) as u32;
        Self {
            start,
            end: start + part.len() as u32,
        }
    }

    pub(super) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// One field, as parts of a message's text. Every waiting request has a list of them: a span of the name would make each
/// larger by a quarter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) known: Known,
    /// Length of the name, with the least significant byte first. Names are far shorter than 16 MiB; a longer one would
    /// read as shorter.
    name_length: [u8; 3],
    name_start: u32,
    pub(super) value: Span,
}

impl Field {
    pub(super) fn new(known: Known, name: Span, value: Span) -> Self {
        let [first, second, third, _] = (name.end - name.start).to_le_bytes();
        Self {
            known,
            name_length: [first, second, third],
            name_start: name.start,
            value,
        }
    }

    pub(super) fn name(self) -> Span {
        let [first, second, third] = self.name_length;
        Span {
            start: self.name_start,
            end: self.name_start + u32::from_le_bytes([first, second, third, 0]),
        }
    }

    /// Returns the field's line, if the text contains it exactly as it would be written.
    pub(super) fn line(self, text: &[u8]) -> Option<Span> {
        let name = self.name();
        let between = text.get(name.end as usize..self.value.start as usize)?;
        let after = text.get(self.value.end as usize..self.value.end as usize + 2)?;
        (between == b": " && after == b"\r\n").then_some(Span {
            start: name.start,
            end: self.value.end + 2,
        })
    }
}
