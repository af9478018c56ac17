//! Frames of HTTP/2 (RFC 9113, sections 4 and 6): bytes in, frames out; no socket.
//!
//! What is wrong with a frame whatever came before it ends the connection here. Everything that depends on the state of a
//! stream is left to the caller, which gets the facts.

pub use super::header::PREFACE;
pub(super) use super::header::{HEADER, MAX_PAYLOAD};
use super::header::{Header, TOO_MUCH_PADDING, check_size, fragment};
pub(super) use super::header::{LAST_STREAM, encode_words, flag, header, kind};
use super::reason::{Malformed, Reason};

/// What a frame says. Of DATA each piece is reported as it comes; field blocks are reported whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Frame<'a> {
    /// A piece of a body.
    Data {
        /// Whose.
        stream: u32,
        /// May be empty.
        bytes: &'a [u8],
        /// Bytes besides that count for flow control, reported with the last piece of a frame.
        padding: u32,
        /// Nothing of the message follows.
        end: bool,
    },
    /// The peer begins no further streams.
    Goaway,
    /// A whole field block.
    Headers {
        /// Whose.
        stream: u32,
        /// In the form of HPACK.
        block: &'a [u8],
        /// Nothing of the message follows.
        end: bool,
        /// The stream depends on itself, which is a stream error.
        circular: bool,
    },
    /// A part of a field block that goes on.
    Part {
        /// It has no byte.
        empty: bool,
    },
    /// To be sent back.
    Ping([u8; 8]),
    /// What was sent has come back.
    Pong,
    /// Advice that is ignored; an error of its stream where there is a reason.
    Priority {
        /// Whose.
        stream: u32,
        /// What is wrong with it.
        wrong: Option<Reason>,
    },
    /// The stream is given up.
    Reset {
        /// Which.
        stream: u32,
        /// Why.
        reason: Reason,
    },
    /// Pairs of two and four bytes.
    Settings(&'a [u8]),
    /// The peer has taken our settings.
    SettingsTaken,
    /// A type of frame that is not known.
    Unknown,
    /// Credit for further bytes of bodies.
    Window {
        /// Which; 0 = all of them together.
        stream: u32,
        /// In bytes; 0 is an error of the stream, or of the connection.
        increment: u32,
    },
}

/// Where the decoder stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the preface have come.
    Preface(usize),
    Header,
    /// Before the length of a DATA frame's padding.
    Padding(Header),
    /// In a body, so many bytes before its end, with so much padding in all.
    Data(Header, usize, u8),
    Payload(Header),
    /// Bytes left to skip.
    Skip(usize),
}

/// A field block whose first part has come.
#[derive(Debug)]
struct Block {
    stream: u32,
    end: bool,
    circular: bool,
    bytes: Vec<u8>,
}

/// Where a payload lies.
enum Payload<'i> {
    Input(&'i [u8]),
    Partial,
}

/// Finds frames in what is read, however it is cut.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// The beginning of a header or payload.
    partial: Vec<u8>,
    /// The content of `partial` has been returned.
    spent: bool,
    block: Option<Block>,
    /// Bytes of the longest field block.
    block_limit: usize,
    /// The peer's SETTINGS, which come first, have come.
    settled: bool,
}

impl Decoder {
    /// Of what a client sends; `block_limit` is the length of the longest field block, in bytes.
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

    /// Whether the peer's preface, or a part of a field block, is still to come.
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

    /// The next frame; `None` = more input is needed, and all of it was taken.
    ///
    /// # Errors
    /// When no frame can begin like this; the connection cannot go on.
    pub(crate) fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'s>>, Malformed> {
        if std::mem::take(&mut self.spent) {
            // Rarely used, so nothing is kept.
            self.partial = Vec::new();
        }
        let (header, payload) = loop {
            match self.state {
                State::Preface(seen) => {
                    let wanted = &PREFACE[seen..];
                    let bytes = take(input, wanted.len());
                    if !wanted.starts_with(bytes) {
                        return Err(Malformed::protocol("not the preface of HTTP/2"));
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

    /// What is to be done with a frame's payload, and whether there may be such a frame here.
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
            return Err(Malformed::protocol("a field block that is not continued"));
        }
        check_size(header)?;
        let of_stream = match kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION => {
                Some(true)
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY => Some(false),
            kind::PUSH_PROMISE => return Err(Malformed::protocol("a PUSH_PROMISE of a client")),
            _ => None,
        };
        if of_stream.is_some_and(|of_stream| of_stream != (stream != 0)) {
            return Err(Malformed::protocol("a frame on the wrong stream"));
        }
        Ok(match kind {
            kind::DATA if header.has(flag::PADDED) => State::Padding(header),
            kind::DATA => State::Data(header, length, 0),
            _ if kind > kind::CONTINUATION => State::Skip(length),
            _ => State::Payload(header),
        })
    }

    /// The next piece of a body.
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
        // With the byte that says how much it is.
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

    /// The whole payload of a frame, once it is there.
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

    /// Adds a part to a field block; the block, when this was the last part.
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

    /// A block that was joined is returned from where parts of frames lie.
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
            kind::GOAWAY => Frame::Goaway,
            // WINDOW_UPDATE; others are never returned.
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
/// Takes up to `n` bytes from the front.
fn take<'i>(input: &mut &'i [u8], n: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
