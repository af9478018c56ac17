//! Serves one connection of another mesh member over the mesh transport.
//!
//! The connection's task reads and writes. Each request is handled by its own task, which puts its output into the
//! connection's buffer.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, Version};
use http_body::Body as _;
use tokio::time::Instant;

use super::connection::{LEAVE_AFTER, Service};
use super::streams::{self, Busy, RequestStream, Streams};
use super::timer::{Lent, Timers};
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{CONNECTION_FIELDS, Known};
use crate::protocol::http1::{self, HeadError};
use crate::protocol::mesh_transport::server::{Accepted, Server};
use crate::protocol::mesh_transport::{Closed, Owner, Reason, Sending, Stream};
use crate::protocol::message::{Body, Request, Response};

/// Serves a connection until it ends.
pub(crate) async fn serve(io: Io, service: Rc<Service>) {
    let settings = service.settings();
    let server = Server::new(io, service.limits(), settings.max_concurrent_streams);
    let streams = Rc::new(Streams::default());
    let timers = Rc::new(Timers::default());
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
            let mut received = ReceivedRequest {
                service: Rc::clone(&service),
                owner,
                request,
                timer: Lent::of(&timers),
                _busy: Streams::enter(&streams),
            };
            // Boxed: a future of several kilobytes would be moved twice before it becomes a task.
            let answered = Box::pin(async move { received.answer().await });
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
    request: Result<(Request, Body), HeadError>,
    timer: Lent,
    _busy: Busy,
}

impl ReceivedRequest {
    /// Handles the request and sends its response.
    async fn answer(&mut self) {
        let stream = self.owner.stream();
        let service = &self.service;
        let refused = |error: ProxyError| service.refuse(&error, Version::HTTP_11);
        let response = match &mut self.request {
            Err(error) => Some(refused(ProxyError::DownstreamHead(*error))),
            // Byte streams use separate connections.
            Ok((request, _)) if request.method == Method::CONNECT => {
                Some(refused(ProxyError::ConnectNotAllowed))
            }
            Ok((request, body)) => {
                let started = Instant::now();
                streams::handle(service, stream, (request, body), started, &self.timer).await
            }
        };
        // Dropping the pipeline's future has cancelled the request and logged it.
        if let Some(response) = response {
            respond(stream, response).await;
        }
    }
}

impl RequestStream for Stream {
    fn poll_closed(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_closed(cx)
    }
}

async fn respond(stream: &Rc<Stream>, response: Response) {
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
    if !end
        && !fields.contains(Known::ContentLength)
        && let Some(length) = body.size_hint().exact()
    {
        http1::set_content_length(&mut fields, length);
    }
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
