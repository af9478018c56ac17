//! The streams of a multiplexed connection, and when the connection should end.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Service;

/// Becomes ready when the connection should end: the listener drains, the maximum age is reached, there has been no
/// stream for the idle timeout, or no first stream within `fresh`.
pub(super) async fn end(service: &Service, streams: &Streams, fresh: Duration) {
    let idle = service.settings().idle_timeout;
    let mut wait = pin!(tokio::time::sleep(idle.min(fresh)));
    let age = service.expires().unwrap_or_else(|| Instant::now() + NEVER);
    let mut age = pin!(tokio::time::sleep_until(age));
    poll_fn(|cx| {
        if service.is_draining() || age.as_mut().poll(cx).is_ready() {
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

/// Ten years: longer than the lifetime of any process.
const NEVER: Duration = Duration::from_secs(315_360_000);

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
        self.0.busy.set(self.0.busy.get() - 1);
        self.0.last.set(Instant::now());
    }
}
