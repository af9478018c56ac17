//! Decoder and encoder of the frames of HTTP/2 (RFC 9113, sections 4 and 6), without a socket.
//!
//! A frame that is invalid regardless of earlier frames is an error that ends the connection. Checks that depend on
//! the state of a stream are left to the caller.

pub use super::header::PREFACE;
pub(super) use super::header::{HEADER, MAX_PAYLOAD};
use super::header::{Header, TOO_MUCH_PADDING, check_size, fragment};
pub(super) use super::header::{LAST_STREAM, encode_words, flag, header, kind};
use super::reason::{Malformed, Reason};

/// A decoded frame. DATA is reported piece by piece as it arrives; field blocks are reported whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Frame<'a> {
    /// A piece of a body.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes; may be empty.
        bytes: &'a [u8],
        /// Number of further bytes that count for flow control, reported with the last piece of a frame.
        padding: u32,
        /// Whether the message ends here.
        end: bool,
    },
    /// The peer is closing the connection.
    Goaway {
        /// Number of the last stream that the peer processes, of those that this side has begun.
        last: u32,
        /// The error code.
        reason: Reason,
    },
    /// A whole field block.
    Headers {
        /// The stream.
        stream: u32,
        /// The block in HPACK encoding.
        block: &'a [u8],
        /// Whether the message ends here.
        end: bool,
        /// Whether the stream depends on itself, which is a stream error.
        circular: bool,
    },
    /// A part of a field block that is continued in the next frame.
    Part {
        /// Whether it has no bytes.
        empty: bool,
    },
    /// A PING with the data to be sent back.
    Ping([u8; 8]),
    /// The acknowledgement of a PING.
    Pong,
    /// A priority, which is ignored; a malformed one is an error of its stream.
    Priority {
        /// The stream.
        stream: u32,
        /// The error; `None` if the priority is valid.
        wrong: Option<Reason>,
    },
    /// The stream is reset.
    Reset {
        /// The stream.
        stream: u32,
        /// The error code.
        reason: Reason,
    },
    /// The peer's settings: pairs of an identifier (two bytes) and a value (four bytes).
    Settings(&'a [u8]),
    /// The peer has acknowledged our settings.
    SettingsTaken,
    /// A frame of an unknown type.
    Unknown,
    /// Credit for further bytes of bodies.
    Window {
        /// The stream; 0 stands for the connection.
        stream: u32,
        /// The credit in bytes; 0 is an error of the stream or of the connection.
        increment: u32,
    },
}

/// State of the decoder.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Number of received bytes of the preface.
    Preface(usize),
    Header,
    /// Before the byte that contains the padding length of a DATA frame.
    Padding(Header),
    /// In a body: remaining bytes, and the length of the padding.
    Data(Header, usize, u8),
    Payload(Header),
    /// Number of bytes left to skip.
    Skip(usize),
}

/// A field block whose first part has been received.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    circular: bool,
    bytes: Vec<u8>,
}

/// Location of a payload.
enum Payload<'i> {
    Input(&'i [u8]),
    Partial,
}

/// Splits input of any fragmentation into frames.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// The beginning of a header or payload.
    partial: Vec<u8>,
    /// Whether the content of `partial` has been returned.
    spent: bool,
    block: Option<Block>,
    /// Maximum length of a field block, in bytes.
    block_limit: usize,
    /// Whether the peer's SETTINGS, which must be the first frame, have been received.
    settled: bool,
}

impl Decoder {
    /// Creates a decoder of a client's data. `block_limit` is the maximum length of a field block, in bytes.
    #[must_use]
    pub(crate) fn new(block_limit: usize) -> Self {
        Self {
            state: State::Preface(0),
            partial: Vec::new(),
            spent: false,
            block: None,
            block_limit,
            settled: false,
        }
    }

    /// Creates a decoder of a server's data, which begins without a preface.
    pub(super) fn of_server(block_limit: usize) -> Self {
        Self {
            state: State::Header,
            ..Self::new(block_limit)
        }
    }

    /// Returns whether the peer's preface or the rest of a field block is missing.
    pub(super) fn is_in_head(&self) -> bool {
        let headers = |header: Header| matches!(header.kind, kind::HEADERS | kind::CONTINUATION);
        !self.settled
            || self.block.is_some()
            || matches!(self.state, State::Payload(header) if headers(header))
    }

    /// Returns whether the input begins with an RST_STREAM frame.
    pub(super) fn is_reset_next(&self, input: &[u8]) -> bool {
        matches!(self.state, State::Header)
            && (self.spent || self.partial.is_empty())
            && input.get(3) == Some(&kind::RST_STREAM)
    }

    /// Returns the next frame; `None` if all input was consumed and more is needed.
    ///
    /// # Errors
    /// If the input is not a valid frame; the connection cannot continue.
    pub(crate) fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'s>>, Malformed> {
        if std::mem::take(&mut self.spent) {
            // The buffer is rarely used, so its capacity is not kept.
            self.partial = Vec::new();
        }
        let (header, payload) = loop {
            match self.state {
                State::Preface(seen) => {
                    let wanted = &PREFACE[seen..];
                    let bytes = take(input, wanted.len());
                    if !wanted.starts_with(bytes) {
                        return Err(Malformed::protocol("an invalid HTTP/2 connection preface"));
                    }
                    if bytes.len() < wanted.len() {
                        self.state = State::Preface(seen + bytes.len());
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Header => match self.header(input) {
                    None => return Ok(None),
                    Some(header) => {
                        self.state = self.begin(header)?;
                        if header.kind > kind::CONTINUATION {
                            return Ok(Some(Frame::Unknown));
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
                State::Padding(header) => {
                    let Some((padding, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    let left = (header.length - 1).checked_sub((*padding).into());
                    let left = left.ok_or(TOO_MUCH_PADDING)?;
                    self.state = State::Data(header, left, *padding);
                }
                State::Data(header, left, padding) => {
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    return Ok(Some(self.data(header, left, padding, input)));
                }
                State::Payload(header) => {
                    let Some(payload) = self.payload(header, input) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    if !matches!(header.kind, kind::HEADERS | kind::CONTINUATION) {
                        break (header, payload);
                    }
                    if self.block.is_none() && header.has(flag::END_HEADERS) {
                        break (header, payload);
                    }
                    let empty = header.length == 0;
                    return Ok(Some(match self.join(header, &payload)? {
                        Some(block) => self.whole(block),
                        None => Frame::Part { empty },
                    }));
                }
            }
        };
        self.interpret(header, &payload).map(Some)
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
            return Err(Malformed::size("a frame longer than 16384 bytes"));
        }
        if !self.settled {
            if kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(Malformed::protocol("a frame before the first SETTINGS"));
            }
            self.settled = true;
        }
        let continues = self.block.as_ref().map(|block| block.stream);
        if continues.is_some() != (kind == kind::CONTINUATION)
            || continues.is_some_and(|expected| expected != stream)
        {
            return Err(Malformed::protocol(
                "a missing or unexpected CONTINUATION frame",
            ));
        }
        check_size(header)?;
        let of_stream = match kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION => {
                Some(true)
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY => Some(false),
            kind::PUSH_PROMISE => {
                return Err(Malformed::protocol("a PUSH_PROMISE frame"));
            }
            _ => None,
        };
        if of_stream.is_some_and(|of_stream| of_stream != (stream != 0)) {
            return Err(Malformed::protocol(
                "a frame type that is not allowed on its stream",
            ));
        }
        Ok(match kind {
            kind::DATA if header.has(flag::PADDED) => State::Padding(header),
            kind::DATA => State::Data(header, length, 0),
            _ if kind > kind::CONTINUATION => State::Skip(length),
            _ => State::Payload(header),
        })
    }

    /// Returns the next piece of a body.
    fn data<'i>(
        &mut self,
        header: Header,
        left: usize,
        padding: u8,
        input: &mut &'i [u8],
    ) -> Frame<'i> {
        let bytes = take(input, left);
        let left = left - bytes.len();
        let last = left == 0;
        self.state = match (last, padding) {
            (false, _) => State::Data(header, left, padding),
            (true, 0) => State::Header,
            (true, padding) => State::Skip(padding.into()),
        };
        // This includes the byte that contains the padding length.
        let all_padding = match header.has(flag::PADDED) {
            true => u32::from(padding) + 1,
            false => 0,
        };
        Frame::Data {
            stream: header.stream,
            bytes,
            padding: if last { all_padding } else { 0 },
            end: last && header.has(flag::END_STREAM),
        }
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

    /// Adds a part to a field block; returns the block if this was the last part.
    fn join(&mut self, header: Header, payload: &Payload<'_>) -> Result<Option<Block>, Malformed> {
        let payload = match payload {
            Payload::Input(bytes) => bytes,
            Payload::Partial => &self.partial[..],
        };
        let (part, circular) = fragment(header, payload)?;
        let block = self.block.get_or_insert_with(|| Block {
            stream: header.stream,
            end: header.has(flag::END_STREAM),
            circular,
            bytes: Vec::new(),
        });
        if block.bytes.len() + part.len() > self.block_limit {
            return Err(TOO_LONG);
        }
        block.bytes.extend_from_slice(part);
        if std::mem::take(&mut self.spent) {
            self.partial.clear();
        }
        if header.has(flag::END_HEADERS) {
            return Ok(self.block.take());
        }
        Ok(None)
    }

    /// Returns a joined block, which is kept in `partial`.
    fn whole(&mut self, block: Block) -> Frame<'_> {
        self.partial = block.bytes;
        self.spent = true;
        Frame::Headers {
            stream: block.stream,
            block: &self.partial,
            end: block.end,
            circular: block.circular,
        }
    }

    fn interpret<'s, 'i: 's>(
        &'s mut self,
        header: Header,
        payload: &Payload<'i>,
    ) -> Result<Frame<'s>, Malformed> {
        let bytes: &'s [u8] = match payload {
            Payload::Input(bytes) => bytes,
            Payload::Partial => &self.partial,
        };
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
            word.map_or(0, |word| u32::from_be_bytes(*word))
        };
        let stream = header.stream;
        Ok(match header.kind {
            kind::HEADERS => {
                let (block, circular) = fragment(header, bytes)?;
                if block.len() > self.block_limit {
                    return Err(TOO_LONG);
                }
                let end = header.has(flag::END_STREAM);
                Frame::Headers {
                    stream,
                    block,
                    end,
                    circular,
                }
            }
            kind::PRIORITY => Frame::Priority {
                stream,
                wrong: match bytes.len() {
                    5 => (word(0) & LAST_STREAM == stream).then_some(Reason::Protocol),
                    _ => Some(Reason::FrameSize),
                },
            },
            kind::RST_STREAM => Frame::Reset {
                stream,
                reason: Reason::of(word(0)),
            },
            kind::SETTINGS if header.has(flag::ACK) => Frame::SettingsTaken,
            kind::SETTINGS => Frame::Settings(bytes),
            kind::PING if header.has(flag::ACK) => Frame::Pong,
            kind::PING => Frame::Ping(bytes.first_chunk().copied().unwrap_or_default()),
            kind::GOAWAY => Frame::Goaway {
                last: word(0) & LAST_STREAM,
                reason: Reason::of(word(4)),
            },
            // WINDOW_UPDATE; other types are never returned.
            _ => Frame::Window {
                stream,
                increment: word(0) & LAST_STREAM,
            },
        })
    }
}

const TOO_LONG: Malformed = Malformed::new(
    Reason::EnhanceYourCalm,
    "a field block longer than the limit",
);
/// Removes up to `n` bytes from the front and returns them.
fn take<'i>(input: &mut &'i [u8], n: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
