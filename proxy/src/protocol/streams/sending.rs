//! Sends a body on a stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;

use super::connection::{Protocol, Stream};
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;

/// Number of bytes of the first read, when the speed of the peer is unknown.
const FIRST: u64 = 16 * 1024;
/// Minimum number of bytes of each read, even if the peer has granted less credit.
const LEAST: u64 = 4 * 1024;

/// Sends a body on a stream at the pace of the peer. No more is read than the peer has granted credit for, so that a
/// stream whose peer does not read holds almost no memory.
#[derive(Debug)]
pub(crate) struct Sending {
    body: Body,
    /// Bytes of the body that were read but not sent.
    data: Bytes,
    /// Whether `data` is the end of the body.
    last: bool,
    /// Whether the body has been polled.
    begun: bool,
}

impl Sending {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            data: Bytes::new(),
            last: false,
            begun: false,
        }
    }

    /// Returns the body unless it has been polled.
    pub(super) fn untouched(self) -> Option<Body> {
        (!self.begun).then_some(self.body)
    }

    /// Records that the body was sent completely, unless the stream was closed.
    fn delivered<P: Protocol>(&mut self, stream: &Stream<P>) {
        if !stream.is_closed() {
            self.body.delivered();
        }
    }

    /// Becomes ready when the whole body has been sent, or the stream is closed.
    ///
    /// # Errors
    /// If the body fails or takes too long.
    pub(crate) fn poll<P: Protocol>(
        &mut self,
        stream: &Stream<P>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ProxyError>> {
        loop {
            if stream.is_closed() {
                self.body.lost(&ProxyError::ClientGone);
                return Poll::Ready(Ok(()));
            }
            if self.last || !self.data.is_empty() {
                if stream.poll_send(&mut self.data, self.last, cx).is_pending() {
                    return self.body.poll_timeout(cx).map(Err);
                }
                self.body.moved();
                if self.last && self.data.is_empty() {
                    self.delivered(stream);
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let most = match self.begun {
                false => FIRST,
                true => match stream.poll_credit(cx) {
                    Poll::Ready(credit) => u64::from(credit).max(LEAST),
                    Poll::Pending => return self.body.poll_timeout(cx).map(Err),
                },
            };
            self.begun = true;
            let body = Pin::new(&mut self.body);
            let frame = ready!(memory::reading(most, || body.poll_frame(cx)));
            let Some(frame) = frame.transpose()? else {
                self.last = true;
                continue;
            };
            match frame.into_data() {
                Ok(data) => {
                    self.data = data;
                    self.last = self.body.is_end_stream();
                }
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        stream.send_trailers(trailers);
                        self.delivered(stream);
                        return Poll::Ready(Ok(()));
                    }
                    self.last = true;
                }
            }
        }
    }
    /// Sends the rest of the body; resets the stream with `failed` if the body fails or takes too long. Ends when the
    /// stream is closed.
    pub(crate) async fn finish<P: Protocol>(&mut self, stream: &Stream<P>, failed: P::Reason) {
        let sent = poll_fn(|cx| {
            let sent = self.poll(stream, cx);
            if sent.is_pending() {
                stream.hurry();
            }
            match stream.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => sent,
            }
        });
        if sent.await.is_err() {
            stream.abandon(failed);
        }
    }
}
