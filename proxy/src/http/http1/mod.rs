//! Serves one HTTP/1.1 connection of a client.
//!
//! A connection alternates between two forms. A busy connection is a boxed [`session`] with buffers, a timer and the
//! whole request pipeline in its future. A connection that has been idle for [`PARK_AFTER`] is a bare socket in a
//! future of a few hundred bytes, and becomes a session again when bytes arrive.

mod connection;
mod response;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version};
use tokio::time::Instant;

use self::connection::{NoRequest, Shared};
use super::connection::{RequestContext, Service};
use crate::net::fairness;
use crate::net::io::{Io, Stream};
use crate::protocol::http1::RequestHead;
use crate::protocol::message::{Body, Interim, Request, TakenOver, Takeover};

/// How long an idle connection keeps its buffers.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// Serves a connection until it ends. `begun` is when the first byte of its first request arrived, if it has already
/// arrived.
pub(crate) async fn serve(mut stream: Stream, mut begun: Option<Instant>, service: Rc<Service>) {
    // Before the first request the timeout of a request head applies; the idle timeout applies only between two
    // requests.
    let mut fresh = true;
    loop {
        // Not in the future, which would keep the space of its arguments.
        let shared = Rc::new(Shared::new(stream, begun.take()));
        // A separate statement: as the operand of `match`, the box would live as long as the arms.
        let end = Box::pin(session(shared, &service)).await;
        match end {
            End::Closed => return,
            End::Idle(io, served) => {
                fresh &= !served;
                service.worker.count_released(1);
                // Boxed: the future of every busy connection would reserve space for it.
                if !Box::pin(parked(&io, &service, fresh)).await {
                    return;
                }
                stream = Stream {
                    io,
                    prefix: Bytes::new(),
                    guard: None,
                };
            }
            End::TakenOver(taken) => {
                let (downstream, taken) = *taken;
                return Box::pin(take_over(service, downstream, taken)).await;
            }
        }
    }
}

/// Result of a session.
enum End {
    Closed,
    /// The bare connection, and whether a request was served.
    Idle(Io, bool),
    TakenOver(Box<(Stream, TakenOver)>),
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

/// Waits for the next request on a bare socket; returns false if the connection must be closed.
async fn parked(io: &Io, service: &Service, fresh: bool) -> bool {
    let settings = service.settings();
    let limit = match fresh {
        true => settings.idle_timeout.min(settings.header_timeout),
        false => settings.idle_timeout,
    };
    let limit = limit.saturating_sub(PARK_AFTER);
    let mut timeout = pin!(tokio::time::sleep(limit));
    poll_fn(|cx| {
        // A session handles the drain.
        if service.is_draining() {
            return Poll::Ready(true);
        }
        if io.tcp().poll_read_ready(cx).is_ready() {
            return Poll::Ready(true);
        }
        timeout.as_mut().poll(cx).map(|()| false)
    })
    .await
}

/// Serves requests until the connection closes, idles or becomes a tunnel.
async fn session(shared: Rc<Shared>, service: &Rc<Service>) -> End {
    let mut served = false;
    loop {
        let after = match round_trip(&shared, service).await {
            Ok(after) => after,
            Err(end) => return without_request(shared, service, end, served).await,
        };
        served = true;
        match after {
            After::Close => return End::Closed,
            After::Linger => {
                shared.linger().await;
                return End::Closed;
            }
            // Without this, no other task of the worker would run while a pipelining client's requests are answered
            // without a server. The connection lets other tasks run before each further request.
            After::NextRequest if shared.has_input() => fairness::next().await,
            After::NextRequest => {}
            After::TakenOver(taken) => {
                let Some(downstream) = Shared::into_stream(shared) else {
                    return End::Closed;
                };
                return End::TakenOver(Box::new((downstream, *taken)));
            }
        }
    }
}

/// Reads a request, runs the pipeline for it, and writes the response.
///
/// The future of a waiting request contains whatever lives across one of its awaits, so that a head is taken apart at
/// once.
///
/// # Errors
/// If there is no further request.
async fn round_trip(shared: &Rc<Shared>, service: &Rc<Service>) -> Result<After, NoRequest> {
    let next = poll_fn(|cx| shared.poll_request(cx, service));
    let (facts, mut request, mut body) = next.await.map(|head| begin(shared, head))?;
    let response = {
        let context = RequestContext {
            started: Instant::now(),
            timer: Rc::clone(&shared.timer),
            interim: (request.version == Version::HTTP_11)
                .then(|| -> Rc<dyn Interim> { Rc::<Shared>::clone(shared) }),
        };
        let mut handling = pin!(service.handle(&mut request, &mut body, &context));
        let handled = poll_fn(|cx| match handling.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => shared.poll_watch(cx).map(|()| None),
        });
        match handled.await {
            Some(response) => response,
            // Dropping the pipeline's future has cancelled the request and logged it.
            None => return Ok(After::Close),
        }
    };
    // The rest of a body that will not be read does not keep the connection's state.
    drop(body);
    Ok(response::respond(shared, service, &facts, response).await)
}

/// Takes the head of a request apart.
fn begin(shared: &Rc<Shared>, head: RequestHead) -> (RequestFacts, Request, Body) {
    let facts = RequestFacts::of(&head);
    let (request, body) = shared.begin(head);
    (facts, request, body)
}

/// Ends a session that gets no further request.
async fn without_request(
    shared: Rc<Shared>,
    service: &Service,
    end: NoRequest,
    served: bool,
) -> End {
    match end {
        NoRequest::Close => {
            if !served {
                fairness::before_close().await;
            }
            End::Closed
        }
        NoRequest::Idle => {
            let io = shared.into_io();
            io.map_or(End::Closed, |io| End::Idle(io, served))
        }
        NoRequest::Refuse(error) => {
            response::refuse(&shared, service, &error).await;
            End::Closed
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
    method: Method,
    version: Version,
    keep_alive: bool,
}

impl RequestFacts {
    fn of(head: &RequestHead) -> Self {
        Self {
            method: head.method.clone(),
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
        fn size<F>(_: impl FnOnce(Stream, Option<Instant>, Rc<Service>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(serve);
        assert!(size <= 256, "{size} bytes");
    }

    /// Checks the size of a busy connection's future, which is the largest part of a waiting request's memory: it fits
    /// into a block of the allocator.
    #[test]
    fn a_waiting_requests_future_stays_within_a_block() {
        fn size<F>(_: impl FnOnce(Rc<Shared>, &'static Rc<Service>) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(session);
        assert!(size <= 1536, "{size} bytes");
    }
}
