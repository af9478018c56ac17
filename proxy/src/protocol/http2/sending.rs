//! A body on its way out.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;

use super::stream::Stream;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::message::Body;

/// So much is read the first time, in bytes, before it is known how fast the peer reads.
const FIRST: u64 = 16 * 1024;
/// And at least so much each time, even if the peer takes less.
const LEAST: u64 = 4 * 1024;

/// Moves a body to a stream as the peer takes it. No more is read than the peer has credit for, so that a stream that is
/// not read holds next to nothing.
#[derive(Debug)]
pub(crate) struct Sending {
    body: Body,
    /// What was read of the body and not yet sent.
    data: Bytes,
    /// Nothing comes after `data`.
    last: bool,
    /// Something of the body has been asked for.
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

    /// The peer has had credit for all of it, unless the stream was given up.
    fn delivered(&mut self, stream: &Stream) {
        if !stream.is_closed() {
            self.body.delivered();
        }
    }

    /// Ready when all is sent, or nothing more is wanted.
    ///
    /// # Errors
    /// When the body fails, or takes too long.
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
}
