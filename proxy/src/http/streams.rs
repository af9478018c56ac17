//! The streams of a multiplexed connection, the request of each, and when the connection should end.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use http_body::Body as _;
use tokio::time::Instant;

use super::connection::{RequestContext, Service};
use super::handling::RequestStream;
use crate::protocol::fields::Known;
use crate::protocol::http1;
use crate::protocol::message::{Interim, Response};
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

/// Returns the context of a stream's request that arrived at `started`.
pub(super) fn context<S: RequestStream + 'static>(
    stream: &Rc<S>,
    started: Instant,
) -> RequestContext {
    RequestContext {
        started,
        timer: Timer::new(),
        interim: Some(Rc::<S>::clone(stream) as Rc<dyn Interim>),
    }
}

/// Adapts a response to a stream, and adds the length of its body if it is known. `to_head`: whether the method of its
/// request is HEAD.
pub(super) fn adapt(response: &mut Response, to_head: bool) {
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        // A client cannot request this on a stream, so an upgrade is never forwarded.
        response.status = StatusCode::BAD_GATEWAY;
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
