//! Headers of frames, and the parts of payloads that precede their content (RFC 9113, sections 4.1 and 6).

use bytes::BytesMut;

use super::reason::Malformed;

/// Length of a frame's header, in bytes.
pub(crate) const HEADER: usize = 9;
/// Maximum length of a payload in either direction, in bytes: the default unless the peer allows more.
pub(crate) const MAX_PAYLOAD: usize = 16 * 1024;
/// The first bytes that a client sends.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(super) mod kind {
    pub(in crate::protocol::http2) const DATA: u8 = 0;
    pub(in crate::protocol::http2) const HEADERS: u8 = 1;
    pub(in crate::protocol::http2) const PRIORITY: u8 = 2;
    pub(in crate::protocol::http2) const RST_STREAM: u8 = 3;
    pub(in crate::protocol::http2) const SETTINGS: u8 = 4;
    pub(in crate::protocol::http2) const PUSH_PROMISE: u8 = 5;
    pub(in crate::protocol::http2) const PING: u8 = 6;
    pub(in crate::protocol::http2) const GOAWAY: u8 = 7;
    pub(in crate::protocol::http2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::protocol::http2) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(super) mod flag {
    pub(in crate::protocol::http2) const ACK: u8 = 0x1;
    pub(in crate::protocol::http2) const END_STREAM: u8 = 0x1;
    pub(in crate::protocol::http2) const END_HEADERS: u8 = 0x4;
    pub(in crate::protocol::http2) const PADDED: u8 = 0x8;
    pub(in crate::protocol::http2) const PRIORITY: u8 = 0x20;
}

/// Maximum number of a stream, and maximum size of a window.
pub(super) const LAST_STREAM: u32 = 0x7fff_ffff;

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    pub(super) fn parse(bytes: [u8; HEADER]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) const TOO_MUCH_PADDING: Malformed = Malformed::protocol("padding longer than its frame");

/// Checks for lengths that are invalid regardless of the stream.
pub(super) fn check_size(header: Header) -> Result<(), Malformed> {
    let length = header.length;
    let fits = match header.kind {
        kind::DATA => length > 0 || !header.has(flag::PADDED),
        kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
        kind::PING => length == 8,
        kind::GOAWAY => length >= 8,
        kind::SETTINGS if header.has(flag::ACK) => length == 0,
        kind::SETTINGS => length.is_multiple_of(6),
        _ => true,
    };
    fits.then_some(()).ok_or(Malformed::size(
        "a frame whose length does not fit its type",
    ))
}

/// Returns the part of a field block that a payload contains, and whether the stream depends on itself.
pub(super) fn fragment(header: Header, payload: &[u8]) -> Result<(&[u8], bool), Malformed> {
    const SHORT: Malformed = Malformed::size("a HEADERS frame without its first fields");
    let mut part = payload;
    if header.kind == kind::CONTINUATION {
        return Ok((part, false));
    }
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let (first, rest) = part.split_first().ok_or(SHORT)?;
        padding = usize::from(*first);
        part = rest;
    }
    let mut circular = false;
    if header.has(flag::PRIORITY) {
        let (priority, rest) = part.split_first_chunk::<5>().ok_or(SHORT)?;
        let [d0, d1, d2, d3, _] = *priority;
        let dependency = u32::from_be_bytes([d0, d1, d2, d3]) & LAST_STREAM;
        circular = dependency == header.stream;
        part = rest;
    }
    let length = part.len().checked_sub(padding).ok_or(TOO_MUCH_PADDING)?;
    Ok((&part[..length], circular))
}

/// Encodes a frame's header.
pub(super) fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    // Callers split payloads at `MAX_PAYLOAD`.
    let [_, l0, l1, l2] = (length as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [l0, l1, l2, kind, flags, s0, s1, s2, s3]
}

/// Appends a frame whose payload is one or two 32-bit words.
pub(super) fn encode_words(kind: u8, stream: u32, words: &[u32], out: &mut BytesMut) {
    out.extend_from_slice(&header(4 * words.len(), kind, 0, stream));
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}
