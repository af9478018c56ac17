//! One request and its response on a connection (RFC 9113, section 5).

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::STREAM_WINDOW;
use super::closed::{Closed, Failed};
use super::connection::{Channel, Core, State, Stream};
use super::frame::{self, HEADER, LAST_STREAM, MAX_PAYLOAD, flag, kind};
use super::head::Unfit;
use super::hpack;
use super::reason::Reason;
use crate::os::memory;
use crate::protocol::fields::{CONNECTION_FIELDS, Fields, Known};
use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::message::Interim;
use crate::protocol::receive_buffer::Received;

/// Effect of a frame on its stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FrameOutcome {
    Open,
    /// Both sides have ended.
    Closed,
    /// The peer has violated the protocol: the stream must be reset.
    Violation(Reason),
}

impl State {
    #[inline]
    pub(super) fn new(send_window: u32) -> Self {
        Self {
            answer: None,
            received: Received::default(),
            trailers: None,
            expected: None,
            window: STREAM_WINDOW,
            taken: 0,
            unwanted: false,
            remote_ended: false,
            local_ended: false,
            closed: false,
            failed: None,
            send_window: send_window.into(),
            reader: None,
            writer: None,
        }
    }

    pub(super) fn wake(&mut self) {
        self.wake_reader();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn fail(&mut self, failed: Failed) {
        self.closed = true;
        self.failed.get_or_insert(failed);
        self.wake();
    }

    /// Ends sending; what was received stays valid.
    fn leave(&mut self) {
        self.closed = true;
        self.wake();
    }

    pub(super) fn wrong(&mut self, failed: Failed) -> FrameOutcome {
        self.fail(failed);
        FrameOutcome::Violation(Reason::Protocol)
    }

    pub(super) fn outcome(&self) -> FrameOutcome {
        match self.remote_ended && self.local_ended {
            true => FrameOutcome::Closed,
            false => FrameOutcome::Open,
        }
    }

    /// Returns whether nothing more will be read.
    fn is_read(&self) -> bool {
        self.remote_ended && self.received.is_empty() && self.trailers.is_none()
    }
}

/// Effects of received frames; the connection's core is borrowed.
impl Stream {
    /// Creates the stream of a request whose head was received. `expected` is the length of the body; `None` if
    /// unknown.
    pub(super) fn accepted(
        channel: &Rc<Channel>,
        id: u32,
        send_window: u32,
        (expected, end): (Option<u64>, bool),
    ) -> Rc<Self> {
        let state = State {
            expected,
            remote_ended: end,
            ..State::new(send_window)
        };
        Self::new(channel, id, state)
    }

    // Inlined, so that the state is created where it stays.
    #[inline]
    pub(super) fn new(channel: &Rc<Channel>, id: u32, state: State) -> Rc<Self> {
        Rc::new(Self {
            channel: Rc::clone(channel),
            id,
            state: RefCell::new(state),
        })
    }

    pub(super) fn data(
        &self,
        bytes: &[u8],
        padding: u32,
        end: bool,
        output: &mut BytesMut,
    ) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return FrameOutcome::Violation(Reason::StreamClosed);
        }
        if state.answer.as_ref().is_some_and(|answer| !answer.here) {
            // A body without a head.
            return state.wrong(Failed::Malformed);
        }
        // A frame is at most 16 kB long.
        let length = bytes.len() as u32;
        let Some(left) = state.window.checked_sub(length + padding) else {
            return FrameOutcome::Violation(Reason::FlowControl);
        };
        state.window = left;
        if let Some(expected) = &mut state.expected {
            let Some(left) = expected.checked_sub(length.into()) else {
                return state.wrong(Failed::Body(FramingError::Longer));
            };
            *expected = left;
        }
        if end && let Some(1..) = state.expected {
            return state.wrong(Failed::Body(FramingError::UnexpectedEof));
        }
        state.taken += padding;
        if state.unwanted {
            state.window += length;
        } else if !bytes.is_empty() {
            state.received.push(bytes);
        }
        if padding > 0
            && let Some(credit) = state.credit()
        {
            frame::encode_words(kind::WINDOW_UPDATE, self.id, &[credit], output);
        }
        state.remote_ended = end;
        state.wake_reader();
        state.outcome()
    }

    pub(super) fn trailers(&self, trailers: Result<HeaderMap, Unfit>, end: bool) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return FrameOutcome::Violation(Reason::StreamClosed);
        }
        if let Some(1..) = state.expected {
            return state.wrong(Failed::Body(FramingError::UnexpectedEof));
        }
        let trailers = match trailers {
            Ok(trailers) if end => trailers,
            Err(Unfit::Refused(error)) => return state.wrong(Failed::Body(error.into())),
            Ok(_) | Err(Unfit::Malformed) => {
                return state.wrong(Failed::Body(HeadError::Malformed.into()));
            }
        };
        state.trailers = (!trailers.is_empty() && !state.unwanted).then_some(trailers);
        state.remote_ended = true;
        state.wake_reader();
        state.outcome()
    }

    /// Changes the send window; returns whether the result is valid.
    pub(super) fn resize(&self, change: i64) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.send_window += change;
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        state.send_window <= LAST_STREAM.into()
    }

    /// Records that the peer has reset the stream. A request that was complete stays valid, and so does a response
    /// (RFC 9113, section 8.1).
    pub(super) fn given_up(&self, reason: Reason) {
        let state = &mut *self.state.borrow_mut();
        match &state.answer {
            Some(_) if state.remote_ended => state.leave(),
            Some(answer) if reason == Reason::RefusedStream && !answer.here => {
                state.fail(Failed::Refused);
            }
            Some(_) => state.fail(Failed::Reset(reason)),
            None => state.fail(Failed::Gone),
        }
    }

    /// Records that the peer has violated the protocol on this stream.
    pub(super) fn break_off(&self) {
        self.state.borrow_mut().fail(Failed::Malformed);
    }

    /// Records that the connection has ended.
    pub(super) fn lose(&self, closed: Closed) {
        let state = &mut *self.state.borrow_mut();
        match &state.answer {
            Some(_) if state.remote_ended => state.leave(),
            Some(_) => state.fail(Failed::Closed(closed)),
            None => state.fail(Failed::Gone),
        }
    }
}

impl State {
    /// Returns the credit to grant to the peer once there is enough for a frame.
    pub(super) fn credit(&mut self) -> Option<u32> {
        if self.taken < STREAM_WINDOW / 2 || self.remote_ended || self.closed {
            return None;
        }
        let credit = std::mem::take(&mut self.taken);
        self.window += credit;
        Some(credit)
    }
}

/// Operations of this side.
impl Stream {
    /// Becomes ready when the stream has been reset; polled by the task that responds to the request.
    pub(crate) fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(());
        }
        remember(&mut state.writer, cx);
        Poll::Pending
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }

    /// Becomes ready when there is room for a head.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.channel.poll_room(cx)
    }

    /// Sends the head of a response, without fields that have no meaning in HTTP/2. Unless it is the end, the caller sends
    /// the body now, or calls [`Self::hurry`].
    pub(crate) fn send_head(&self, status: StatusCode, fields: &Fields, end: bool) {
        self.send_block(end, |out| {
            hpack::status(status, out);
            for (known, name, value) in fields.iter() {
                if known == Known::Other || !CONNECTION_FIELDS.contains(&known) {
                    hpack::field(known, name, value.trim_ascii(), out);
                }
            }
        });
    }

    /// Sends trailers, which end the message.
    pub(super) fn send_trailers(&self, trailers: &HeaderMap) {
        self.send_block(true, |out| {
            for (name, value) in trailers {
                let name = name.as_str().as_bytes();
                hpack::field(Known::of(name), name, value.as_bytes().trim_ascii(), out);
            }
        });
    }

    fn send_block(&self, end: bool, write: impl FnOnce(&mut BytesMut)) {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return;
        }
        let core = &mut *self.channel.core.borrow_mut();
        core.encode_block(self.id, end, write);
        if end {
            self.end(state, core);
        }
    }

    /// Sends output that is followed by nothing for now.
    pub(crate) fn hurry(&self) {
        if !self.channel.core.borrow().output.is_empty() {
            self.channel.wake();
        }
    }

    /// Sends some of `data`; becomes ready when any of it has been sent, or the stream is closed.
    pub(super) fn poll_send(&self, data: &mut Bytes, last: bool, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            data.clear();
            return Poll::Ready(());
        }
        let core = &mut *self.channel.core.borrow_mut();
        let mut window = MAX_PAYLOAD;
        if !data.is_empty() {
            match self.poll_window(state, core, cx) {
                Poll::Ready(most) => window = window.min(most as usize),
                Poll::Pending => return Poll::Pending,
            }
        }
        if !core.output.has_room() {
            core.wait(cx);
            return Poll::Pending;
        }
        let piece = data.split_to(data.len().min(window));
        // Less than either window.
        let length = piece.len() as u32;
        state.send_window -= i64::from(length);
        core.send_window -= length;
        let end = last && data.is_empty();
        core.note_window();
        memory::leave(piece.len(), state.answer.is_none());
        let flags = if end { flag::END_STREAM } else { 0 };
        let header = frame::header(piece.len(), kind::DATA, flags, self.id);
        core.output.data(&header, piece);
        core.flood.data_sent();
        match end {
            true => self.end(state, core),
            false => self.channel.wake(),
        }
        Poll::Ready(())
    }

    /// Returns the number of bytes that may be sent on this stream, once there are any.
    fn poll_window(&self, state: &mut State, core: &mut Core, cx: &Context<'_>) -> Poll<u32> {
        let window = u32::try_from(state.send_window).unwrap_or(0);
        if window == 0 {
            remember(&mut state.writer, cx);
            return Poll::Pending;
        }
        if core.send_window == 0 {
            core.starve(cx);
            return Poll::Pending;
        }
        Poll::Ready(window.min(core.send_window))
    }

    /// Handles the end of a stream whose last frame was added to the outbox.
    fn end(&self, state: &mut State, core: &mut Core) {
        state.local_ended = true;
        core.flood.answered();
        if state.outcome() == FrameOutcome::Closed {
            core.over(self.id);
        }
        self.channel.deliver(core);
    }

    /// Returns the number of bytes that can be sent on this stream, once reading more data is useful; also becomes
    /// ready when the stream has ended.
    pub(super) fn poll_credit(&self, cx: &Context<'_>) -> Poll<u32> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(0);
        }
        let core = &mut *self.channel.core.borrow_mut();
        let window = match self.poll_window(state, core, cx) {
            Poll::Ready(window) => window,
            Poll::Pending => return Poll::Pending,
        };
        if !core.output.has_room() {
            core.wait(cx);
            return Poll::Pending;
        }
        Poll::Ready(window)
    }

    /// Resets the stream from this side, unless it has ended.
    pub(crate) fn abandon(&self, reason: Reason) {
        let state = &mut *self.state.borrow_mut();
        if state.closed || state.outcome() == FrameOutcome::Closed {
            return;
        }
        state.fail(Failed::Gone);
        self.channel.core.borrow_mut().reset(self.id, reason);
        self.channel.wake();
    }

    /// Returns whether the whole message has been read.
    pub(super) fn is_read(&self) -> bool {
        let state = self.state.borrow();
        state.failed.is_none() && state.is_read()
    }

    #[cfg(test)]
    pub(super) fn windows(&self) -> (i64, u32, u32) {
        let state = self.state.borrow();
        (state.send_window, state.window, state.taken)
    }
}

impl Core {
    /// Appends a field block to the output. `write` appends the block to its argument.
    pub(super) fn encode_block(
        &mut self,
        stream: u32,
        end: bool,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let flags = if end { flag::END_STREAM } else { 0 };
        let reduced = std::mem::take(&mut self.table_reduced);
        encode_block(stream, flags, self.output.tail(), |out| {
            if reduced {
                // Sets the table size to 0, which is all that the encoder uses (RFC 7541, section 6.3).
                out.extend_from_slice(&[0x20]);
            }
            write(out);
        });
    }
}

/// Appends a field block in as many frames as needed. `write` appends the block to its argument.
fn encode_block(stream: u32, flags: u8, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let length = out.len() - start - HEADER;
    if length <= MAX_PAYLOAD {
        let flags = flags | flag::END_HEADERS;
        let header = frame::header(length, kind::HEADERS, flags, stream);
        out[start..start + HEADER].copy_from_slice(&header);
        return;
    }
    let block = out.split_off(start + HEADER);
    out.truncate(start);
    let mut parts = block.chunks(MAX_PAYLOAD).peekable();
    let mut next = (kind::HEADERS, flags);
    while let Some(part) = parts.next() {
        let (kind, flags) = next;
        let last = if parts.peek().is_none() {
            flag::END_HEADERS
        } else {
            0
        };
        out.extend_from_slice(&frame::header(part.len(), kind, flags | last, stream));
        out.extend_from_slice(part);
        next = (kind::CONTINUATION, 0);
    }
}

pub(super) fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place
        .as_ref()
        .is_some_and(|known| known.will_wake(cx.waker()))
    {
        *place = Some(cx.waker().clone());
    }
}

impl Interim for Stream {
    fn send(&self, status: StatusCode, fields: &Fields) {
        self.send_head(status, fields, false);
        self.hurry();
    }
}
