//! One request and its response on a connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};

use super::STREAM_WINDOW;
use super::closed::Failed;
use super::connection::{Channel, Core, InterimHeads, Role, State, Stream};
use super::frame::{MAX_PAYLOAD, Malformed, Reason, flag, kind};
use super::window::grown;
use crate::os::memory;
use crate::protocol::fields::{CONNECTION_FIELDS, Fields};
use crate::protocol::http1::{self, Framing, FramingError, HeadError, Limits, ResponseHead};
use crate::protocol::message::Interim;

/// Limits of the heads of responses, as in HTTP/1.1.
pub(super) const RESPONSE: Limits = Limits {
    bytes: 128 * 1024,
    headers: 256,
};
/// Maximum number of informational responses that wait to be read.
const MAX_INTERIM: usize = 16;

/// Effect of a frame on its stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FrameOutcome {
    Open,
    /// Both sides have ended.
    Closed,
    /// The peer has violated the protocol; the stream has failed.
    Violation,
}

impl State {
    fn wake(&mut self) {
        self.wake_reader();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn fail(&mut self, failed: Failed) -> FrameOutcome {
        self.closed = true;
        self.failed.get_or_insert(failed);
        self.wake();
        FrameOutcome::Violation
    }

    fn outcome(&self) -> FrameOutcome {
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
        expected: Option<u64>,
        end: bool,
    ) -> Rc<Self> {
        Self::new(channel, id, |state| {
            state.expected = expected;
            state.remote_ended = end;
        })
    }

    /// Creates the stream of a request whose head is sent.
    pub(super) fn opened(channel: &Rc<Channel>, id: u32, method: &Method, end: bool) -> Rc<Self> {
        Self::new(channel, id, |state| {
            state.answer.to_head = *method == Method::HEAD;
            state.local_ended = end;
        })
    }

    fn new(channel: &Rc<Channel>, id: u32, set: impl FnOnce(&mut State)) -> Rc<Self> {
        let mut state = State {
            window: STREAM_WINDOW,
            send_window: STREAM_WINDOW,
            ..State::default()
        };
        set(&mut state);
        Rc::new(Self {
            channel: Rc::clone(channel),
            id,
            state: RefCell::new(state),
        })
    }

    pub(super) fn data(&self, bytes: &[u8], end: bool) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return Err(Malformed::Stream(kind::DATA));
        }
        // A frame is at most 16 kB long.
        let left = state.window.checked_sub(bytes.len() as u32);
        state.window = left.ok_or(Malformed::FlowControl)?;
        if let Some(expected) = &mut state.expected {
            let Some(left) = expected.checked_sub(bytes.len() as u64) else {
                return Ok(state.fail(Failed::Body(FramingError::Longer)));
            };
            *expected = left;
        }
        if end && let Some(1..) = state.expected {
            return Ok(state.fail(Failed::Body(FramingError::UnexpectedEof)));
        }
        if state.unwanted {
            state.window += bytes.len() as u32;
        } else if !bytes.is_empty() {
            state.received.push(bytes);
        }
        state.remote_ended = end;
        state.wake_reader();
        Ok(state.outcome())
    }

    pub(super) fn head(&self, text: Option<&[u8]>, end: bool) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return Err(Malformed::Stream(kind::HEAD));
        }
        Ok(match read_head(text, state.answer.to_head) {
            Err(error) => state.fail(Failed::Head(error)),
            Ok(_) if state.answer.here => state.fail(Failed::Head(HeadError::Malformed)),
            Ok(head) if head.status.is_informational() => {
                let switching = head.status == StatusCode::SWITCHING_PROTOCOLS;
                let InterimHeads(interim) = &mut **state.answer.interim.get_or_insert_default();
                if end || switching || interim.len() >= MAX_INTERIM {
                    return Ok(state.fail(Failed::Head(HeadError::Malformed)));
                }
                interim.push(head);
                state.wake_reader();
                FrameOutcome::Open
            }
            Ok(head) => {
                state.expected = match head.framing {
                    Framing::Length(length) => Some(length),
                    Framing::Chunked | Framing::Close => None,
                };
                if end && !matches!(state.expected, None | Some(0)) {
                    return Ok(state.fail(Failed::Body(FramingError::UnexpectedEof)));
                }
                state.answer.here = true;
                state.answer.head = Some(head);
                state.remote_ended = end;
                state.wake_reader();
                state.outcome()
            }
        })
    }

    pub(super) fn trailers(&self, text: Option<&[u8]>) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return Err(Malformed::Stream(kind::TRAILERS));
        }
        if let Some(1..) = state.expected {
            return Ok(state.fail(Failed::Body(FramingError::UnexpectedEof)));
        }
        let parsed = match text.map(http1::parse_trailers) {
            None => Err(HeadError::TooLarge),
            Some(Ok(Some((trailers, length)))) if Some(length) == text.map(<[u8]>::len) => {
                Ok(trailers)
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(HeadError::Malformed),
        };
        Ok(match parsed {
            Err(error) => state.fail(Failed::Body(error.into())),
            Ok(trailers) => {
                let wanted = !trailers.is_empty() && !state.unwanted;
                state.trailers = wanted.then(|| Box::new(trailers));
                state.remote_ended = true;
                state.wake_reader();
                state.outcome()
            }
        })
    }

    pub(super) fn credit(&self, increment: u32) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        state.send_window = grown(state.send_window, increment)?;
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
        Ok(FrameOutcome::Open)
    }

    /// Records that the peer has reset the stream. A message that was complete stays valid.
    pub(super) fn given_up(&self, reason: Reason) {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended && reason == Reason::Done {
            state.closed = true;
            state.wake();
        } else {
            let refused = reason == Reason::Refused && !state.answer.here;
            state.fail(match refused {
                true => Failed::Refused,
                false => Failed::Reset(reason),
            });
        }
    }

    /// Records that the peer is closing the connection and will not process the request.
    pub(super) fn go_unseen(&self) {
        self.state.borrow_mut().fail(Failed::Unseen);
    }

    /// Records that the connection has ended.
    pub(super) fn lose(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            state.closed = true;
            state.wake();
        } else {
            state.fail(Failed::Closed);
        }
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

    /// Sends the head of a response.
    pub(crate) fn send_head(&self, status: StatusCode, fields: &Fields, end: bool) {
        self.send_text(kind::HEAD, end, |out| {
            http1::encode_response(status, fields, out);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Sends trailers, which end the message.
    pub(super) fn send_trailers(&self, trailers: &HeaderMap) {
        self.send_text(kind::TRAILERS, true, |out| {
            http1::encode_trailers(trailers, out);
            out.extend_from_slice(b"\r\n");
        });
    }

    fn send_text(&self, kind: u8, end: bool, write: impl FnOnce(&mut BytesMut)) {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return;
        }
        let core = &mut *self.channel.core.borrow_mut();
        let flags = if end { flag::END } else { 0 };
        core.output.text(kind, flags, self.id, write);
        self.end(state, core, end);
    }

    /// Sends some of `data`; becomes ready when any of it has been sent, or the stream is closed.
    pub(super) fn poll_send(&self, data: &mut Bytes, last: bool, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            data.clear();
            return Poll::Ready(());
        }
        let core = &mut *self.channel.core.borrow_mut();
        let empty = data.is_empty();
        if state.send_window == 0 && !empty {
            remember(&mut state.writer, cx);
            return Poll::Pending;
        }
        if core.send_window == 0 && !empty {
            core.starve(cx);
            return Poll::Pending;
        }
        if !core.output.has_room() {
            core.wait(cx);
            return Poll::Pending;
        }
        let window = state.send_window.min(core.send_window) as usize;
        let piece = data.split_to(data.len().min(window).min(MAX_PAYLOAD));
        // Less than either window.
        let length = piece.len() as u32;
        state.send_window -= length;
        core.send_window -= length;
        let end = last && data.is_empty();
        let to_client = matches!(core.role, Role::Server(_));
        memory::leave(piece.len(), to_client);
        core.output.data(self.id, piece, end);
        core.flood.data_sent();
        self.end(state, core, end);
        Poll::Ready(())
    }

    /// Handles the end of a stream after a frame was added to the outbox.
    fn end(&self, state: &mut State, core: &mut Core, end: bool) {
        if end {
            state.local_ended = true;
            core.flood.answered();
            if state.outcome() == FrameOutcome::Closed {
                core.streams.remove(&self.id);
            }
        }
        self.channel.wake();
    }

    /// Becomes ready when the peer has granted credit for this stream, or when the stream has ended.
    pub(super) fn poll_credit(&self, cx: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed || state.send_window > 0 {
            return Poll::Ready(());
        }
        remember(&mut state.writer, cx);
        Poll::Pending
    }

    /// Resets the stream from this side, unless it has ended.
    pub(crate) fn abandon(&self, reason: Reason) {
        let state = &mut *self.state.borrow_mut();
        if state.closed || state.outcome() == FrameOutcome::Closed {
            return;
        }
        state.fail(match reason {
            Reason::Cancelled => Failed::Sender,
            reason => Failed::Reset(reason),
        });
        self.channel.core.borrow_mut().reset(self.id, reason);
        self.channel.wake();
    }

    /// Returns the response head once it has been received; informational responses are sent to `interim`.
    pub(super) fn poll_answer(
        &self,
        interim: Option<&dyn Interim>,
        cx: &Context<'_>,
    ) -> Poll<Result<ResponseHead, Failed>> {
        let state = &mut *self.state.borrow_mut();
        if let Some(heads) = state.answer.interim.take()
            && let Some(interim) = interim
        {
            for head in heads.0 {
                interim.send(head.status, &head.fields);
            }
        }
        if let Some(head) = state.answer.head.take() {
            return Poll::Ready(Ok(head));
        }
        if let Some(failed) = state.failed {
            return Poll::Ready(Err(failed));
        }
        remember(&mut state.reader, cx);
        Poll::Pending
    }

    /// Returns whether the whole message has been read.
    pub(super) fn is_read(&self) -> bool {
        let state = self.state.borrow();
        state.failed.is_none() && state.is_read()
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self.channel.core.borrow().role, Role::Client { .. })
    }
}

/// Parses a response head, and checks that its status and fields are allowed on this transport.
fn read_head(text: Option<&[u8]>, to_head: bool) -> Result<ResponseHead, HeadError> {
    let text = text.ok_or(HeadError::TooLarge)?;
    let method = if to_head { Method::HEAD } else { Method::GET };
    match http1::parse_response(text, RESPONSE, &method)? {
        Some((head, length)) if length == text.len() => {
            check_fields(&head.fields)?;
            match head.framing {
                Framing::Chunked => Err(HeadError::ConnectionField),
                Framing::Close | Framing::Length(_) => Ok(head),
            }
        }
        _ => Err(HeadError::Malformed),
    }
}

/// Checks that there are no connection-specific fields of HTTP/1.1. They have no meaning on this transport, and a
/// server that applied them would see a different message than this proxy.
pub(super) fn check_fields(fields: &Fields) -> Result<(), HeadError> {
    let found = CONNECTION_FIELDS.iter().any(|name| fields.contains(*name));
    (!found).then_some(()).ok_or(HeadError::ConnectionField)
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
    }
}
