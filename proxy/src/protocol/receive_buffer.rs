//! Buffer for the received part of a body, on a connection that many streams share.

use bytes::{Bytes, BytesMut};

/// Received bytes of a body that were not read yet.
#[derive(Debug, Default)]
pub(crate) struct Received {
    first: Bytes,
    /// Bytes that were received while others were waiting, joined in one buffer, so that many small pieces do not
    /// need a multiple of their size; `None` if there are none. Boxed: every waiting request reserves the space.
    rest: Option<Box<BytesMut>>,
}

impl Received {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.rest.as_ref().map_or(0, |rest| rest.len())
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.is_empty() {
            self.first = Bytes::copy_from_slice(bytes);
        } else {
            self.rest.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    /// Takes the first piece, or at most `most` bytes of the joined ones.
    pub(crate) fn take_some(&mut self, most: usize) -> Bytes {
        if !self.first.is_empty() {
            return std::mem::take(&mut self.first);
        }
        match &mut self.rest {
            Some(rest) if rest.len() > most => rest.split_to(most).freeze(),
            rest => rest.take().map_or_else(Bytes::new, |rest| rest.freeze()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_taken_in_order_and_small_pieces_are_joined() {
        let mut received = Received::default();
        assert!(received.is_empty());
        for piece in [&b"ab"[..], b"c", b"d"] {
            received.push(piece);
        }
        assert_eq!(received.len(), 4);
        assert_eq!(received.take_some(9)[..], b"ab"[..]);
        received.push(b"e");
        assert_eq!(received.take_some(9)[..], b"cde"[..]);
        assert!(received.is_empty());
    }
}
