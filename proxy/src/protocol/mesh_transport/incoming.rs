//! The body received on a stream, and the owner of the stream.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::STREAM_WINDOW;
use super::connection::{Owner, Stream};
use super::frame::Reason;
use super::stream::remember;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Source;
use crate::protocol::receive_buffer::Received;

impl Owner {
    /// Returns the stream.
    pub(crate) fn stream(&self) -> &Rc<Stream> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let done = {
            let state = self.0.state.borrow();
            match self.0.is_client() {
                true => state.remote_ended,
                false => state.local_ended,
            }
        };
        self.0.abandon(match (done, self.0.is_client()) {
            (true, _) => Reason::Done,
            (false, true) => Reason::Cancelled,
            (false, false) => Reason::Failed,
        });
    }
}

/// The body received on a stream.
#[derive(Debug)]
pub(crate) struct Incoming(pub(super) Rc<Stream>);

impl Source for Incoming {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let stream = &*self.0;
        let state = &mut *stream.state.borrow_mut();
        if let Some(failed) = state.failed {
            return Poll::Ready(Some(Err(match stream.is_client() {
                true => failed.of_upstream(true),
                false => failed.of_downstream(),
            })));
        }
        if !state.received.is_empty() {
            let bytes = state.received.take();
            // At most the size of a window.
            state.taken += bytes.len() as u32;
            if state.taken >= STREAM_WINDOW / 2 && !state.remote_ended && !state.closed {
                let credit = std::mem::take(&mut state.taken);
                state.window += credit;
                stream.channel.grant_credit(stream.id, credit);
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(trailers) = state.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        if state.remote_ended {
            return Poll::Ready(None);
        }
        remember(&mut state.reader, cx);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_read()
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.state.borrow();
        let length = |expected| expected + state.received.len() as u64;
        match state.expected {
            Some(expected) => SizeHint::with_exact(length(expected)),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let state = &mut *self.0.state.borrow_mut();
        state.unwanted = true;
        state.received = Received::default();
    }
}
