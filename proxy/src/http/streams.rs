//! The streams of an HTTP/2 connection or of the mesh transport: how the request of each is answered, and when the
//! connection should end.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body::Body as _;
use tokio::time::Instant;

use super::connection::{RequestContext, Service};
use super::handling::{self, RequestStream};
use crate::os::memory;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{CONNECTION_FIELDS, Known};
use crate::protocol::http1;
use crate::protocol::message::{Interim, Message, Response};
use crate::protocol::streams::{Accepted, Owner, Protocol, Sending, Stream};
use crate::runtime::timers::Timer;

/// Becomes ready when the connection should end: the listener drains, the maximum age is reached, there has been no
/// stream for the idle timeout, or no first stream within `fresh`.
pub(super) async fn end(service: &Service, streams: &Streams, fresh: Duration) {
    let idle = service.settings().idle_timeout;
    let mut wait = pin!(tokio::time::sleep(idle.min(fresh)));
    let mut age = service
        .expires()
        .map(|at| Box::pin(tokio::time::sleep_until(at)));
    poll_fn(|cx| {
        let mut is_old = || {
            age.as_mut()
                .is_some_and(|age| age.as_mut().poll(cx).is_ready())
        };
        if service.is_draining() || is_old() {
            return Poll::Ready(());
        }
        while wait.as_mut().poll(cx).is_ready() {
            let since = Instant::now() - streams.last.get();
            let idle = match streams.begun.get() {
                true => idle,
                false => idle.min(fresh),
            };
            if streams.busy.get() == 0 && since >= idle {
                return Poll::Ready(());
            }
            let again = if streams.busy.get() > 0 {
                idle
            } else {
                idle - since
            };
            wait.as_mut().reset(Instant::now() + again);
        }
        Poll::Pending
    })
    .await;
}

/// A request that is answered. It stays here while it is handled: each future on its way would reserve space for another
/// copy.
struct ReceivedRequest<P: Protocol> {
    service: Rc<Service>,
    owner: Owner<P>,
    request: Result<Message, ProxyError>,
    /// Bytes of its head that the connection has allocated, and the request frees.
    head: usize,
    context: RequestContext,
    _busy: Busy,
}

/// Starts the task that handles a request.
pub(super) fn start<P: Protocol>(
    service: &Rc<Service>,
    streams: &Rc<Streams>,
    accepted: Accepted<P>,
) {
    let Accepted {
        owner,
        request,
        arrived,
        head,
    } = accepted;
    let busy = Streams::enter(streams);
    let context = RequestContext {
        started: arrived,
        timer: Timer::new(),
        interim: Some(Rc::<Stream<P>>::clone(owner.stream()) as Rc<dyn Interim>),
    };
    let received = ReceivedRequest {
        service: Rc::clone(service),
        owner,
        request,
        head,
        context,
        _busy: busy,
    };
    // Boxed: a future of several kilobytes would be moved twice before it becomes a task.
    let answered = Box::pin(received.answer());
    tokio::task::spawn_local(memory::guard_stream(answered));
}

impl<P: Protocol> ReceivedRequest<P> {
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
            let message = match request {
                // A stream does not become a tunnel: the mesh transport has separate connections for byte streams.
                Ok(message) if message.request.method == Method::CONNECT => {
                    return refuse(service, stream, &ProxyError::ConnectNotAllowed).await;
                }
                Ok(message) => message,
                Err(error) => return refuse(service, stream, error).await,
            };
            let to_head = message.request.method == Method::HEAD;
            let response = handling::handle(service, &**stream, message, context).await;
            // Passed on as it is: what is left of it would need space beside that for the pipeline.
            respond(self.owner.stream(), response, to_head).await;
        }
    }
}

impl<P: Protocol> RequestStream for Stream<P> {
    fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_closed(cx)
    }
}

/// Responds to a request that does not reach the pipeline. No accounting limits the time of its response.
async fn refuse<P: Protocol>(service: &Rc<Service>, stream: &Stream<P>, error: &ProxyError) {
    let response = service.refuse(error, P::VERSION);
    let responding = Box::pin(respond(stream, Some(response), false));
    let limit = service.settings().stream_idle_timeout;
    if tokio::time::timeout(limit, responding).await.is_err() {
        stream.abandon(P::FAILED);
    }
}

/// Sends a response; `None` if the client has cancelled the request. `to_head`: whether the method is HEAD.
async fn respond<P: Protocol>(stream: &Stream<P>, response: Option<Response>, to_head: bool) {
    let Some(mut response) = response else {
        return;
    };
    adapt(&mut response, to_head);
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
        return stream.abandon(P::FAILED);
    }
    // An empty body is never polled.
    body.settle_if_ended();
    stream.send_head(status, &fields, end);
    // A long body would hold the head.
    drop(fields);
    if !end {
        let mut sending = Sending::new(body);
        sending.finish(stream, P::FAILED).await;
    }
}

/// Adapts a response to a stream, and adds the length of its body if it is known. `to_head`: whether the method of its
/// request is HEAD.
fn adapt(response: &mut Response, to_head: bool) {
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        // A client cannot request this on a stream, so an upgrade is never forwarded.
        response.status = StatusCode::BAD_GATEWAY;
    }
    // A header rule may have added these fields; the mesh transport's peer would reject them.
    for name in CONNECTION_FIELDS {
        response.fields.remove(name);
    }
    let bodiless = matches!(
        response.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if to_head || bodiless {
        response.body.leave_out();
    }
    if !response.body.is_end_stream()
        && !response.fields.contains(Known::ContentLength)
        && let Some(length) = response.body.size_hint().exact()
    {
        http1::set_content_length(&mut response.fields, length);
    }
}

/// Counts of a connection's streams.
#[derive(Debug)]
pub(super) struct Streams {
    busy: Cell<usize>,
    /// Whether there has been a stream.
    begun: Cell<bool>,
    last: Cell<Instant>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            busy: Cell::new(0),
            begun: Cell::new(false),
            last: Cell::new(Instant::now()),
        }
    }
}

/// Counts a stream while its request is being handled.
pub(super) struct Busy(Rc<Streams>);

impl Streams {
    pub(super) fn enter(streams: &Rc<Self>) -> Busy {
        streams.busy.set(streams.busy.get() + 1);
        streams.begun.set(true);
        Busy(Rc::clone(streams))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Self(streams) = self;
        let busy = streams.busy.get() - 1;
        streams.busy.set(busy);
        // Only the end of the last one begins the idle time.
        if busy == 0 {
            streams.last.set(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::http2::Http2;
    use crate::protocol::mesh_transport::MeshTransport;

    /// Checks the size of the futures that answer a request, which are the largest part of a waiting request's memory: they
    /// fit into a block of the allocator.
    #[test]
    fn a_waiting_requests_future_stays_within_a_block() {
        fn size<P: Protocol, F>(_: impl FnOnce(ReceivedRequest<P>) -> F) -> usize {
            size_of::<F>()
        }
        let sizes = [
            size(ReceivedRequest::<Http2>::answer),
            size(ReceivedRequest::<MeshTransport>::answer),
        ];
        assert!(sizes.iter().all(|size| *size <= 768), "{sizes:?} bytes");
    }
}
