//! The body of a response: messages as they are produced, and trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc::Receiver;

use crate::status::{Status, trailers};

/// A part of a response, sent from a stream's task to the connection.
pub(crate) type Part = Result<Bytes, Status>;

/// A response body.
pub(crate) enum Answer {
    /// The messages of a stream's task, up to its end.
    Stream(Receiver<Part>),
    /// One message, or the status of a failed call.
    Once(Option<Part>),
    /// Only the trailers remain to be sent.
    End,
    /// Everything has been sent.
    Ended,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = match &mut *self {
            Self::Ended => return Poll::Ready(None),
            Self::End => None,
            Self::Once(part) => part.take(),
            Self::Stream(parts) => match parts.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(part) => part,
            },
        };
        let outcome = match part {
            Some(Ok(message)) => {
                if matches!(*self, Self::Once(_)) {
                    *self = Self::End;
                }
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            Some(Err(status)) => Err(status),
            None => Ok(()),
        };
        *self = Self::Ended;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&outcome)))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Ended)
    }
}
