//! The body of a response: a stream of messages, followed by trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc::Receiver;

use crate::grpc_server::status::{Status, trailers};

/// A part of a response, which the task of a stream sends to the connection.
pub(crate) type Part = Result<Bytes, Status>;

/// A response body.
pub(crate) enum Answer {
    /// The messages from the task of a stream, up to its end.
    Stream(Receiver<Part>),
    /// A single message, or the status of a failed call.
    Once(Option<Part>),
    /// Only the trailers have not been sent yet.
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
