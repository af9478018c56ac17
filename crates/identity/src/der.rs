//! A reader of DER: tag, length, value (X.690 §8.1, §10.1).
//!
//! It supports what certificates and requests need: one-byte tags, and definite lengths of up to three bytes. Malformed
//! input yields `None`, never a panic. rustls verifies the certificates of peers; this reader only finds fields.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The remaining input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a>(pub(crate) &'a [u8]);

impl<'a> Der<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the tag and the value of the next element.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let len = len.iter();
                (len.fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, value))
    }

    /// Returns the value of the next element, which must have the tag `tag`.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|(found, _)| *found == tag)
            .map(|(_, value)| value)
    }

    /// Returns the next element with its tag and length; it must have the tag `tag`.
    pub(crate) fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.expect(tag)?;
        before.get(..before.len() - self.0.len())
    }

    /// Returns the value of the next element if it has the tag `tag`; otherwise it is not consumed.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        match self.0.first() {
            Some(found) if *found == tag => self.expect(tag),
            _ => None,
        }
    }
}

/// Returns the bytes of a BIT STRING that ends with a whole byte.
pub(crate) fn bits(value: &[u8]) -> Option<&[u8]> {
    match value.split_first()? {
        (0, bytes) => Some(bytes),
        _ => None,
    }
}
