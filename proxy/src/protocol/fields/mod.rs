//! Header fields of one message, in a form that is cheap to forward.
//!
//! A proxy reads few fields, changes fewer and writes all of them out again. Therefore the text of a head is copied
//! once, fields are spans of it, new text is appended to it, and runs of unchanged lines are written with one copy.
//! Names that the proxy itself uses are recognized during parsing, and a bit set records which of them are present:
//! the lookup of an absent name costs one bit test.
//!
//! Order and spelling of names are preserved. Each thread recycles its buffers.

mod field;
mod hop;
mod known;
mod recycle;

use std::ops::{Deref, DerefMut};

use bytes::BytesMut;

use self::field::Field;
pub(crate) use self::field::{Key, Span};
pub(crate) use self::hop::CONNECTION_FIELDS;
pub(crate) use self::known::Known;
use self::recycle::Received;
pub(crate) use self::recycle::forget_buffers;

/// Smallest number of bytes by which a text grows, and number of fields by which their list does.
const STEP: usize = 64;
const FIELDS_STEP: usize = 4;
/// Length of what a line has besides its name and value.
const LINE: usize = ": \r\n".len();

/// The header fields of one message.
///
/// Boxed: each future on the way of a message reserves space for them, and moves them.
#[derive(Debug)]
pub(crate) struct Fields(Option<Box<Content>>);

/// The contents of [`Fields`].
#[derive(Debug)]
pub(crate) struct Content {
    text: Vec<u8>,
    list: Vec<Field>,
    /// Bit set of the known names that are present.
    present: u64,
    received: Received,
}

impl Default for Fields {
    fn default() -> Self {
        Self(Some(recycle::take(Received::NOTHING)))
    }
}

impl Clone for Fields {
    fn clone(&self) -> Self {
        let mut copy = recycle::take(self.received);
        copy.received = self.received;
        copy.text.reserve_exact(self.text.len());
        copy.list.reserve_exact(self.list.len());
        copy.text.extend_from_slice(&self.text);
        copy.list.extend_from_slice(&self.list);
        copy.present = self.present;
        Self(Some(copy))
    }
}

impl Deref for Fields {
    type Target = Content;

    fn deref(&self) -> &Content {
        static NONE: Content = Content::new();
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Fields {
    fn deref_mut(&mut self) -> &mut Content {
        self.0.get_or_insert_with(|| Box::new(Content::new()))
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        if let Some(content) = self.0.take() {
            recycle::put(content);
        }
    }
}

impl Fields {
    /// Creates the fields of a head that was received; the spans of the names and values refer to its text.
    pub(crate) fn of_head(
        head: &[u8],
        fields: impl ExactSizeIterator<Item = (Known, Span, Span)>,
    ) -> Self {
        let received = Received::new(head.len(), fields.len());
        let mut content = recycle::take(received);
        content.received = received;
        content.text.extend_from_slice(head);
        let mut present = 0;
        content.list.extend(fields.map(|(known, name, value)| {
            present |= known.bit();
            Field::new(known, name, value)
        }));
        content.present = present;
        Self(Some(content))
    }

    /// Creates the fields of a head that will be received field by field, with space for one like the last.
    pub(crate) fn for_head() -> Self {
        Self(Some(recycle::take(recycle::last_head())))
    }

    /// Returns a copy that is kept for long, in buffers of its size. A plain copy takes recycled buffers, which may be
    /// large.
    pub(crate) fn kept(&self) -> Self {
        Self(Some(Box::new(Content {
            text: self.text.as_slice().into(),
            list: self.list.as_slice().into(),
            present: self.present,
            received: self.received,
        })))
    }

    /// Creates fields without a buffer.
    pub(crate) const fn none() -> Self {
        Self(None)
    }
}

impl Content {
    const fn new() -> Self {
        Self {
            text: Vec::new(),
            list: Vec::new(),
            present: 0,
            received: Received::NOTHING,
        }
    }

    /// Ends a head that was received field by field.
    pub(crate) fn end_head(&mut self) {
        self.received = Received::new(self.text.len(), self.list.len());
        recycle::note_head(self.received);
    }

    /// Returns a part of the text.
    pub(crate) fn slice(&self, span: Span) -> &[u8] {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or_default()
    }

    /// Makes room for a field of `text` bytes in small steps: a buffer that grows by itself doubles.
    fn reserve(&mut self, text: usize) {
        let (length, capacity) = (self.text.len(), self.text.capacity());
        if capacity - length < text {
            self.text.reserve_exact(text.max(STEP).max(length / 8));
        }
        if self.list.len() == self.list.capacity() {
            self.list.reserve_exact(FIELDS_STEP);
        }
    }

    /// Appends text that is no field, such as a new path.
    pub(crate) fn add_text(&mut self, text: &[u8]) -> Span {
        self.reserve(text.len());
        let span = Span::new(self.text.len(), text.len());
        self.text.extend_from_slice(text);
        span
    }

    /// Returns the text for appending; spans added later refer to it.
    pub(crate) fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds a field whose text is already present and whose name is known.
    pub(crate) fn push_line(&mut self, known: Known, name: Span, value: Span) {
        self.list.push(Field::new(known, name, value));
        self.present |= known.bit();
    }

    /// Adds a field. The name and value must be valid: they come from types that check them, or are constants.
    pub(crate) fn push<'a>(&mut self, key: impl Into<Key<'a>>, value: &[u8]) {
        self.push_parts(key, &[value]);
    }

    /// Adds a field as a line, `NAME: VALUE` and its end; the name has this length, and is none of the known ones.
    #[inline]
    pub(crate) fn push_text<const N: usize>(&mut self, name: usize, line: &[u8; N]) {
        self.reserve(N);
        let start = self.text.len();
        self.text.extend_from_slice(line);
        let value = start + name + b": ".len();
        let value = Span::new(value, start + N - b"\r\n".len() - value);
        self.list
            .push(Field::new(Known::Other, Span::new(start, name), value));
        self.present |= Known::Other.bit();
    }

    /// Adds a field whose value is the concatenation of these parts.
    pub(crate) fn push_parts<'a>(&mut self, key: impl Into<Key<'a>>, parts: &[&[u8]]) {
        let key = key.into();
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        self.reserve(key.text.len() + LINE + length);
        let name = self.add_text(key.text);
        self.text.extend_from_slice(b": ");
        let start = self.text.len();
        for part in parts {
            self.text.extend_from_slice(part);
        }
        let value = Span::new(start, self.text.len() - start);
        self.text.extend_from_slice(b"\r\n");
        self.list.push(Field::new(key.known, name, value));
        self.present |= key.known.bit();
    }

    /// Adds a field whose value is already in the text.
    pub(crate) fn push_copy(&mut self, known: Known, from: Span) {
        self.reserve(known.as_str().len() + LINE + from.len());
        let name = self.add_text(known.as_str().as_bytes());
        self.text.extend_from_slice(b": ");
        let start = self.text.len();
        let end = self.text.len().min(from.end as usize);
        self.text
            .extend_from_within((from.start as usize).min(end)..end);
        let value = Span::new(start, self.text.len() - start);
        self.text.extend_from_slice(b"\r\n");
        self.list.push(Field::new(known, name, value));
        self.present |= known.bit();
    }

    /// Returns the span of the first value of a known name.
    pub(crate) fn find(&self, known: Known) -> Option<Span> {
        if !self.contains(known) {
            return None;
        }
        self.list
            .iter()
            .find(|field| field.known == known)
            .map(|field| field.value)
    }

    /// Returns the span of the first value of a name that is none of the known ones, in lower case.
    pub(crate) fn find_named(&self, name: &[u8]) -> Option<Span> {
        let mut others = self.list.iter().filter(|field| field.known == Known::Other);
        let found = others.find(|field| self.slice(field.name()).eq_ignore_ascii_case(name));
        found.map(|field| field.value)
    }

    /// Replaces all fields of a name with one.
    pub(crate) fn set<'a>(&mut self, key: impl Into<Key<'a>>, value: &[u8]) {
        let key = key.into();
        self.remove(key);
        self.push(key, value);
    }

    /// Removes all fields of a name.
    pub(crate) fn remove<'a>(&mut self, key: impl Into<Key<'a>>) {
        let key = key.into();
        if self.present & key.known.bit() == 0 {
            return;
        }
        let Self {
            text,
            list,
            present,
            ..
        } = self;
        list.retain(|field| !is(field, key, text));
        if key.known != Known::Other {
            *present &= !key.known.bit();
        }
    }

    /// Removes the fields of some names that are none of the known ones.
    pub(crate) fn remove_unlisted(&mut self, is_removed: impl Fn(&[u8]) -> bool) {
        let Self { text, list, .. } = self;
        list.retain(|field| {
            let name = field.name();
            let name = text.get(name.start as usize..name.end as usize);
            field.known != Known::Other || !name.is_some_and(&is_removed)
        });
    }

    /// Removes fields whose names differ from a known one only by underscores. Where names become variables (CGI,
    /// WSGI, PHP), both names are the same.
    pub(crate) fn remove_lookalikes(&mut self, known: Known) {
        let wanted = known.as_str().as_bytes();
        let Self { text, list, .. } = self;
        let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || (*a, *b) == (b'_', b'-');
        list.retain(|field| {
            let (known, name) = (field.known, field.name());
            let other = known != Known::Other || name.len() != wanted.len();
            let name = || text.get(name.start as usize..name.end as usize);
            other || !name().is_some_and(|name| name.iter().zip(wanted).all(same))
        });
    }

    /// Returns whether there is a field of a known name.
    pub(crate) fn contains(&self, known: Known) -> bool {
        self.present & known.bit() != 0
    }

    /// Returns the first value of a name.
    pub(crate) fn get<'a>(&self, key: impl Into<Key<'a>>) -> Option<&[u8]> {
        let key = key.into();
        if self.present & key.known.bit() == 0 {
            return None;
        }
        let field = self.list.iter().find(|field| is(field, key, &self.text))?;
        Some(self.slice(field.value))
    }

    /// Returns all values of a name, in order.
    pub(crate) fn all<'a, 'k: 'a>(
        &'a self,
        key: impl Into<Key<'k>>,
    ) -> impl Iterator<Item = &'a [u8]> + 'a {
        let key = key.into();
        let list = if self.present & key.known.bit() == 0 {
            &[][..]
        } else {
            &self.list
        };
        let of_name = list.iter().filter(move |field| is(field, key, &self.text));
        of_name.map(|field| self.slice(field.value))
    }

    /// Returns the tokens of a comma-separated field.
    pub(crate) fn tokens(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.all(known).flat_map(tokens)
    }

    /// Returns whether a comma-separated field contains a token, in any case.
    pub(crate) fn has_token(&self, known: Known, wanted: &str) -> bool {
        let wanted = wanted.as_bytes();
        self.all(known).any(|value| {
            // Most fields contain a single token.
            value.len() == wanted.len() && value.eq_ignore_ascii_case(wanted)
                || value.len() > wanted.len()
                    && tokens(value).any(|t| t.eq_ignore_ascii_case(wanted))
        })
    }

    /// Returns every field in order: its known name, name and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.list.iter().map(|field| {
            (
                field.known,
                self.slice(field.name()),
                self.slice(field.value),
            )
        })
    }

    /// Returns the names that are none of the known ones, in order.
    #[inline]
    pub(crate) fn unlisted(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.list.iter().filter(|field| field.known == Known::Other);
        others.map(|field| self.slice(field.name()))
    }

    /// Appends all fields as lines.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let mut run = Span::default();
        for field in &self.list {
            match field.line(&self.text) {
                Some(line) if line.start == run.end => run.end = line.end,
                Some(line) => {
                    out.extend_from_slice(self.slice(run));
                    run = line;
                }
                None => {
                    out.extend_from_slice(self.slice(run));
                    run = Span::default();
                    out.extend_from_slice(self.slice(field.name()));
                    out.extend_from_slice(b": ");
                    out.extend_from_slice(self.slice(field.value));
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
        out.extend_from_slice(self.slice(run));
    }

    /// Returns approximately how many bytes [`Fields::encode`] appends.
    pub(crate) fn encoded_len(&self) -> usize {
        self.text.len()
    }
}

/// Returns the tokens of a comma-separated value.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
    parts.filter(|token| !token.is_empty())
}

fn is(field: &Field, key: Key<'_>, text: &[u8]) -> bool {
    if key.known != Known::Other {
        return field.known == key.known;
    }
    let name = field.name();
    field.known == Known::Other
        && name.len() == key.text.len()
        && text
            .get(name.start as usize..name.end as usize)
            .is_some_and(|name| name.eq_ignore_ascii_case(key.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str) -> Fields {
        let mut fields = Fields::of_head(lines.as_bytes(), std::iter::empty());
        let mut at = 0;
        for line in lines.split_inclusive('\n') {
            let colon = line.find(':').unwrap();
            let value = line[colon + 1..].trim();
            let start = at + line[colon + 1..].find(value).unwrap() + colon + 1;
            let known = Known::of(&line.as_bytes()[..colon]);
            fields.push_line(known, Span::new(at, colon), Span::new(start, value.len()));
            at += line.len();
        }
        fields
    }

    fn text(fields: &Fields) -> String {
        let mut out = BytesMut::new();
        fields.encode(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn untouched_lines_come_out_as_they_went_in() {
        let lines = "Host: a\r\nX-Odd: B, c\r\naccept: */*\r\n";
        assert_eq!(text(&parse(lines)), lines);
    }

    #[test]
    fn odd_spacing_is_normalised() {
        assert_eq!(
            text(&parse("Host:a\r\nX:  b \r\nY: c\r\n")),
            "Host: a\r\nX: b\r\nY: c\r\n"
        );
    }

    #[test]
    fn names_match_whatever_their_case_and_all_go() {
        let mut fields = parse("X-A: 1\r\nKEEP-alive: 5\r\nx-a: 2\r\nB: 3\r\n");
        assert!(fields.contains(Known::KeepAlive));
        assert_eq!(fields.all(Key::new(b"x-A")).count(), 2);
        fields.remove(Key::new(b"X-a"));
        fields.remove(Known::KeepAlive);
        assert!(!fields.contains(Known::KeepAlive));
        assert_eq!(text(&fields), "B: 3\r\n");
    }

    #[test]
    fn names_with_underscores_are_distinguished_from_others_of_their_length() {
        let others = "x-forwarded-client-cert: 1\r\nx-forwarded-client-carp: 2\r\nx_a: 3\r\n";
        let alike = "x_forwarded_client_cert: 4\r\nX-Forwarded_Client-CERT: 5\r\n";
        let mut fields = parse(&format!("{alike}{others}{alike}"));
        fields.remove_lookalikes(Known::XForwardedClientCert);
        assert_eq!(text(&fields), others);
    }

    #[test]
    fn set_replaces_and_push_appends() {
        let mut fields = parse("host: a\r\nx: 1\r\n");
        fields.set(Known::Host, b"b");
        fields.push_parts(Known::XForwardedFor, &[b"1.2.3.4", b", ", b"5.6.7.8"]);
        assert_eq!(
            text(&fields),
            "x: 1\r\nhost: b\r\nx-forwarded-for: 1.2.3.4, 5.6.7.8\r\n"
        );
        assert_eq!(fields.get(Known::Host), Some(&b"b"[..]));
    }

    #[test]
    fn tokens_are_split_and_trimmed_over_several_fields() {
        let fields = parse("connection: close , X-a\r\nConnection: Upgrade,,\r\n");
        assert!(fields.has_token(Known::Connection, "upgrade"));
        assert_eq!(fields.tokens(Known::Connection).count(), 3);
    }
}
