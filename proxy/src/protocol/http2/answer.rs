//! The response to a request that this side has sent, as it arrives on a stream (RFC 9113, section 8.1).

use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, StatusCode};

use super::closed::Failed;
use super::connection::{Answer, Channel, Opening, State, Stream};
use super::head::{ResponseHead, Unfit};
use super::reason::Reason;
use super::stream::{FrameOutcome, remember};
use crate::os::memory;
use crate::protocol::http1::{FramingError, HeadError, Limits};
use crate::protocol::message::Interim;

/// Limits of the heads of responses, as in HTTP/1.1.
pub(super) const LIMITS: Limits = Limits {
    bytes: 128 * 1024,
    headers: 256,
};
/// Maximum number of informational responses that wait to be read.
const MAX_INTERIM: usize = 16;
/// Maximum number of concurrent streams until the server's settings are known: the least that the RFC recommends
/// to servers (section 6.5.2).
const FIRST_STREAMS: u32 = 100;

impl Opening {
    pub(super) fn new(window: u32) -> Self {
        Self {
            window,
            next: 1,
            max_streams: FIRST_STREAMS,
            settled: false,
            gone: false,
            waiting: Vec::new(),
        }
    }

    /// Applies settings of the server; `None` if they do not contain the maximum number of streams.
    pub(super) fn allow(&mut self, max_streams: Option<u32>) {
        let first = !std::mem::replace(&mut self.settled, true);
        match max_streams {
            Some(most) => self.max_streams = most,
            None if first => self.max_streams = u32::MAX,
            None => {}
        }
        self.waiting.drain(..).for_each(std::task::Waker::wake);
    }
}

impl Stream {
    /// Creates the stream of a request whose head is sent.
    pub(super) fn opened(
        channel: &Rc<Channel>,
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

    /// Returns whether the next field block is the head of a response.
    pub(super) fn awaits_head(&self) -> bool {
        let state = self.state.borrow();
        state.answer.as_ref().is_some_and(|answer| !answer.here)
    }

    /// Records the head of a response.
    pub(super) fn answered(&self, head: Result<ResponseHead, Unfit>, end: bool) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        let Some(answer) = &mut state.answer else {
            return FrameOutcome::Violation(Reason::Protocol);
        };
        let head = match head {
            Ok(head) => head,
            Err(Unfit::Refused(error)) => return state.wrong(Failed::Head(error)),
            Err(Unfit::Malformed) => return state.wrong(Failed::Malformed),
        };
        if head.status.is_informational() {
            if end || answer.interim.len() >= MAX_INTERIM {
                return state.wrong(Failed::Head(HeadError::Malformed));
            }
            answer.interim.push(head);
            state.wake_reader();
            return FrameOutcome::Open;
        }
        let bodiless = answer.to_head
            || matches!(
                head.status,
                StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            );
        state.expected = match bodiless {
            true => Some(0),
            false => head.length,
        };
        if end && let Some(1..) = state.expected {
            return state.wrong(Failed::Body(FramingError::UnexpectedEof));
        }
        answer.here = true;
        answer.head = Some(head);
        state.remote_ended = end;
        state.wake_reader();
        state.outcome()
    }

    /// Records that the server is closing the connection and will not process the request.
    pub(super) fn turned_away(&self, reason: Reason) {
        self.state.borrow_mut().fail(match reason {
            Reason::NoError => Failed::Refused,
            reason => Failed::Reset(reason),
        });
    }

    /// Returns the head of the response once it has been received; informational responses are sent to `interim`.
    pub(super) fn poll_answer(
        &self,
        interim: Option<&dyn Interim>,
        cx: &Context<'_>,
    ) -> Poll<Result<ResponseHead, Failed>> {
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
}
