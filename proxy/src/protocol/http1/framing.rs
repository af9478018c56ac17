//! Decoding and encoding of HTTP/1.1 body framing (RFC 9112 §6, §7).
//!
//! Sans-I/O: bytes in, bytes out. Deliberately strict: input that two parsers could read differently is an error,
//! because a proxy that guesses allows request smuggling.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;

use super::error::HeadError;
use super::head::{self, Framing};

/// Maximum length in bytes of a chunk-size line with its extensions; a longer one is considered an attack.
const MAX_CHUNK_LINE: usize = 4096;
/// Maximum length of a trailer section in bytes.
const MAX_TRAILERS: usize = 64 * 1024;

/// Error in a body's framing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FramingError {
    /// The chunk-size line is not `hex-digits [; extension] CRLF`.
    #[error("malformed chunk size line")]
    ChunkSize,
    /// The chunk extension is too long.
    #[error("chunk size line longer than {MAX_CHUNK_LINE} bytes")]
    ChunkLineTooLong,
    /// The data of a chunk is not as long as announced.
    #[error("chunk data not followed by CRLF")]
    ChunkEnd,
    /// More data was received than announced.
    #[error("a body longer than its content-length")]
    Longer,
    /// A trailer line is malformed.
    #[error("malformed trailers: {0}")]
    Trailers(#[from] HeadError),
    /// The data ended before the announced length.
    #[error("connection closed in the middle of a body")]
    UnexpectedEof,
}

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// The body has ended (returned again by each further call).
    End,
    /// More input is needed.
    More,
}

/// Decodes one body.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Expecting a chunk-size line.
    ChunkSize,
    /// In chunk data, with this many bytes left.
    ChunkData(u64),
    /// Expecting the CRLF after chunk data.
    ChunkEnd,
    Close,
    Done,
    Length(u64),
    /// After the last chunk.
    Trailers,
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Chunked => State::ChunkSize,
            Framing::Close => State::Close,
            Framing::Length(0) => State::Done,
            Framing::Length(n) => State::Length(n),
        };
        Self { state }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Returns the number of bytes that can be read at once without reading part of the next message.
    pub(crate) fn expected(&self) -> u64 {
        match self.state {
            State::ChunkData(n) | State::Length(n) => n,
            State::Close => u64::MAX,
            State::ChunkSize | State::ChunkEnd | State::Trailers | State::Done => 0,
        }
    }

    /// Returns the number of bytes of the body that have not been decoded; `None` if it is unknown.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(n) => Some(n),
            State::Done => Some(0),
            State::ChunkSize
            | State::ChunkData(_)
            | State::ChunkEnd
            | State::Close
            | State::Trailers => None,
        }
    }

    /// Decodes and removes the next piece of the body from `buf`.
    pub(crate) fn decode(&mut self, buf: &mut BytesMut) -> Result<Piece, FramingError> {
        loop {
            match self.state {
                State::Done => return Ok(Piece::End),
                State::Length(left) => {
                    let Some((data, left)) = take(buf, left) else {
                        return Ok(Piece::More);
                    };
                    self.state = if left == 0 {
                        State::Done
                    } else {
                        State::Length(left)
                    };
                    return Ok(Piece::Data(data));
                }
                State::Close => {
                    let Some((data, _)) = take(buf, u64::MAX) else {
                        return Ok(Piece::More);
                    };
                    return Ok(Piece::Data(data));
                }
                State::ChunkSize => match chunk_size(buf)? {
                    None => return Ok(Piece::More),
                    Some(0) => self.state = State::Trailers,
                    Some(n) => self.state = State::ChunkData(n),
                },
                State::ChunkData(left) => {
                    let Some((data, left)) = take(buf, left) else {
                        return Ok(Piece::More);
                    };
                    self.state = if left == 0 {
                        State::ChunkEnd
                    } else {
                        State::ChunkData(left)
                    };
                    return Ok(Piece::Data(data));
                }
                State::ChunkEnd => {
                    if !buf.is_empty() && buf[0] != b'\r' {
                        return Err(FramingError::ChunkEnd);
                    }
                    if buf.len() < 2 {
                        return Ok(Piece::More);
                    }
                    if &buf[..2] != b"\r\n" {
                        return Err(FramingError::ChunkEnd);
                    }
                    buf.advance(2);
                    self.state = State::ChunkSize;
                }
                State::Trailers => return self.trailers(buf),
            }
        }
    }

    /// Records that the sender has closed its side.
    pub(crate) fn eof(&mut self) -> Result<(), FramingError> {
        match self.state {
            State::Close | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(FramingError::UnexpectedEof),
        }
    }

    fn trailers(&mut self, buf: &mut BytesMut) -> Result<Piece, FramingError> {
        if buf.starts_with(b"\r\n") {
            buf.advance(2);
            self.state = State::Done;
            return Ok(Piece::End);
        }
        match head::parse_trailers(buf)? {
            None if buf.len() > MAX_TRAILERS => Err(HeadError::TooLarge.into()),
            None => Ok(Piece::More),
            Some((trailers, len)) => {
                buf.advance(len);
                self.state = State::Done;
                Ok(Piece::Trailers(trailers))
            }
        }
    }
}

/// Removes up to `limit` bytes from the front, and returns them with the rest of the limit.
fn take(buf: &mut BytesMut, limit: u64) -> Option<(Bytes, u64)> {
    if buf.is_empty() {
        return None;
    }
    let n = usize::try_from(limit).unwrap_or(usize::MAX).min(buf.len());
    Some((buf.split_to(n).freeze(), limit - n as u64))
}

/// Parses and consumes `chunk-size [ chunk-ext ] CRLF`.
fn chunk_size(buf: &mut BytesMut) -> Result<Option<u64>, FramingError> {
    let Some(end) = memchr::memchr(b'\n', &buf[..buf.len().min(MAX_CHUNK_LINE)]) else {
        if buf.len() >= MAX_CHUNK_LINE {
            return Err(FramingError::ChunkLineTooLong);
        }
        return Ok(None);
    };
    let Some(line) = buf[..end].strip_suffix(b"\r") else {
        return Err(FramingError::ChunkSize);
    };
    let size = parse_chunk_line(line)?;
    buf.advance(end + 1);
    Ok(Some(size))
}

fn parse_chunk_line(line: &[u8]) -> Result<u64, FramingError> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    // 15 digits allow an exabyte, which is sufficient and cannot overflow.
    if digits == 0 || digits > 15 {
        return Err(FramingError::ChunkSize);
    }
    // Only these are whitespace here (RFC 9112 §7.1.1), not CR or form feed.
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let spaces = line[digits..].iter().take_while(|b| is_space(b)).count();
    let rest = &line[digits + spaces..];
    let extension_is_text = rest.iter().all(|&b| b == b'\t' || (b >= 0x20 && b != 0x7f));
    if !(rest.is_empty() || rest[0] == b';') || !extension_is_text {
        return Err(FramingError::ChunkSize);
    }
    let mut size = 0;
    for &b in &line[..digits] {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            _ => (b | 0x20) - b'a' + 10,
        };
        size = size << 4 | u64::from(digit);
    }
    Ok(size)
}

/// Appends the size line of a chunk.
pub(crate) fn encode_chunk_size(len: usize, out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0u8; 16];
    let mut at = digits.len();
    let mut rest = len;
    loop {
        at -= 1;
        digits[at] = HEX[rest & 15];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailers.
pub(crate) fn encode_chunked_end(trailers: Option<&HeaderMap>, out: &mut BytesMut) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        head::encode_trailers(trailers, out);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
