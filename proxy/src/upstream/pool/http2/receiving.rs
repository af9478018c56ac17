//! Receives a body.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};

use crate::protocol::http1;

/// Body received on a stream. Returns flow-control credit for bytes that are read.
#[derive(Debug)]
pub(super) struct Receiving {
    stream: RecvStream,
    /// Number of remaining bytes; `None` if the head contains no length.
    left: Option<u64>,
    ended: bool,
}

impl Receiving {
    /// Creates the body of a stream. `length` is the length in the head, if there is one.
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        Self {
            stream,
            left: length,
            ended: false,
        }
    }

    /// Returns the next frame; an error if the stream is reset before its end, for any reason.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.ended {
            match ready!(self.stream.poll_data(cx)).transpose()? {
                Some(data) => {
                    // Fails only if the stream has ended, and then credit is not needed.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                None => self.ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|mut trailers| {
            http1::filter_trailers(&mut trailers);
            Ok(Frame::trailers(trailers))
        }))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
