//! Attributes of spans and resources.

use super::wire;

/// Maximum length of a value in bytes: a path may be as long as a head.
const LONGEST: usize = 1024;

/// Adds attributes to a message.
#[derive(Debug)]
pub struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    /// Number of the field of attributes in the message.
    field: u32,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, field: u32) -> Self {
        Self { out, field }
    }

    /// Adds a text; of a long one, the first kilobyte.
    pub fn text(&mut self, key: &str, value: &str) {
        let value = &value[..value.floor_char_boundary(LONGEST)];
        self.add(key, |out| wire::bytes(out, 1, value.as_bytes()));
    }

    /// Adds bytes of a peer as text; what is no UTF-8 is replaced.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        match str::from_utf8(value) {
            Ok(value) => self.text(key, value),
            Err(_) => self.text(key, &String::from_utf8_lossy(value)),
        }
    }

    /// Adds a number.
    pub fn number(&mut self, key: &str, value: u64) {
        self.add(key, |out| wire::varint(out, 3, value));
    }

    /// Writes a `KeyValue` of an `AnyValue`.
    fn add(&mut self, key: &str, value: impl FnOnce(&mut Vec<u8>)) {
        wire::nested(self.out, self.field, |out| {
            wire::bytes(out, 1, key.as_bytes());
            wire::nested(out, 2, value);
        });
    }
}
