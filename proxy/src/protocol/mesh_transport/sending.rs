//! Sends a body on a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;

use super::connection::Stream;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;

/// Sends a body on a stream at the pace of the peer.
#[derive(Debug)]
pub(crate) struct Sending {
    body: Body,
    /// Bytes of the body that were read but not sent.
    data: Bytes,
    /// Whether `data` is the end of the body.
    last: bool,
    /// Whether the body has been polled.
    touched: bool,
}

impl Sending {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            data: Bytes::new(),
            last: false,
            touched: false,
        }
    }

    /// Returns the body unless it has been polled.
    pub(super) fn untouched(self) -> Option<Body> {
        (!self.touched).then_some(self.body)
    }

    /// Records that the body was sent completely, unless the stream was closed.
    fn delivered(&mut self, stream: &Stream) {
        if !stream.is_closed() {
            self.body.delivered();
        }
    }

    /// Becomes ready when the whole body has been sent, or the stream is closed.
    ///
    /// # Errors
    /// If the body fails or takes too long.
    pub(crate) fn poll(
        &mut self,
        stream: &Stream,
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
            // While the peer does not read, no further data is read for it.
            if self.touched && stream.poll_credit(cx).is_pending() {
                return self.body.poll_timeout(cx).map(Err);
            }
            self.touched = true;
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? {
                None => self.last = true,
                Some(frame) => match frame.into_data() {
                    Ok(data) => {
                        self.data = data;
                        self.last = self.body.is_end_stream();
                    }
                    Err(frame) => {
                        match frame.trailers_ref() {
                            Some(trailers) => stream.send_trailers(trailers),
                            None => self.last = true,
                        }
                        if !self.last {
                            self.delivered(stream);
                            return Poll::Ready(Ok(()));
                        }
                    }
                },
            }
        }
    }
}
