//! Bodies of any length whose every byte is known: byte `i` is `i % 251`.
//!
//! The period is a prime, so that a missing or duplicate piece is detected in any chunking.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

const PERIOD: usize = 251;
/// The number of bytes per piece.
const PIECE: usize = 64 * 1024;

static BYTES: LazyLock<Bytes> =
    LazyLock::new(|| (0..PERIOD + PIECE).map(|i| (i % PERIOD) as u8).collect());

/// Returns at most `length` bytes of the pattern, from `offset` on; less only if `length` is above
/// 64 KiB.
#[must_use]
pub fn piece(offset: u64, length: u64) -> Bytes {
    let start = (offset % PERIOD as u64) as usize;
    BYTES.slice(start..start + length.min(PIECE as u64) as usize)
}

/// Returns `length` bytes of the pattern.
#[must_use]
pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % PERIOD) as u8).collect()
}

/// Checks that `data` is the pattern from `offset` on.
///
/// # Panics
///
/// At the first byte that is not as expected.
#[track_caller]
pub fn check(offset: u64, data: &[u8]) {
    let mut at = offset;
    for chunk in data.chunks(PIECE) {
        let expected = piece(at, chunk.len() as u64);
        if expected != chunk {
            let differs = expected.iter().zip(chunk).position(|(a, b)| a != b);
            panic!(
                "byte {} of the body is wrong",
                at + differs.unwrap_or(0) as u64
            );
        }
        at += chunk.len() as u64;
    }
}

/// Returns the hash in the response of `/upload`.
#[must_use]
pub fn hash(data: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(data)
}

/// A body of the pattern that is generated while it is sent.
#[derive(Debug)]
pub struct PatternBody {
    offset: u64,
    length: u64,
    /// Whether the length is sent in advance (`content-length`) or not (chunked).
    announced: bool,
}

impl PatternBody {
    /// Creates a body of `length` bytes with an announced length.
    #[must_use]
    pub fn sized(length: u64) -> Self {
        Self {
            offset: 0,
            length,
            announced: true,
        }
    }

    /// Creates a body of `length` bytes without an announced length.
    #[must_use]
    pub fn streamed(length: u64) -> Self {
        Self {
            announced: false,
            ..Self::sized(length)
        }
    }
}

impl Body for PatternBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.offset == self.length {
            return Poll::Ready(None);
        }
        let piece = piece(self.offset, self.length - self.offset);
        self.offset += piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.announced && self.offset == self.length
    }

    fn size_hint(&self) -> SizeHint {
        if self.announced {
            SizeHint::with_exact(self.length - self.offset)
        } else {
            SizeHint::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_whole_agree() {
        let whole = bytes(200_000);
        assert_eq!(whole[250..253], [250, 0, 1]);
        check(0, &whole);
        check(70_000, &whole[70_000..]);
        assert_eq!(piece(1000, 10), &whole[1000..1010]);
    }

    #[test]
    #[should_panic(expected = "byte 70001 of the body is wrong")]
    fn a_wrong_byte_is_found() {
        let mut data = bytes(100_000);
        data[70_001] ^= 1;
        check(0, &data);
    }
}
