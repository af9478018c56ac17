//! Serves one connection of another mesh member over the mesh transport.
//!
//! The connection's task reads and writes. Each request is handled by its own task, which puts its output into the
//! connection's buffer.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, Version};
use http_body::Body as _;
use tokio::time::Instant;

use super::connection::{LEAVE_AFTER, RequestContext, Service};
use super::handling::{self, RequestStream};
use super::streams::{self, Busy, Streams};
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::CONNECTION_FIELDS;
use crate::protocol::http1::HeadError;
use crate::protocol::mesh_transport::server::{Accepted, Server};
use crate::protocol::mesh_transport::{Closed, Owner, Reason, Sending, Stream};
use crate::protocol::message::{Message, Response};

/// Serves a connection until it ends.
pub(crate) async fn serve(io: Io, service: Rc<Service>) {
    let settings = service.settings();
    let server = Server::new(io, service.limits(), settings.max_concurrent_streams);
    let streams = Rc::new(Streams::default());
    let mut leave = pin!(async {
        // A member connects in order to send a request, so a connection without one is not idle between two requests.
        streams::end(&service, &streams, settings.header_timeout).await;
        server.say_farewell();
        tokio::time::sleep(LEAVE_AFTER).await;
    });
    let mut leaving = false;
    let closed = poll_fn(|cx| {
        if !leaving && leave.as_mut().poll(cx).is_ready() {
            leaving = true;
            server.leave();
        }
        let closed = server.poll(cx);
        for Accepted { owner, request } in server.accepted() {
            let busy = Streams::enter(&streams);
            let received = ReceivedRequest {
                service: Rc::clone(&service),
                context: streams::context(owner.stream(), Instant::now()),
                owner,
                request,
                _busy: busy,
            };
            // Boxed: a future of several kilobytes would be moved twice before it becomes a task.
            let answered = Box::pin(received.answer());
            tokio::task::spawn_local(memory::guard_stream(answered));
        }
        closed
    });
    let closed = closed.await;
    service.count_closed(closed);
    match closed {
        Closed::Quiet | Closed::ByPeer => {}
        closed => {
            tracing::debug!(client = %service.client.address, %closed, "mesh transport connection failed");
        }
    }
}

/// A request that is answered. It stays here while it is handled: each future on its way would reserve space for another
/// copy.
struct ReceivedRequest {
    service: Rc<Service>,
    owner: Owner,
    request: Result<Message, HeadError>,
    context: RequestContext,
    _busy: Busy,
}

impl ReceivedRequest {
    /// Handles the request and sends its response.
    fn answer(mut self) -> impl Future<Output = ()> {
        async move {
            let Self {
                service,
                owner,
                request,
                context,
                ..
            } = &mut self;
            let stream = owner.stream();
            let mut to_head = false;
            let response = match request {
                // Byte streams use separate connections.
                Ok(message) if message.request.method == Method::CONNECT => {
                    Some(service.refuse(&ProxyError::ConnectNotAllowed, Version::HTTP_11))
                }
                Ok(message) => {
                    to_head = message.request.method == Method::HEAD;
                    handling::handle(service, &**stream, message, context).await
                }
                Err(error) => {
                    Some(service.refuse(&ProxyError::DownstreamHead(*error), Version::HTTP_11))
                }
            };
            // Passed on as it is: what is left of it would need space beside that for the pipeline.
            respond(self.owner.stream(), response, to_head).await;
        }
    }
}

impl RequestStream for Stream {
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_closed(cx)
    }
}

/// Sends a response; `None` if the client has cancelled the request. `to_head`: whether the method is HEAD.
async fn respond(stream: &Stream, response: Option<Response>, to_head: bool) {
    let Some(mut response) = response else {
        return;
    };
    streams::adapt(&mut response, to_head);
    let Response {
        status,
        mut fields,
        mut body,
    } = response;
    // A header rule may have added these fields; the peer would reject them.
    for name in CONNECTION_FIELDS {
        fields.remove(name);
    }
    let end = body.is_end_stream();
    let room = poll_fn(|cx| match stream.poll_closed(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => stream.poll_room(cx),
    });
    room.await;
    // An empty body is never polled.
    body.settle_if_ended();
    stream.send_head(status, &fields, end);
    if end {
        return;
    }
    let mut sending = Sending::new(body);
    let sent = poll_fn(|cx| {
        let sent = sending.poll(stream, cx);
        match stream.poll_closed(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => sent,
        }
    });
    if sent.await.is_err() {
        stream.abandon(Reason::Failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the size of the future that answers a request, which is the largest part of a waiting request's memory: it
    /// fits into a block of the allocator.
    #[test]
    fn a_waiting_requests_future_stays_within_a_block() {
        fn size<F>(_: impl FnOnce(ReceivedRequest) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(ReceivedRequest::answer);
        assert!(size <= 896, "{size} bytes");
    }
}
