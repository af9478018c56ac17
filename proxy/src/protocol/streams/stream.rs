//! One request and its response on a connection (RFC 9113, section 5).

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::closed::Closed;
use super::connection::{
    Answer, Channel, Core, FrameOutcome, Protocol, ResponseHead, State, Stream,
};
use super::{MAX_WINDOW, STREAM_WINDOW};
use crate::os::memory;
use crate::protocol::fields::Fields;
use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::message::Interim;
use crate::protocol::receive_buffer::Received;

/// Maximum number of informational responses that wait to be read.
const MAX_INTERIM: usize = 16;

/// Reason why a piece of a body is not accepted.
pub(in crate::protocol) enum DataFault {
    /// The body has ended.
    Ended,
    /// The peer had no credit for it.
    NoCredit,
    /// The body does not have the announced length.
    Length(FramingError),
}

impl<P: Protocol> State<P> {
    // Inlined, so that the state is created where it stays.
    #[inline]
    fn new(send_window: u32) -> Self {
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

    fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    pub(in crate::protocol) fn fail(&mut self, failed: P::Failed) {
        self.closed = true;
        self.failed.get_or_insert(failed);
        self.wake();
    }

    /// Ends sending; what was received stays valid.
    pub(in crate::protocol) fn leave(&mut self) {
        self.closed = true;
        self.wake();
    }

    pub(in crate::protocol) fn wrong(
        &mut self,
        failed: impl Into<P::Failed>,
    ) -> FrameOutcome<P::Reason> {
        self.fail(failed.into());
        FrameOutcome::Violation(P::VIOLATION)
    }

    fn is_over(&self) -> bool {
        self.remote_ended && self.local_ended
    }

    fn outcome(&self) -> FrameOutcome<P::Reason> {
        match self.is_over() {
            true => FrameOutcome::Closed,
            false => FrameOutcome::Open,
        }
    }

    /// Returns whether nothing more will be read.
    fn is_read(&self) -> bool {
        self.remote_ended && self.received.is_empty() && self.trailers.is_none()
    }

    /// Returns whether more bytes were announced.
    pub(in crate::protocol) fn is_short(&self) -> bool {
        matches!(self.expected, Some(1..))
    }

    /// Records the head of a response.
    pub(in crate::protocol) fn answered(
        &mut self,
        head: ResponseHead,
        end: bool,
    ) -> FrameOutcome<P::Reason> {
        let Some(answer) = &mut self.answer else {
            return FrameOutcome::Violation(P::VIOLATION);
        };
        if head.status.is_informational() {
            if end || answer.interim.len() >= MAX_INTERIM {
                return self.wrong(HeadError::Malformed);
            }
            answer.interim.push(head);
            self.wake_reader();
            return FrameOutcome::Open;
        }
        let bodiless = matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        self.expected = match answer.to_head || bodiless {
            true => Some(0),
            false => head.length,
        };
        if end && matches!(self.expected, Some(1..)) {
            return self.wrong(FramingError::UnexpectedEof);
        }
        answer.here = true;
        answer.head = Some(head);
        self.ended(end)
    }

    /// Records a piece of a body, with the length of its padding.
    pub(in crate::protocol) fn receive(
        &mut self,
        bytes: &[u8],
        padding: u32,
        end: bool,
    ) -> Result<(), DataFault> {
        if self.remote_ended {
            return Err(DataFault::Ended);
        }
        // A frame is at most 16 kB long.
        let length = bytes.len() as u32;
        let left = self.window.checked_sub(length + padding);
        self.window = left.ok_or(DataFault::NoCredit)?;
        if let Some(expected) = &mut self.expected {
            let left = expected.checked_sub(length.into());
            *expected = left.ok_or(DataFault::Length(FramingError::Longer))?;
        }
        if end && self.is_short() {
            return Err(DataFault::Length(FramingError::UnexpectedEof));
        }
        self.taken += padding;
        if self.unwanted {
            self.window += length;
        } else if !bytes.is_empty() {
            self.received.push(bytes);
        }
        Ok(())
    }

    /// Records trailers, which end a body.
    pub(in crate::protocol) fn finish(&mut self, trailers: HeaderMap) -> FrameOutcome<P::Reason> {
        let wanted = !trailers.is_empty() && !self.unwanted;
        self.trailers = wanted.then(|| Box::new(trailers));
        self.ended(true)
    }

    /// Records whether the peer's message has ended with a part of it, and wakes its reader.
    pub(in crate::protocol) fn ended(&mut self, end: bool) -> FrameOutcome<P::Reason> {
        self.remote_ended = end;
        self.wake_reader();
        self.outcome()
    }

    /// Returns the credit to grant to the peer once there is enough for a frame.
    pub(in crate::protocol) fn credit(&mut self) -> Option<u32> {
        if self.taken < STREAM_WINDOW / 2 || self.remote_ended || self.closed {
            return None;
        }
        let credit = std::mem::take(&mut self.taken);
        self.window += credit;
        Some(credit)
    }
}

/// Effects of received frames; the connection's core is borrowed.
impl<P: Protocol> Stream<P> {
    /// Creates the stream of a request whose head was received. `expected` is the length of the body; `None` if
    /// unknown.
    pub(in crate::protocol) fn accepted(
        channel: &Rc<Channel<P>>,
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

    /// Creates the stream of a request whose head is sent.
    pub(in crate::protocol) fn opened(
        channel: &Rc<Channel<P>>,
        id: u32,
        (send_window, window): (u32, u32),
        (method, end): (&Method, bool),
    ) -> Rc<Self> {
        let answer = Answer {
            to_head: *method == Method::HEAD,
            ..Answer::default()
        };
        let state = State {
            answer: Some(Box::new(answer)),
            local_ended: end,
            window,
            ..State::new(send_window)
        };
        Self::new(channel, id, state)
    }

    #[inline]
    fn new(channel: &Rc<Channel<P>>, id: u32, state: State<P>) -> Rc<Self> {
        Rc::new(Self {
            channel: Rc::clone(channel),
            id,
            state: RefCell::new(state),
        })
    }

    /// Changes the send window; returns whether the result is valid.
    pub(in crate::protocol) fn resize(&self, change: i64) -> bool {
        let state = &mut *self.state.borrow_mut();
        state.send_window += change;
        state.wake_writer();
        state.send_window <= MAX_WINDOW.into()
    }

    /// Records that the connection has ended.
    pub(super) fn lose(&self, closed: Closed<P::Malformed>) {
        let state = &mut *self.state.borrow_mut();
        match P::lost(state, closed) {
            Some(failed) => state.fail(failed),
            None => state.leave(),
        }
    }
}

/// Operations of this side.
impl<P: Protocol> Stream<P> {
    /// Becomes ready when the stream has been reset; polled by the task that responds to the request.
    pub(crate) fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(());
        }
        remember(&mut state.writer, cx);
        Poll::Pending
    }

    pub(in crate::protocol) fn is_closed(&self) -> bool {
        self.state.borrow().closed
    }

    /// Becomes ready when there is room for a head.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.channel.poll_room(cx)
    }

    /// Sends the head of a response. Unless it is the end, the caller sends the body now, or calls [`Self::hurry`].
    pub(crate) fn send_head(&self, status: StatusCode, fields: &Fields, end: bool) {
        self.append(end, |core| {
            P::encode_head(core, self.id, status, fields, end);
        });
    }

    /// Sends trailers, which end the message.
    pub(super) fn send_trailers(&self, trailers: &HeaderMap) {
        self.append(true, |core| P::encode_trailers(core, self.id, trailers));
    }

    fn append(&self, end: bool, encode: impl FnOnce(&mut Core<P>)) {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            return;
        }
        let core = &mut *self.channel.core.borrow_mut();
        encode(core);
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
    pub(in crate::protocol) fn poll_send(
        &self,
        data: &mut Bytes,
        last: bool,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.closed {
            data.clear();
            return Poll::Ready(());
        }
        let core = &mut *self.channel.core.borrow_mut();
        let mut window = P::MAX_PAYLOAD;
        if !data.is_empty() {
            match poll_window(state, core, cx) {
                Poll::Ready(most) => window = window.min(most as usize),
                Poll::Pending => return Poll::Pending,
            }
        }
        if core.output.poll_room(cx).is_pending() {
            return Poll::Pending;
        }
        let piece = data.split_to(data.len().min(window));
        // Less than either window.
        let length = piece.len() as u32;
        state.send_window -= i64::from(length);
        core.send_window -= length;
        let end = last && data.is_empty();
        P::note_window(core);
        memory::leave(piece.len(), state.answer.is_none());
        P::encode_data(self.id, piece, end, &mut core.output);
        core.flood.data_sent();
        match end {
            true => self.end(state, core),
            false => self.channel.wake(),
        }
        Poll::Ready(())
    }

    /// Handles the end of a stream whose last frame was added to the outbox.
    fn end(&self, state: &mut State<P>, core: &mut Core<P>) {
        state.local_ended = true;
        core.flood.answered();
        if state.is_over() {
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
        match poll_window(state, core, cx) {
            Poll::Ready(window) => core.output.poll_room(cx).map(|()| window),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Resets the stream from this side, unless it has ended.
    pub(crate) fn abandon(&self, reason: P::Reason) {
        let state = &mut *self.state.borrow_mut();
        if state.closed || state.is_over() {
            return;
        }
        state.fail(P::abandoned(reason));
        self.channel.core.borrow_mut().reset(self.id, reason);
        self.channel.wake();
    }

    /// Returns the head of the response once it has been received; informational responses are sent to `interim`.
    pub(in crate::protocol) fn poll_answer(
        &self,
        interim: Option<&dyn Interim>,
        cx: &Context<'_>,
    ) -> Poll<Result<ResponseHead, P::Failed>> {
        let state = &mut *self.state.borrow_mut();
        if let Some(answer) = &mut state.answer {
            for head in answer.interim.drain(..) {
                memory::adopt(head.fields.encoded_len());
                if let Some(interim) = interim {
                    interim.send(head.status, &head.fields);
                }
            }
            if let Some(head) = answer.head.take() {
                memory::adopt(head.fields.encoded_len());
                return Poll::Ready(Ok(head));
            }
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

    #[cfg(test)]
    pub(in crate::protocol) fn windows(&self) -> (i64, u32, u32) {
        let state = self.state.borrow();
        (state.send_window, state.window, state.taken)
    }
}

/// Returns the number of bytes that may be sent on a stream, once there are any.
fn poll_window<P: Protocol>(
    state: &mut State<P>,
    core: &mut Core<P>,
    cx: &Context<'_>,
) -> Poll<u32> {
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

pub(super) fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place
        .as_ref()
        .is_some_and(|known| known.will_wake(cx.waker()))
    {
        *place = Some(cx.waker().clone());
    }
}

impl<P: Protocol> Interim for Stream<P> {
    fn send(&self, status: StatusCode, fields: &Fields) {
        self.send_head(status, fields, false);
        self.hurry();
    }
}
