//! Serves one connection of another mesh member over the mesh transport.
//!
//! The connection's task reads and writes. Each request is handled by its own task, which puts its output into the
//! connection's buffer.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use super::connection::{LEAVE_AFTER, Service};
use super::streams::{self, Streams};
use crate::net::io;
use crate::protocol::mesh_transport::Closed;
use crate::protocol::mesh_transport::server::Server;

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: io::Stream, service: Rc<Service>) {
    let settings = service.settings();
    let server = Server::new(stream, service.limits(), settings.max_concurrent_streams);
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
        for accepted in server.accepted() {
            streams::start(&service, &streams, accepted);
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
