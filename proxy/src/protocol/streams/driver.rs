//! Reads and writes the socket of a connection, and closes it without losing data.

use std::fmt::Debug;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite as _;
use tokio::time::Sleep;

use super::closed::Closed;
use super::connection::{Channel, Protocol};
use crate::net::io::Stream;
use crate::protocol::http1;
use crate::protocol::keepalive::{Keepalive, KeepaliveStep};
use crate::protocol::read_budget::Intake;

/// How long the peer may take, and how many bytes it may send, until it closes a connection that was shut down.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// Only the end of the driver removes the socket from the channel.
const OPEN: &str = "the driver has not ended";

/// Reads and writes the socket of a connection.
#[derive(Debug)]
pub(in crate::protocol) struct Driver<P: Protocol> {
    intake: Intake,
    channel: Rc<Channel<P>>,
    pub(in crate::protocol) inbox: P::Inbox,
    keepalive: Keepalive,
    pub(in crate::protocol) ended: Option<Closed<P::Malformed>>,
    linger: Option<Linger>,
    _guard: Option<Box<dyn Debug>>,
}

/// State of a connection that was shut down and waits for the peer to close its side. If the socket were closed
/// earlier, it would respond to further data with a reset, and the peer would lose data that it has not read yet.
#[derive(Debug)]
struct Linger {
    limit: Pin<Box<Sleep>>,
    /// Number of bytes that are still read and discarded.
    left: usize,
    shut: bool,
}

impl<P: Protocol> Driver<P> {
    pub(in crate::protocol) fn new(
        stream: Stream,
        inbox: P::Inbox,
        keepalive: Duration,
        channel: Rc<Channel<P>>,
    ) -> Self {
        channel.io.replace(Some(stream.io));
        Self {
            // Bytes that were read to detect the protocol.
            intake: Intake::after(stream.prefix),
            channel,
            inbox,
            keepalive: Keepalive::every(keepalive),
            ended: None,
            linger: None,
            _guard: stream.guard,
        }
    }

    /// Reads, passes input to streams, and writes pending output. Becomes ready when the connection has ended.
    pub(in crate::protocol) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        self.channel.begin_turn(cx.waker());
        let closed = match self.ended {
            Some(closed) => closed,
            None => {
                let closed = ready!(self.poll_open(cx));
                self.end(closed);
                closed
            }
        };
        self.poll_linger(cx).map(|()| closed)
    }

    /// Ends the connection, and sends the peer the reason if possible.
    pub(in crate::protocol) fn end(&mut self, closed: Closed<P::Malformed>) {
        if self.ended.replace(closed).is_some() {
            return;
        }
        let reason = {
            let core = &mut *self.channel.core.borrow_mut();
            let reason = P::reason(closed, core.is_client());
            if let Some(reason) = reason {
                // Only this side's log contains the details.
                let last = core.last_accepted();
                core.goaway(last, reason);
            }
            reason
        };
        if closed == Closed::Quiet || reason.is_some() {
            self.linger = Some(Linger {
                limit: Box::pin(tokio::time::sleep(LINGER)),
                left: LINGER_BYTES,
                shut: false,
            });
        }
        self.channel.close(closed);
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        if let Poll::Ready(closed) = self.poll_read(cx) {
            return Poll::Ready(closed);
        }
        if let Poll::Ready(closed) = self.poll_keepalive(cx) {
            return Poll::Ready(closed);
        }
        self.poll_write(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        let Self {
            intake,
            channel,
            inbox,
            keepalive,
            ..
        } = self;
        let io = &mut *channel.io.borrow_mut();
        let io = io.as_mut().expect(OPEN);
        intake.poll(io, cx, Closed::Io, |bytes, most| {
            if bytes.is_empty() {
                return Err(Closed::ByPeer);
            }
            keepalive.received();
            P::take(inbox, channel, bytes, most)
        })
    }

    fn poll_keepalive(&mut self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        let busy = {
            let core = self.channel.core.borrow();
            !core.streams.is_empty() || (P::CHECKS_IDLE_CLIENTS && !core.is_client())
        };
        loop {
            match ready!(self.keepalive.poll(busy, cx)) {
                KeepaliveStep::SendPing => {
                    let core = &mut *self.channel.core.borrow_mut();
                    P::encode_ping(core.output.tail());
                }
                KeepaliveStep::Dead => return Poll::Ready(Closed::Unresponsive),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Closed<P::Malformed>> {
        let core = &mut *self.channel.core.borrow_mut();
        if core.output.is_backlog() {
            return Poll::Ready(Closed::Backlog);
        }
        let flushed = {
            let io = &mut *self.channel.io.borrow_mut();
            core.output.poll_flush(io.as_mut().expect(OPEN), cx)
        };
        if core.output.wake_waiting() {
            // There may still be room after the woken tasks have run.
            cx.waker().wake_by_ref();
        }
        if let Err(error) = ready!(flushed) {
            return Poll::Ready(Closed::Io(error.kind()));
        }
        if !core.streams.is_empty() {
            return Poll::Pending;
        }
        core.output.shrink();
        match core.leaving {
            true => Poll::Ready(Closed::Quiet),
            false => Poll::Pending,
        }
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(Linger { limit, left, shut }) = &mut self.linger else {
            return Poll::Ready(());
        };
        if limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let io = &mut *self.channel.io.borrow_mut();
        let io = io.as_mut().expect(OPEN);
        if !*shut {
            let core = &mut *self.channel.core.borrow_mut();
            let flushed = ready!(core.output.poll_flush(io, cx));
            if flushed.is_err() || ready!(Pin::new(&mut *io).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            *shut = true;
        }
        while *left > 0 {
            match ready!(http1::poll_read(io, cx, <[u8]>::len)) {
                Ok(n) if n > 0 => *left = left.saturating_sub(n),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<P: Protocol> Drop for Driver<P> {
    /// Closes the socket: streams hold references to the channel.
    fn drop(&mut self) {
        self.channel.io.take();
    }
}
