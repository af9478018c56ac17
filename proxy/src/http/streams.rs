//! The streams of a multiplexed connection, the request of each, and when the connection should end.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::connection::{RequestContext, Service};
use super::timer::Lent;
use crate::protocol::message::{Body, Interim, Request, Response};

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

/// A stream by which a request has arrived, and by which its response is sent.
pub(super) trait RequestStream: Interim {
    /// Becomes ready when the client has cancelled the request.
    fn poll_closed(&self, cx: &Context<'_>) -> Poll<()>;
}

/// Runs the pipeline for the request of a stream, which arrived at `started`; returns `None` if the client has cancelled
/// it.
pub(super) fn handle<S: RequestStream + 'static>(
    service: &Rc<Service>,
    stream: &Rc<S>,
    (request, body): (&mut Request, &mut Body),
    started: Instant,
    timer: &Lent,
) -> impl Future<Output = Option<Response>> {
    async move {
        let context = RequestContext {
            started,
            timer: timer.get(),
            interim: Some(Rc::<S>::clone(stream) as Rc<dyn Interim>),
        };
        let to_head = request.method == Method::HEAD;
        let mut handling = pin!(service.handle(request, body, &context));
        let handled = poll_fn(|cx| match handling.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => stream.poll_closed(cx).map(|()| None),
        });
        let mut response = handled.await?;
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
        Some(response)
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
        let busy = self.0.busy.get() - 1;
        self.0.busy.set(busy);
        // Only the end of the last one begins the idle time.
        if busy == 0 {
            self.0.last.set(Instant::now());
        }
    }
}
