//! Serves one HTTP/2 connection of a client.
//!
//! The connection's task reads and writes. Each request is handled by its own task, which puts its output into the
//! connection's buffer.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, Version};
use http_body::Body as _;
use tokio::time::Sleep;

use super::connection::{LEAVE_AFTER, RequestContext, Service};
use super::handling::{self, RequestStream};
use super::streams::{self, Busy, Streams};
use crate::net::io;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::http2::{Accepted, Closed, Limits, Owner, Reason, Sending, Server, Stream};
use crate::protocol::message::{Message, Response};

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: io::Stream, service: Rc<Service>) {
    let limits = Limits {
        head: service.limits(),
        streams: service.settings().max_concurrent_streams,
    };
    let holders = Rc::clone(&service.worker.holders);
    let server = Server::new(stream, limits, move || holders.refuses());
    let streams = Rc::new(Streams::default());
    let mut leave = pin!(async {
        // Clients may connect before they have a request to send.
        let fresh = service.settings().idle_timeout;
        streams::end(&service, &streams, fresh).await;
        server.say_farewell();
        tokio::time::sleep(LEAVE_AFTER).await;
    });
    let mut leaving = false;
    let mut head = HeadLimit::default();
    let closed = poll_fn(|cx| {
        if !leaving && leave.as_mut().poll(cx).is_ready() {
            leaving = true;
            server.leave();
        }
        let mut closed = server.poll(cx);
        for Accepted {
            owner,
            request,
            head,
            arrived,
        } in server.accepted()
        {
            let busy = Streams::enter(&streams);
            let received = ReceivedRequest {
                service: Rc::clone(&service),
                context: streams::context(owner.stream(), arrived),
                owner,
                request,
                head,
                _busy: busy,
            };
            // Boxed: a future of several kilobytes would be moved twice before it becomes a task.
            let answered = Box::pin(received.answer());
            tokio::task::spawn_local(memory::guard_stream(answered));
        }
        if closed.is_pending() && head.poll(&server, &service, cx).is_ready() {
            server.time_out();
            closed = server.poll(cx);
        }
        closed
    });
    match closed.await {
        Closed::Quiet | Closed::ByPeer => {}
        closed => {
            tracing::debug!(client = %service.client.address, %closed, "HTTP/2 connection failed");
        }
    }
}

/// Time limit of the preface, and of each request head once it has begun.
#[derive(Default)]
struct HeadLimit(Option<Pin<Box<Sleep>>>);

impl HeadLimit {
    /// Becomes ready when a request head has taken too long.
    fn poll(&mut self, server: &Server, service: &Service, cx: &mut Context<'_>) -> Poll<()> {
        if !server.is_in_head() {
            self.0 = None;
            return Poll::Pending;
        }
        let limit = service.settings().header_timeout;
        let sleep = || Box::pin(tokio::time::sleep(limit));
        self.0.get_or_insert_with(sleep).as_mut().poll(cx)
    }
}

/// A request that is answered. It stays here while it is handled: each future on its way would reserve space for another
/// copy.
struct ReceivedRequest {
    service: Rc<Service>,
    owner: Owner,
    request: Result<Message, ProxyError>,
    /// Bytes of its head that the connection has allocated, and the request frees.
    head: usize,
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
                head,
                context,
                ..
            } = &mut self;
            memory::adopt(*head);
            let stream = owner.stream();
            let mut to_head = false;
            let response = match request {
                // A stream cannot become a tunnel in this implementation.
                Ok(message) if message.request.method == Method::CONNECT => {
                    Some(service.refuse(&ProxyError::ConnectNotAllowed, Version::HTTP_2))
                }
                Ok(message) => {
                    to_head = message.request.method == Method::HEAD;
                    handling::handle(service, &**stream, message, context).await
                }
                Err(error) => Some(service.refuse(error, Version::HTTP_2)),
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
        fields,
        mut body,
    } = response;
    let end = body.is_end_stream();
    let room = poll_fn(|cx| {
        if stream.poll_closed(cx).is_ready() || stream.poll_room(cx).is_ready() {
            return Poll::Ready(true);
        }
        // The idle timeout also applies to a client that has read nothing of the response.
        body.poll_timeout(cx).map(|_| false)
    });
    if !room.await {
        return stream.abandon(Reason::Internal);
    }
    // An empty body is never polled.
    body.settle_if_ended();
    stream.send_head(status, &fields, end);
    if end {
        return;
    }
    let mut sending = Sending::new(body);
    let sent = poll_fn(|cx| {
        let sent = sending.poll(stream, cx);
        if sent.is_pending() {
            stream.hurry();
        }
        match stream.poll_closed(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => sent,
        }
    });
    if sent.await.is_err() {
        stream.abandon(Reason::Internal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the size of the future that answers a request, as that of the mesh transport.
    #[test]
    fn a_waiting_requests_future_stays_within_a_block() {
        fn size<F>(_: impl FnOnce(ReceivedRequest) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(ReceivedRequest::answer);
        assert!(size <= 896, "{size} bytes");
    }
}
