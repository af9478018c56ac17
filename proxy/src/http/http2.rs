//! Serves one HTTP/2 connection of a client.
//!
//! The connection's task reads and writes. Each request is handled by its own task, which puts its output into the
//! connection's buffer.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use super::connection::{LEAVE_AFTER, Service};
use super::streams::{self, Streams};
use crate::net::io;
use crate::protocol::http2::{Closed, Limits, Server};

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
        for accepted in server.accepted() {
            streams::start(&service, &streams, accepted);
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
