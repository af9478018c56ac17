//! The body of a response: messages as they come, and trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc::Receiver;

use crate::status::{Status, trailers};

/// What a stream's task hands to the connection.
pub(crate) type Part = Result<Bytes, Status>;

/// See the module's documentation.
pub(crate) enum Answer {
    /// What comes from a stream's task, up to its end.
    Stream(Receiver<Part>),
    /// One message, or how the call failed.
    Once(Option<Part>),
    /// Only trailers are left.
    End,
    /// Nothing is left.
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
