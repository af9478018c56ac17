//! Serves one HTTP/1.1 connection of a client.
//!
//! A connection alternates between two forms. A busy connection is a boxed [`session`] with buffers, a timer and the
//! whole request pipeline in its future. A connection that has been idle for [`PARK_AFTER`] is a bare socket in a
//! future of a few hundred bytes, and becomes a session again when bytes arrive.

mod connection;
mod response;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version};
use tokio::time::Instant;

use self::connection::{NoRequest, Shared};
use super::connection::{RequestContext, Service};
use super::handling;
use super::phase::Phase;
use crate::net::fairness;
use crate::net::io::{Io, Stream};
use crate::protocol::http1::RequestHead;
use crate::protocol::message::{Interim, Message, TakenOver, Takeover};

/// How long an idle connection keeps its buffers.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// Returns the first phase of a connection. `begun` is when the first byte of its first request arrived, if it has
/// already arrived.
pub(crate) fn serve(stream: Stream, begun: Option<Instant>, service: Rc<Service>) -> Phase {
    // Before the first request the timeout of a request head applies; the idle timeout applies only between two
    // requests.
    busy(stream, begun, service, true)
}

/// Returns the phase of a busy connection; a `fresh` one has had no request yet.
fn busy(stream: Stream, begun: Option<Instant>, service: Rc<Service>, fresh: bool) -> Phase {
    let shared = Rc::new(Shared::new(stream, begun));
    Phase::new(session(shared, service, fresh))
}

/// Serves requests until the connection closes, idles or becomes a tunnel.
fn session(
    shared: Rc<Shared>,
    service: Rc<Service>,
    fresh: bool,
) -> impl Future<Output = Option<Phase>> {
    async move {
        let mut served = false;
        loop {
            // In a scope of its own: what lives while another future runs is kept while a request waits.
            {
                let after = round_trip(&shared, &service).await;
                if !matches!(after, Ok(After::NextRequest)) {
                    return finish(shared, service, after, (fresh, served)).await;
                }
            }
            served = true;
            // Without this, no other task of the worker would run while a pipelining client's requests are answered
            // without a server. The connection lets other tasks run before each further request.
            if shared.has_input() {
                fairness::next().await;
            }
        }
    }
}

/// Continues with the protocol that replaces HTTP.
async fn take_over(service: Rc<Service>, downstream: Stream, taken: TakenOver) {
    let TakenOver { takeover, account } = taken;
    match *takeover {
        Takeover::Channel => {
            drop(account);
            service.serve_channel(downstream).await;
        }
        Takeover::Tunnel(upstream) => service.tunnel(downstream, upstream, account).await,
    }
}

/// Waits for the next request on a bare socket.
///
/// Not an `async fn`, whose future would reserve space for each argument twice.
fn parked(io: Io, service: Rc<Service>, fresh: bool) -> impl Future<Output = Option<Phase>> {
    let settings = service.settings();
    let limit = match fresh {
        true => settings.idle_timeout.min(settings.header_timeout),
        false => settings.idle_timeout,
    };
    let limit = limit.saturating_sub(PARK_AFTER);
    async move {
        let is_over = {
            let mut timeout = pin!(tokio::time::sleep(limit));
            poll_fn(|cx| {
                // A session handles the drain.
                if service.is_draining() || io.tcp().poll_read_ready(cx).is_ready() {
                    return Poll::Ready(false);
                }
                timeout.as_mut().poll(cx).map(|()| true)
            })
            .await
        };
        let prefix = Bytes::new();
        let guard = None;
        (!is_over).then(|| busy(Stream { io, prefix, guard }, None, service, fresh))
    }
}

/// Reads a request, runs the pipeline for it, and writes the response.
///
/// The future of a waiting request contains whatever lives across one of its awaits, so that a head is taken apart at
/// once.
///
/// # Errors
/// If there is no further request.
fn round_trip(
    shared: &Rc<Shared>,
    service: &Rc<Service>,
) -> impl Future<Output = Result<After, NoRequest>> {
    async move {
        let next = poll_fn(|cx| shared.poll_request(cx, service));
        let (facts, mut message) = next.await.map(|head| begin(shared, head))?;
        let response = {
            let context = RequestContext {
                started: Instant::now(),
                timer: shared.timer(),
                interim: (message.request.version == Version::HTTP_11)
                    .then(|| -> Rc<dyn Interim> { Rc::<Shared>::clone(shared) }),
            };
            match handling::handle(service, &**shared, &mut message, &context).await {
                Some(response) => response,
                // Dropping the pipeline's future has cancelled the request and logged it.
                None => return Ok(After::Close),
            }
        };
        // The rest of a body that will not be read does not keep the connection's state, nor a long response the request.
        drop(message);
        Ok(response::respond(shared, service, &facts, response).await)
    }
}

/// Takes the head of a request apart.
fn begin(shared: &Rc<Shared>, head: RequestHead) -> (RequestFacts, Message) {
    let facts = RequestFacts::of(&head);
    (facts, shared.begin(head))
}

/// Ends a session, and returns the next phase of its connection. `fresh` and `served`: whether the connection had no
/// request before this session, and whether the session had one.
async fn finish(
    shared: Rc<Shared>,
    service: Rc<Service>,
    after: Result<After, NoRequest>,
    (fresh, served): (bool, bool),
) -> Option<Phase> {
    match after {
        Ok(After::Close | After::NextRequest) => None,
        Ok(After::Linger) => {
            shared.linger().await;
            None
        }
        Ok(After::TakenOver(taken)) => {
            let downstream = Shared::into_stream(shared)?;
            Some(Phase::last(take_over(service, downstream, *taken)))
        }
        Err(NoRequest::Close) => {
            if !served {
                fairness::before_close().await;
            }
            None
        }
        Err(NoRequest::Idle) => {
            let io = shared.into_io()?;
            service.worker.count_released(1);
            Some(Phase::new(parked(io, service, fresh && !served)))
        }
        Err(NoRequest::Refuse(error)) => {
            response::refuse(&shared, &service, &error).await;
            None
        }
    }
}

/// Next step after a response.
enum After {
    Close,
    Linger,
    NextRequest,
    TakenOver(Box<TakenOver>),
}

/// Properties of the request that determine how the response is written.
struct RequestFacts {
    /// Whether the method is HEAD.
    to_head: bool,
    version: Version,
    keep_alive: bool,
}

impl RequestFacts {
    fn of(head: &RequestHead) -> Self {
        Self {
            to_head: head.method == Method::HEAD,
            version: head.version,
            // The bytes after a rejected CONNECT may be meant for the tunnel and must not be parsed as a request.
            keep_alive: head.keep_alive && head.method != Method::CONNECT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the size of an idle connection's future, which is its memory in addition to the socket.
    #[test]
    fn an_idle_connections_future_stays_small() {
        fn size<F>(_: impl FnOnce(Io, Rc<Service>, bool) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(parked);
        assert!(size <= 224, "{size} bytes");
    }

    /// Checks the size of a busy connection's future, which is the largest part of a waiting request's memory: it fits
    /// into a block of the allocator.
    #[test]
    fn a_waiting_requests_future_stays_within_a_block() {
        fn size<F>(_: impl FnOnce(Rc<Shared>, Rc<Service>, bool) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(session);
        assert!(size <= 768, "{size} bytes");
    }
}
