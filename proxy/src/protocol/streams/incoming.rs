//! The body received on a stream, and the owner of the stream.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::closed::Failure as _;
use super::connection::{Owner, Protocol, Stream};
use super::stream::remember;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Source;
use crate::protocol::receive_buffer::Received;

impl<P: Protocol> Owner<P> {
    /// Returns the stream.
    pub(crate) fn stream(&self) -> &Rc<Stream<P>> {
        &self.0
    }
}

impl<P: Protocol> Drop for Owner<P> {
    fn drop(&mut self) {
        let reason = P::dropped(&self.0.state.borrow());
        self.0.abandon(reason);
    }
}

/// The body received on a stream.
#[derive(Debug)]
pub(crate) struct Incoming<P: Protocol>(pub(in crate::protocol) Rc<Stream<P>>);

impl<P: Protocol> Source for Incoming<P> {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let stream = &*self.0;
        let state = &mut *stream.state.borrow_mut();
        if let Some(failed) = state.failed {
            return Poll::Ready(Some(Err(match state.answer.is_some() {
                true => failed.of_upstream(true),
                false => failed.of_downstream(),
            })));
        }
        if !state.received.is_empty() {
            let bytes = state.received.take_some(P::PIECE);
            // At most the size of a window.
            state.taken += bytes.len() as u32;
            if let Some(credit) = state.credit() {
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

impl<P: Protocol> Drop for Incoming<P> {
    fn drop(&mut self) {
        let state = &mut *self.0.state.borrow_mut();
        state.unwanted = true;
        state.received = Received::default();
    }
}
