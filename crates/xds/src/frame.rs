//! gRPC's framing: each message is preceded by five bytes, which are a flag and the length (`PROTOCOL-HTTP2.md`,
//! "Length-Prefixed-Message").

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

/// The size of the flag and the length, in bytes.
pub const PREFIX: usize = 5;

/// The reason why no further messages can be read from a stream.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// The message is compressed, although no compression was negotiated.
    #[error("compressed message without negotiated compression")]
    Compressed,
    /// The message exceeds the limit.
    #[error("a message of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// The length of the message in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Encodes a message, preceded by its flag and length.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    frame_encoded(&message.encode_to_vec())
}

/// Returns an encoded message, preceded by its flag and length.
#[must_use]
pub fn frame_encoded(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// A decoder that takes bytes as they arrive and returns complete messages.
#[derive(Debug)]
pub struct Deframer {
    buffer: BytesMut,
    limit: usize,
}

impl Deframer {
    /// Creates a decoder for messages of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    /// Appends received bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message; `None` until it is complete.
    ///
    /// # Errors
    /// [`FrameError`]; no further messages can be read then.
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
            // The buffer of a long message is released.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Returns whether a part of a message has been received.
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
