//! Effects of received frames on one request and its response (RFC 9113, section 5); the connection's core is borrowed.

use bytes::BytesMut;
use http::HeaderMap;

use super::closed::Failed;
use super::connection::{FrameOutcome, Http2, Stream};
use super::head::Unfit;
use super::reason::Reason;
use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::streams::{DataFault, Protocol as _};

impl Stream {
    pub(super) fn data(
        &self,
        bytes: &[u8],
        padding: u32,
        end: bool,
        output: &mut BytesMut,
    ) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        if state.answer.as_ref().is_some_and(|answer| !answer.here) {
            // A body without a head.
            return state.wrong(Failed::Malformed);
        }
        match state.receive(bytes, padding, end) {
            Ok(()) => {}
            Err(DataFault::Ended) => return FrameOutcome::Violation(Reason::StreamClosed),
            Err(DataFault::NoCredit) => return FrameOutcome::Violation(Reason::FlowControl),
            Err(DataFault::Length(error)) => return state.wrong(error),
        }
        if padding > 0
            && let Some(credit) = state.credit()
        {
            Http2::encode_credit(self.id, credit, output);
        }
        state.ended(end)
    }

    pub(super) fn trailers(&self, trailers: Result<HeaderMap, Unfit>, end: bool) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return FrameOutcome::Violation(Reason::StreamClosed);
        }
        if state.is_short() {
            return state.wrong(FramingError::UnexpectedEof);
        }
        match trailers {
            Ok(trailers) if end => state.finish(trailers),
            Err(Unfit::Refused(error)) => state.wrong(Failed::Body(error.into())),
            Ok(_) | Err(Unfit::Malformed) => state.wrong(Failed::Body(HeadError::Malformed.into())),
        }
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
}
