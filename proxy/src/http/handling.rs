//! Runs the pipeline for a request until its client cancels it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::connection::{RequestContext, Service};
use crate::protocol::message::{Interim, Message, Response};

/// The connection or stream by which a request has arrived, and by which its response is sent.
pub(super) trait RequestStream: Interim {
    /// Becomes ready when the client has cancelled the request.
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Runs the pipeline for a request; returns `None` if the client has cancelled it. The pipeline's future has then logged
/// it when it was dropped.
pub(super) fn handle<'a, S: RequestStream>(
    service: &'a Rc<Service>,
    stream: &'a S,
    message: &'a mut Message,
    context: &'a RequestContext,
) -> impl Future<Output = Option<Response>> {
    Handling {
        pipeline: service.handle(message, context),
        stream,
    }
}

pin_project! {
    /// The pipeline of a request.
    ///
    /// Not an `async` block, whose future would reserve space for the arguments beside that for the pipeline.
    struct Handling<'a, F, S> {
        #[pin]
        pipeline: F,
        stream: &'a S,
    }
}

impl<F: Future<Output = Response>, S: RequestStream> Future for Handling<'_, F, S> {
    type Output = Option<Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Response>> {
        let this = self.project();
        match this.pipeline.poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => this.stream.poll_closed(cx).map(|()| None),
        }
    }
}
