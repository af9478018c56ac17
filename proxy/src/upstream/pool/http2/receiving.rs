//! A body on its way in.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};

use crate::protocol::http1;

/// The body that comes on a stream. Credit is returned for what is taken.
#[derive(Debug)]
pub(super) struct Receiving {
    stream: RecvStream,
    /// Bytes that are still to come, where the head says how many.
    left: Option<u64>,
    ended: bool,
}

impl Receiving {
    /// `length` is the body's, where that is known.
    pub(super) fn new(stream: RecvStream, length: Option<u64>) -> Self {
        Self {
            stream,
            left: length,
            ended: false,
        }
    }

    /// The next frame; an error where the stream is reset, whatever the reason, before its end.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.ended {
            match ready!(self.stream.poll_data(cx)).transpose()? {
                Some(data) => {
                    // Fails only where the stream is over and credit of no use.
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
