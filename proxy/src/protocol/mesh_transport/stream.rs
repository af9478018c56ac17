//! Effects of received frames on one request and its response; the connection's core is borrowed.

use http::{Method, StatusCode};

use super::closed::Failed;
use super::connection::{FrameOutcome, Stream};
use super::frame::{Malformed, Reason, kind};
use crate::protocol::fields::{CONNECTION_FIELDS, Fields};
use crate::protocol::http1::{self, Framing, FramingError, HeadError, Limits};
use crate::protocol::streams::{DataFault, ResponseHead};

/// Limits of the heads of responses, as in HTTP/1.1.
pub(super) const RESPONSE: Limits = Limits {
    bytes: 128 * 1024,
    headers: 256,
};

impl Stream {
    pub(super) fn data(&self, bytes: &[u8], end: bool) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        match state.receive(bytes, 0, end) {
            Ok(()) => Ok(state.ended(end)),
            Err(DataFault::Ended) => Err(Malformed::Stream(kind::DATA)),
            Err(DataFault::NoCredit) => Err(Malformed::FlowControl),
            Err(DataFault::Length(error)) => Ok(state.wrong(error)),
        }
    }

    pub(super) fn head(&self, text: Option<&[u8]>, end: bool) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return Err(Malformed::Stream(kind::HEAD));
        }
        let answer = state.answer.as_deref();
        let (to_head, here) = answer.map_or((false, true), |answer| (answer.to_head, answer.here));
        Ok(match read_head(text, to_head) {
            Err(error) => state.wrong(error),
            Ok(head) if here || head.status == StatusCode::SWITCHING_PROTOCOLS => {
                state.wrong(HeadError::Malformed)
            }
            Ok(head) => state.answered(head, end),
        })
    }

    pub(super) fn trailers(&self, text: Option<&[u8]>) -> Result<FrameOutcome, Malformed> {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended {
            return Err(Malformed::Stream(kind::TRAILERS));
        }
        if state.is_short() {
            return Ok(state.wrong(FramingError::UnexpectedEof));
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
            Err(error) => state.wrong(Failed::Body(error.into())),
            Ok(trailers) => state.finish(trailers),
        })
    }

    /// Records that the peer has reset the stream. A message that was complete stays valid.
    pub(super) fn given_up(&self, reason: Reason) {
        let state = &mut *self.state.borrow_mut();
        if state.remote_ended && reason == Reason::Done {
            return state.leave();
        }
        let here = state.answer.as_ref().is_some_and(|answer| answer.here);
        state.fail(match reason {
            Reason::Refused if !here => Failed::Refused,
            reason => Failed::Reset(reason),
        });
    }

    /// Records that the peer is closing the connection and will not process the request.
    pub(super) fn go_unseen(&self) {
        self.state.borrow_mut().fail(Failed::Unseen);
    }
}

/// Parses a response head, and checks that its status and fields are allowed on this transport.
fn read_head(text: Option<&[u8]>, to_head: bool) -> Result<ResponseHead, HeadError> {
    let text = text.ok_or(HeadError::TooLarge)?;
    let method = if to_head { Method::HEAD } else { Method::GET };
    match http1::parse_response(text, RESPONSE, &method)? {
        Some((head, length)) if length == text.len() => {
            check_fields(&head.fields)?;
            let length = match head.framing {
                Framing::Chunked => return Err(HeadError::ConnectionField),
                Framing::Close => None,
                Framing::Length(length) => Some(length),
            };
            Ok(ResponseHead {
                status: head.status,
                fields: head.fields,
                length,
            })
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
