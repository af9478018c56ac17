//! The tables of HPACK (RFC 7541, section 2.3): the static table, and the dynamic table of fields that the peer has
//! sent.

use std::collections::VecDeque;

use super::name::Name;
use crate::protocol::fields::{Known, Span};

/// Number of bytes between the name and the value of a line.
const BETWEEN: usize = b": ".len();
/// End of a line.
const END: &[u8] = b"\r\n";
/// Size of each entry of the dynamic table in addition to its text, in bytes (section 4.1).
pub(super) const OVERHEAD: usize = 32;
/// Number of fields in the static table.
pub(super) const STATIC: usize = FIELDS.len();

/// Fields with a fixed index (appendix A). The first one has index 1.
pub(in crate::protocol::http2) static FIELDS: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Returns the meaning of a static field's name.
pub(super) fn static_name(number: usize) -> Name {
    match number {
        1 => Name::Authority,
        2 | 3 => Name::Method,
        4 | 5 => Name::Path,
        6 | 7 => Name::Scheme,
        8..=14 => Name::Status,
        28 => Name::Field(Known::ContentLength),
        31 => Name::Field(Known::ContentType),
        32 => Name::Field(Known::Cookie),
        33 => Name::Field(Known::Date),
        35 => Name::Field(Known::Expect),
        38 => Name::Field(Known::Host),
        46 => Name::Field(Known::Location),
        53 => Name::Field(Known::RetryAfter),
        54 => Name::Field(Known::Server),
        55 => Name::Field(Known::SetCookie),
        57 => Name::Field(Known::TransferEncoding),
        58 => Name::Field(Known::UserAgent),
        _ => Name::Field(Known::Other),
    }
}

/// A field of the dynamic table, or one that is being decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Whether all bytes of the value are allowed.
    pub(super) valid: bool,
    start: usize,
    name_length: usize,
    value_length: usize,
}

impl Entry {
    /// Returns the size that counts towards limits, in bytes.
    pub(super) fn size(self) -> usize {
        self.name_length + self.value_length + OVERHEAD
    }

    /// Returns the spans of name and value in a text that contains the line at this offset.
    pub(super) fn spans(self, start: usize) -> (Span, Span) {
        let value = start + self.name_length + BETWEEN;
        (
            Span::new(start, self.name_length),
            Span::new(value, self.value_length),
        )
    }
}

/// The dynamic table: fields that the peer has sent, most recent first.
#[derive(Debug)]
pub(super) struct Table {
    /// Lines of `entries`, as they are appended to a message, the oldest first, after the text of evicted entries.
    text: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Size of all entries in bytes, with their overhead.
    size: usize,
    /// Maximum of `size`.
    limit: usize,
    /// Number of insertions and changes of the size.
    changes: u64,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            text: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            limit,
            changes: 0,
        }
    }

    /// Returns the number of insertions and changes of the size so far. While it is the same, so are all entries.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Sets the size that the peer uses from now on, in bytes.
    pub(super) fn resize(&mut self, limit: usize) {
        self.changes += 1;
        self.limit = limit;
        self.evict(0);
    }

    /// Returns an entry by its index in this table, counted from 0, and its line.
    pub(super) fn line(&self, number: usize) -> Option<(Entry, &[u8])> {
        let entry = *self.entries.get(number)?;
        let length = entry.name_length + entry.value_length + BETWEEN + END.len();
        Some((entry, self.text.get(entry.start..entry.start + length)?))
    }

    /// Returns an entry by its index in this table, counted from 0, and its name and value.
    pub(super) fn get(&self, number: usize) -> Option<(Entry, &[u8], &[u8])> {
        let (entry, line) = self.line(number)?;
        let (name, rest) = line.split_at_checked(entry.name_length)?;
        Some((
            entry,
            name,
            rest.get(BETWEEN..BETWEEN + entry.value_length)?,
        ))
    }

    /// Adds the entry of a line whose name and value have these lengths, and evicts others to make room. An entry that is
    /// larger than the table empties it.
    pub(super) fn insert(
        &mut self,
        kind: (Name, bool),
        line: &[u8],
        (name_length, value_length): (usize, usize),
    ) {
        self.changes += 1;
        let length = name_length + value_length;
        self.evict(length + OVERHEAD);
        if length + OVERHEAD > self.limit {
            return;
        }
        // Evicted text is removed in larger amounts, so that moving the rest costs little per entry.
        let live = self
            .entries
            .back()
            .map_or(self.text.len(), |entry| entry.start);
        if live >= self.limit {
            self.text.drain(..live);
            for entry in &mut self.entries {
                entry.start -= live;
            }
        }
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.entries.push_front(Entry {
            name: kind.0,
            valid: kind.1,
            start,
            name_length,
            value_length,
        });
        self.size += length + OVERHEAD;
    }

    /// Evicts the oldest entries until there is room for `room` bytes.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.limit
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.text.clear();
        }
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (0..self.entries.len())
            .filter_map(|number| self.get(number))
            .map(|(_, name, value)| (text(name), text(value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut Table, name: &str, value: &str) {
        let kind = (Name::of(name.as_bytes()), true);
        let line = format!("{name}: {value}\r\n");
        table.insert(kind, line.as_bytes(), (name.len(), value.len()));
    }

    #[test]
    fn names_of_the_static_table_are_what_their_text_says() {
        for (number, (name, _)) in (1..).zip(FIELDS) {
            assert_eq!(static_name(number), Name::of(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_one_too_large_empties_it() {
        let mut table = Table::new(100);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "2");
        assert_eq!(table.size(), 68);
        insert(&mut table, "c", "3");
        assert_eq!(table.get(0).map(|(_, name, _)| name), Some(&b"c"[..]));
        assert_eq!(table.fields().len(), 2);
        table.resize(40);
        assert_eq!(table.fields(), [("c".into(), "3".into())]);
        insert(&mut table, "d", "123456789");
        assert!(table.fields().is_empty());
        table.resize(0);
        insert(&mut table, "e", "");
        assert_eq!((table.fields().len(), table.size()), (0, 0));
    }

    #[test]
    fn many_insertions_take_no_more_memory_than_some() {
        let mut table = Table::new(4096);
        for number in 0..100_000 {
            insert(&mut table, "x-number", &number.to_string());
            let last = table.get(0).map(|(_, _, value)| value.to_vec());
            assert_eq!(last, Some(number.to_string().into_bytes()));
            assert!(table.size() <= 4096);
        }
        let fields = table.fields();
        let oldest = 100_000 - fields.len();
        assert_eq!(fields.last().unwrap().1, oldest.to_string());
        assert!(table.text.capacity() <= 16 * 1024);
    }
}
