//! Pending output frames of the mesh transport.

use std::ops::{Deref, DerefMut};

use bytes::{Bytes, BytesMut};

use super::frame::{self, HEADER, MAX_PAYLOAD, flag, kind};
use crate::protocol::outbox;

/// Pending output frames.
#[derive(Debug, Default)]
pub(super) struct Outbox(outbox::Outbox);

impl Outbox {
    /// Adds a frame whose payload consists of 32-bit words.
    pub(super) fn words(&mut self, kind: u8, stream: u32, words: &[u32]) {
        frame::encode_words(kind, stream, words, self.tail());
    }

    /// Adds a piece of a body, of at most [`MAX_PAYLOAD`] bytes.
    pub(super) fn data(&mut self, stream: u32, piece: Bytes, end: bool) {
        let flags = if end { flag::END } else { 0 };
        let header = frame::header(piece.len(), kind::DATA, flags, stream);
        self.0.data(&header, piece);
    }

    /// Adds a text in as many frames as needed. `write` appends the text to its argument.
    pub(super) fn text(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let tail = self.tail();
        let start = tail.len();
        tail.extend_from_slice(&[0; HEADER]);
        write(tail);
        let length = tail.len() - start - HEADER;
        if length <= MAX_PAYLOAD {
            let header = frame::header(length, kind, flags, stream);
            tail[start..start + HEADER].copy_from_slice(&header);
            return;
        }
        let text = tail.split_off(start + HEADER);
        tail.truncate(start);
        let mut parts = text.chunks(MAX_PAYLOAD).peekable();
        while let Some(part) = parts.next() {
            let more = if parts.peek().is_some() {
                flag::MORE
            } else {
                0
            };
            let header = frame::header(part.len(), kind, flags | more, stream);
            tail.extend_from_slice(&header);
            tail.extend_from_slice(part);
        }
    }
}

impl Deref for Outbox {
    type Target = outbox::Outbox;

    fn deref(&self) -> &outbox::Outbox {
        &self.0
    }
}

impl DerefMut for Outbox {
    fn deref_mut(&mut self) -> &mut outbox::Outbox {
        &mut self.0
    }
}
