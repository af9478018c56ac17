//! Decoder and encoder of frames, without a socket. A frame is a header of eight bytes and a payload.
//!
//! ```text
//!  0        2      3       4                8
//! +--------+------+-------+----------------+---------
//! | length | kind | flags | stream         | payload …
//! +--------+------+-------+----------------+---------
//! ```
//!
//! Numbers are big-endian, and `length` is the length of the payload. A payload has at most [`MAX_PAYLOAD`] bytes, so
//! that the longest frame fills one TLS record. Frames of unknown kinds are ignored.

use bytes::BytesMut;

/// Length of a frame's header, in bytes.
pub const HEADER: usize = 8;
/// Maximum length of a payload, in bytes.
pub const MAX_PAYLOAD: usize = 16 * 1024 - HEADER;

/// Kinds of frames.
pub(super) mod kind {
    pub(in crate::protocol::mesh_transport) const DATA: u8 = 0;
    pub(in crate::protocol::mesh_transport) const HEAD: u8 = 1;
    pub(in crate::protocol::mesh_transport) const TRAILERS: u8 = 2;
    pub(in crate::protocol::mesh_transport) const RESET: u8 = 3;
    pub(in crate::protocol::mesh_transport) const WINDOW: u8 = 4;
    pub(in crate::protocol::mesh_transport) const PING: u8 = 5;
    pub(in crate::protocol::mesh_transport) const PONG: u8 = 6;
    pub(in crate::protocol::mesh_transport) const GOAWAY: u8 = 7;
    pub(in crate::protocol::mesh_transport) const SETTINGS: u8 = 8;
}

/// Flags of DATA, HEAD and TRAILERS.
pub(super) mod flag {
    /// The message ends with this frame.
    pub(in crate::protocol::mesh_transport) const END: u8 = 1;
    /// The text continues in the next frame.
    pub(in crate::protocol::mesh_transport) const MORE: u8 = 2;
    /// The request was originally HTTP/2.
    pub(in crate::protocol::mesh_transport) const HTTP2: u8 = 4;
}

/// Reason why a stream or a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Reason {
    /// No error: nothing more is needed.
    Done = 0,
    /// The client has cancelled the request.
    Cancelled = 1,
    /// The request was not processed and may be sent again.
    Refused = 2,
    /// A frame violates the protocol.
    Protocol = 3,
    /// The request cannot be finished.
    Failed = 4,
    /// The peer exceeds a limit on the work that it causes.
    Calm = 5,
}

impl Reason {
    /// Returns a description.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "no more is wanted",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Protocol => "protocol error",
            Self::Failed => "failed",
            Self::Calm => "too many frames",
        }
    }

    fn of(code: u32) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::Cancelled,
            2 => Self::Refused,
            3 => Self::Protocol,
            5 => Self::Calm,
            // A code of a later version of the protocol.
            _ => Self::Failed,
        }
    }
}

/// Violation of the protocol by a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The parts of a text have contradictory flags.
    #[error("parts of a head with different flags")]
    Flags,
    /// More bytes of a body than credit was granted for.
    #[error("more bytes than the flow-control window allows")]
    FlowControl,
    /// A frame was received between the parts of a text.
    #[error("a frame between the parts of a head")]
    Interleaved,
    /// The payload is too short or too long for the kind of frame.
    #[error("a frame of kind {0} with an invalid length")]
    Length(u8),
    /// A DATA frame is empty and ends nothing, or a WINDOW frame grants zero bytes.
    #[error("a frame of kind {0} without effect")]
    Nothing(u8),
    /// A frame of a stream without a stream number, or a frame of the connection with one.
    #[error("a frame of kind {0} on the wrong stream")]
    Stream(u8),
}

/// A decoded frame. DATA is reported piece by piece as it arrives; texts are reported whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// A piece of a body. `end` is set with the last one.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes; may be empty in the last piece.
        bytes: &'a [u8],
        /// Whether the message ends here.
        end: bool,
    },
    /// No further streams are accepted.
    Goaway {
        /// The last stream that is processed.
        last: u32,
        /// The reason.
        reason: Reason,
    },
    /// The head of a request or response, as HTTP/1.1 text; `None` if it is longer than the limit.
    Head {
        /// The stream.
        stream: u32,
        /// The text, including the final empty line.
        text: Option<&'a [u8]>,
        /// Whether there is no body.
        end: bool,
        /// Whether the request was originally HTTP/2.
        http2: bool,
    },
    /// Data to be sent back as [`Frame::Pong`].
    Ping(u64),
    /// See [`Frame::Ping`].
    Pong(u64),
    /// The stream is reset.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason.
        reason: Reason,
    },
    /// A frame without effect: it is of an unknown kind, or the text is continued in the next frame.
    Silent,
    /// Limits of the server.
    Settings {
        /// Maximum number of concurrent streams.
        max_streams: u32,
    },
    /// Fields after a body, which end the message; `None` if they are longer than the limit.
    Trailers {
        /// The stream.
        stream: u32,
        /// The text, including the final empty line.
        text: Option<&'a [u8]>,
    },
    /// Credit for further bytes of bodies.
    Window {
        /// The stream; 0 stands for the connection.
        stream: u32,
        /// The credit in bytes.
        increment: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Header {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Header {
    fn parse(bytes: [u8; HEADER]) -> Self {
        let [l0, l1, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: u16::from_be_bytes([l0, l1]).into(),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
        }
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn is_text(self) -> bool {
        matches!(self.kind, kind::HEAD | kind::TRAILERS)
    }
}

/// State of the decoder.
#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// In a body, with this many bytes before the end of the frame.
    Data(Header, usize),
    Payload(Header),
    /// Number of bytes left to skip.
    Skip(usize),
}

/// A text whose first part has been received.
#[derive(Debug)]
struct Text {
    first: Header,
    bytes: Vec<u8>,
    too_long: bool,
}

/// Location of a payload.
enum Payload<'i> {
    Input(&'i [u8]),
    Partial,
    Text(Text),
}

/// Splits input of any fragmentation into frames.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// The beginning of a header or payload.
    partial: Vec<u8>,
    /// Whether the content of `partial` has been returned.
    spent: bool,
    text: Option<Text>,
    text_limit: usize,
}

impl Decoder {
    /// Creates a decoder. `text_limit` is the maximum length of a head in bytes.
    #[must_use]
    pub fn new(text_limit: usize) -> Self {
        Self {
            state: State::Header,
            partial: Vec::new(),
            spent: false,
            text: None,
            text_limit,
        }
    }

    /// Returns whether the input begins with a RESET frame.
    pub(super) fn is_reset_next(&self, input: &[u8]) -> bool {
        matches!(self.state, State::Header)
            && (self.spent || self.partial.is_empty())
            && input.get(2) == Some(&kind::RESET)
    }

    /// Returns the next frame; `None` if all input was consumed and more is needed.
    ///
    /// # Errors
    /// If the input is not a valid frame; the connection cannot continue.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'s>>, Malformed> {
        if std::mem::take(&mut self.spent) {
            // The buffer is rarely used, so its capacity is not kept.
            self.partial = Vec::new();
        }
        let (header, payload) = loop {
            match self.state {
                State::Header => match self.header(input) {
                    None => return Ok(None),
                    Some(header) => {
                        self.state = self.begin(header)?;
                        if let State::Skip(_) = self.state {
                            return Ok(Some(Frame::Silent));
                        }
                    }
                },
                State::Skip(left) => {
                    let left = left - take(input, left).len();
                    if left > 0 {
                        self.state = State::Skip(left);
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Data(header, left) => {
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = take(input, left);
                    let left = left - bytes.len();
                    self.state = match left {
                        0 => State::Header,
                        _ => State::Data(header, left),
                    };
                    let end = left == 0 && header.has(flag::END);
                    let stream = header.stream;
                    return Ok(Some(Frame::Data { stream, bytes, end }));
                }
                State::Payload(header) => {
                    let Some(payload) = self.payload(header, input) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    if !header.is_text() || (self.text.is_none() && !header.has(flag::MORE)) {
                        break (header, payload);
                    }
                    match self.join(header, &payload) {
                        Some(text) => break (text.first, Payload::Text(text)),
                        None => return Ok(Some(Frame::Silent)),
                    }
                }
            }
        };
        self.interpret(header, payload).map(Some)
    }

    fn header(&mut self, input: &mut &[u8]) -> Option<Header> {
        if self.partial.is_empty()
            && let Some((bytes, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(Header::parse(*bytes));
        }
        let missing = HEADER - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        let bytes = <[u8; HEADER]>::try_from(&self.partial[..]).ok()?;
        self.partial.clear();
        Some(Header::parse(bytes))
    }

    /// Checks whether such a frame is allowed in the current state, and returns how its payload is handled.
    fn begin(&mut self, header: Header) -> Result<State, Malformed> {
        let Header {
            length,
            kind,
            stream,
            ..
        } = header;
        if length > MAX_PAYLOAD {
            return Err(Malformed::Length(kind));
        }
        if let Some(Text { first, .. }) = &self.text {
            let same = |flag| first.has(flag) == header.has(flag);
            if (first.kind, first.stream) != (kind, stream) {
                return Err(Malformed::Interleaved);
            }
            if !same(flag::END) || !same(flag::HTTP2) {
                return Err(Malformed::Flags);
            }
        }
        let (fits, of_stream) = match kind {
            kind::DATA | kind::HEAD | kind::TRAILERS => (true, Some(true)),
            kind::RESET => (length == 4, Some(true)),
            kind::WINDOW => (length == 4, None),
            kind::PING | kind::PONG | kind::GOAWAY => (length == 8, Some(false)),
            kind::SETTINGS => (length >= 4, Some(false)),
            _ => return Ok(State::Skip(length)),
        };
        if !fits {
            return Err(Malformed::Length(kind));
        }
        if of_stream.is_some_and(|of_stream| of_stream != (stream != 0)) {
            return Err(Malformed::Stream(kind));
        }
        if kind != kind::DATA {
            return Ok(State::Payload(header));
        }
        if length == 0 && !header.has(flag::END) {
            return Err(Malformed::Nothing(kind));
        }
        Ok(State::Data(header, length))
    }

    /// Returns the whole payload of a frame, once it is complete.
    fn payload<'i>(&mut self, header: Header, input: &mut &'i [u8]) -> Option<Payload<'i>> {
        if self.partial.is_empty() && input.len() >= header.length {
            return Some(Payload::Input(take(input, header.length)));
        }
        let missing = header.length - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        (self.partial.len() == header.length).then(|| {
            self.spent = true;
            Payload::Partial
        })
    }

    /// Adds a part to a text; returns the text if this was the last part.
    fn join(&mut self, header: Header, payload: &Payload<'_>) -> Option<Text> {
        let text = self.text.get_or_insert_with(|| Text {
            first: header,
            bytes: Vec::new(),
            too_long: false,
        });
        let part = match payload {
            Payload::Input(bytes) => bytes,
            _ => &self.partial[..],
        };
        if text.bytes.len() + part.len() > self.text_limit {
            text.too_long = true;
            text.bytes = Vec::new();
        } else if !text.too_long {
            text.bytes.extend_from_slice(part);
        }
        if std::mem::take(&mut self.spent) {
            self.partial.clear();
        }
        if header.has(flag::MORE) {
            return None;
        }
        self.text.take()
    }

    fn interpret<'s, 'i: 's>(
        &'s mut self,
        header: Header,
        payload: Payload<'i>,
    ) -> Result<Frame<'s>, Malformed> {
        let (bytes, too_long): (&'s [u8], _) = match payload {
            Payload::Input(bytes) => (bytes, bytes.len() > self.text_limit),
            Payload::Partial => (&self.partial, self.partial.len() > self.text_limit),
            Payload::Text(text) => {
                // Returned from the buffer that otherwise holds parts of frames.
                self.partial = text.bytes;
                self.spent = true;
                (&self.partial, text.too_long)
            }
        };
        let text = (!too_long).then_some(bytes);
        let stream = header.stream;
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
            word.map_or(0, |word| u32::from_be_bytes(*word))
        };
        let long = u64::from(word(0)) << 32 | u64::from(word(4));
        Ok(match header.kind {
            kind::HEAD => Frame::Head {
                stream,
                text,
                end: header.has(flag::END),
                http2: header.has(flag::HTTP2),
            },
            kind::TRAILERS => Frame::Trailers { stream, text },
            kind::RESET => Frame::Reset {
                stream,
                reason: Reason::of(word(0)),
            },
            kind::WINDOW if word(0) == 0 => return Err(Malformed::Nothing(kind::WINDOW)),
            kind::WINDOW => Frame::Window {
                stream,
                increment: word(0),
            },
            kind::PING => Frame::Ping(long),
            kind::PONG => Frame::Pong(long),
            kind::GOAWAY => Frame::Goaway {
                last: word(0),
                reason: Reason::of(word(4)),
            },
            _ => Frame::Settings {
                max_streams: word(0),
            },
        })
    }
}

/// Removes up to `n` bytes from the front and returns them.
fn take<'i>(input: &mut &'i [u8], n: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    taken
}

/// Encodes a frame's header.
pub(super) fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    // Callers split payloads at `MAX_PAYLOAD`.
    let [l0, l1] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    [l0, l1, kind, flags, s0, s1, s2, s3]
}

/// Appends a frame whose payload is one or two 32-bit words.
pub(super) fn encode_words(kind: u8, stream: u32, words: &[u32], out: &mut BytesMut) {
    out.extend_from_slice(&header(4 * words.len(), kind, 0, stream));
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
