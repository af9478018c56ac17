//! Sends a body.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use super::outflow::{Flow, Outflow, Parcel, SMALL};
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;

/// Sends a body on a stream as the peer's window allows. `h2` receives only bytes that the peer has granted credit
/// for, so that the rest is subject to the timeouts of the body.
#[derive(Debug)]
pub(super) struct Sending {
    body: Body,
    stream: SendStream<Parcel>,
    /// Accounting of the stream; `None` if the body is a single small piece.
    flow: Option<Rc<Flow>>,
    /// Whether any part of the body has been read.
    begun: bool,
    /// Bytes of the body that were read but not sent.
    data: Bytes,
    /// Whether `data` is the end of the body.
    last: bool,
}

/// Reason why a body was not sent completely.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The body has failed or timed out.
    Body(ProxyError),
    /// The peer has reset the stream, or the connection has ended.
    Stream,
}

impl Sending {
    /// Sends a body on a stream of the connection with this `outflow`.
    pub(super) fn new(body: Body, stream: SendStream<Parcel>, outflow: &Rc<Outflow>) -> Self {
        let small = body.size_hint().upper().is_some_and(|most| most <= SMALL);
        Self {
            body,
            stream,
            flow: (!small).then(|| Flow::new(outflow)),
            begun: false,
            data: Bytes::new(),
            last: false,
        }
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
    }

    /// Becomes ready when the whole body is sent.
    ///
    /// # Errors
    /// [`Unsent`] if the body cannot be sent completely.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        loop {
            if self.stream.poll_reset(cx).is_ready() {
                self.body.lost(&ProxyError::ClientGone);
                return Poll::Ready(Err(Unsent::Stream));
            }
            if !self.data.is_empty() {
                match self.poll_data(cx) {
                    Poll::Ready(Ok(())) if self.last && self.data.is_empty() => {
                        return Poll::Ready(Ok(()));
                    }
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(unsent)) => return Poll::Ready(Err(unsent)),
                    Poll::Pending => {
                        return self.body.poll_timeout(cx).map(|e| Err(Unsent::Body(e)));
                    }
                }
            }
            let most = match self
                .flow
                .as_ref()
                .map(|flow| flow.poll_room(self.begun, cx))
            {
                Some(Poll::Pending) => {
                    return self.body.poll_timeout(cx).map(|e| Err(Unsent::Body(e)));
                }
                Some(Poll::Ready(room)) => room,
                None => SMALL,
            };
            let body = Pin::new(&mut self.body);
            let frame = ready!(memory::reading(most, || body.poll_frame(cx)));
            self.begun = true;
            let frame = match frame.transpose() {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Err(Unsent::Body(error))),
            };
            let Some(frame) = frame else {
                return Poll::Ready(self.send(Bytes::new(), true));
            };
            match frame.into_data() {
                Ok(data) => {
                    self.last = self.body.is_end_stream();
                    if data.is_empty() && self.last {
                        return Poll::Ready(self.send(data, true));
                    }
                    self.data = data;
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        // Makes unused reserved capacity available to other streams.
                        self.stream.reserve_capacity(0);
                        if self.stream.send_trailers(trailers).is_err() {
                            return Poll::Ready(Err(Unsent::Stream));
                        }
                        self.body.delivered();
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }

    /// Sends a part of the data.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        let mut capacity = self.stream.capacity();
        if capacity == 0 {
            self.stream.reserve_capacity(self.data.len());
            capacity = match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(capacity)) => capacity,
                Some(Err(_)) | None => return Poll::Ready(Err(Unsent::Stream)),
            };
        }
        let piece = self.data.split_to(capacity.min(self.data.len()));
        let end = self.last && self.data.is_empty();
        Poll::Ready(self.send(piece, end))
    }

    fn send(&mut self, data: Bytes, end: bool) -> Result<(), Unsent> {
        let parcel = Parcel::new(data, self.flow.as_ref());
        let sent = self.stream.send_data(parcel, end);
        sent.map_err(|_| Unsent::Stream)?;
        match end {
            true => self.body.delivered(),
            false => self.body.moved(),
        }
        Ok(())
    }
}
