//! A TCP tunnel: copies bytes between two streams in both directions.
//!
//! An idle tunnel holds no buffer and no pipe, only its two sockets. Small data is copied through one buffer
//! that all tunnels of the thread share; only what the receiver does not accept at once is kept. Bulk data
//! between two plain sockets goes through a pipe by `splice(2)` and is never copied to user space
//! (`splice.rs`).
//!
//! Each direction is a `Half`. It reads only when all data read before is written, which provides back-pressure. At
//! the end of its source it shuts down the target's write side, while the other direction continues. The kind of
//! failure determines what the other side sees:
//!
//! * Reading fails (RST): the other side is reset too, so that it cannot mistake the data for complete.
//! * Writing fails: the peer may have answered before it closed, so the other direction is finished first.
//! * TLS ends without `close_notify`: treated as the end of the data, which most peers intend.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::mem::take;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use self::half::{Fault, Half};
use crate::net::io::{Io, Stream};

mod half;
mod splice;
#[cfg(test)]
mod tests;

/// Used instead of an idle timeout whose sum with the current time would overflow.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// One of the two peers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The client.
    Downstream,
    /// The endpoint.
    Upstream,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Both peers have closed their side.
    Closed,
    /// A connection failed.
    Error {
        /// Side of the failed connection.
        side: Side,
        /// The error.
        kind: ErrorKind,
    },
    /// No byte was moved for `idle_timeout`.
    IdleTimeout,
}

/// Result of a tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// Bytes written to the endpoint, without TLS overhead.
    pub bytes_to_upstream: u64,
    /// Bytes written to the client, without TLS overhead.
    pub bytes_to_downstream: u64,
    /// Why the tunnel ended.
    pub end: End,
}

/// Transfers bytes between `down` and `up` until both have ended, one has failed, or nothing has moved for
/// `idle_timeout`.
///
/// The prefix of each stream is written to the other one first. `on_bytes` is called with the numbers of bytes
/// written to `up` and to `down`, so that metrics are live. Dropping the future closes both streams.
pub(crate) async fn tunnel(
    mut down: Stream,
    mut up: Stream,
    idle_timeout: Duration,
    on_bytes: impl Fn(u64, u64),
) -> Outcome {
    let splice = matches!((&down.io, &up.io), (Io::Tcp(_), Io::Tcp(_)));
    let mut ways = Ways {
        to_up: Half::new(take(&mut down.prefix), splice),
        to_down: Half::new(take(&mut up.prefix), splice),
        failed: None,
    };
    let mut idle = pin!(Idle::new(idle_timeout.min(FAR)));
    let end = poll_fn(|cx| {
        if let Poll::Ready(end) = ways.poll(cx, &mut down.io, &mut up.io, &on_bytes) {
            return Poll::Ready(end);
        }
        let active = ways.take_active();
        idle.as_mut().poll(cx, active).map(|()| End::IdleTimeout)
    });
    let end = end.await;
    Outcome {
        bytes_to_upstream: ways.to_up.written,
        bytes_to_downstream: ways.to_down.written,
        end,
    }
}

pin_project! {
    /// Idle timer that is not reset when bytes are moved. It fires one timeout after the start or the last check, and
    /// only then considers when the last byte was moved.
    struct Idle {
        timeout: Duration,
        last_active: Instant,
        #[pin]
        sleep: Sleep,
    }
}

impl Idle {
    fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            timeout,
            last_active: now,
            sleep: tokio::time::sleep_until(now + timeout),
        }
    }

    /// Becomes ready after a timeout without activity.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, active: bool) -> Poll<()> {
        let mut this = self.project();
        if active {
            *this.last_active = Instant::now();
        }
        while this.sleep.as_mut().poll(cx).is_ready() {
            let deadline = *this.last_active + *this.timeout;
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            this.sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// Both directions of a tunnel.
struct Ways {
    to_up: Half,
    to_down: Half,
    /// The side to which a write failed first, if any; after this, only the other direction is finished.
    failed: Option<(Side, ErrorKind)>,
}

impl Ways {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Io,
        up: &mut Io,
        on_bytes: &impl Fn(u64, u64),
    ) -> Poll<End> {
        let to_up = self.to_up.poll(cx, down, up, |n| on_bytes(n, 0));
        if let Some(end) = self.ended_by(to_up, Side::Downstream, up) {
            return Poll::Ready(end);
        }
        let to_down = self.to_down.poll(cx, up, down, |n| on_bytes(0, n));
        if let Some(end) = self.ended_by(to_down, Side::Upstream, down) {
            return Poll::Ready(end);
        }
        match self.failed {
            _ if !(self.to_up.done && self.to_down.done) => Poll::Pending,
            Some((side, kind)) => Poll::Ready(End::Error { side, kind }),
            None => Poll::Ready(End::Closed),
        }
    }

    /// Returns the end of the tunnel, if the result of the direction from `source` to `target` ends it.
    fn ended_by(&mut self, way: Result<(), Fault>, source: Side, target: &Io) -> Option<End> {
        match (way, self.failed) {
            (Ok(()), _) => None,
            (Err(Fault::Write(kind)), failed) => {
                self.failed = failed.or(Some((source.other(), kind)));
                None
            }
            // The connection had failed before, and everything received from it has been passed on.
            (Err(Fault::Read(_)), Some((side, kind))) => Some(End::Error { side, kind }),
            (Err(Fault::Read(kind)), None) => {
                // This cannot fail on an open socket; if it did, the peer would see an orderly end.
                let _ = target.tcp().set_zero_linger();
                Some(End::Error { side: source, kind })
            }
        }
    }

    /// Returns whether bytes were moved since the last call.
    fn take_active(&mut self) -> bool {
        let active = self.to_up.active || self.to_down.active;
        (self.to_up.active, self.to_down.active) = (false, false);
        active
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Downstream => Self::Upstream,
            Self::Upstream => Self::Downstream,
        }
    }
}
