//! gRPC's framing: each message behind five bytes, a flag and its length
//! (`PROTOCOL-HTTP2.md`, "Length-Prefixed-Message").

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

/// Flag and length.
const PREFIX: usize = 5;

/// Why a stream of messages cannot be read on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed without negotiation.
    #[error("compressed message without negotiated compression")]
    Compressed,
    /// The message is longer than allowed.
    #[error("a message of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The most that is taken.
        limit: usize,
    },
}

/// A message with its prefix.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

/// Takes bytes as they arrive, returns complete messages.
#[derive(Debug)]
pub struct Deframer {
    buffer: BytesMut,
    limit: usize,
}

impl Deframer {
    /// Messages of up to `limit` bytes are taken.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    /// More bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, once it is whole.
    ///
    /// # Errors
    /// [`FrameError`]; nothing after it can be read.
    pub fn message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [flag, length @ ..] = *prefix;
        if flag != 0 {
            return Err(FrameError::Compressed);
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.limit {
            let limit = self.limit;
            return Err(FrameError::TooLong { length, limit });
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        if self.buffer.is_empty() {
            // A long message leaves no buffer behind.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Whether part of a message has come and the rest not.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let framed: Vec<u8> = ["a", "", "longer"]
            .iter()
            .flat_map(|text| frame(&(*text).to_owned()))
            .collect();
        for size in 1..framed.len() {
            let (mut deframer, mut found) = (Deframer::new(100), Vec::new());
            for part in framed.chunks(size) {
                deframer.put(part);
                while let Some(message) = deframer.message().unwrap() {
                    found.push(String::decode(message).unwrap());
                }
            }
            assert_eq!(found, ["a", "", "longer"], "parts of {size}");
            assert!(!deframer.is_within());
        }
    }

    #[test]
    fn what_is_too_long_or_compressed_is_refused() {
        let mut deframer = Deframer::new(3);
        deframer.put(&[0, 0, 0, 0, 4]);
        let error = deframer.message().unwrap_err();
        assert_eq!(
            error,
            FrameError::TooLong {
                length: 4,
                limit: 3
            }
        );
        let mut deframer = Deframer::new(3);
        deframer.put(&[1, 0, 0, 0, 1, 0]);
        assert_eq!(deframer.message().unwrap_err(), FrameError::Compressed);
    }
}
