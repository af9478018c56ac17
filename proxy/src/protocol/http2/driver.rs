//! Reads and writes the socket of a connection, and closes it without losing data.

use std::fmt::Debug;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite as _;
use tokio::time::Sleep;

use super::closed::Closed;
use super::connection::Channel;
use super::dispatch::Batch;
use super::frame::{self, kind};
use super::hpack;
use super::reason::Reason;
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
pub(super) struct Driver {
    intake: Intake,
    channel: Rc<Channel>,
    inbox: Inbox,
    keepalive: Keepalive,
    ended: Option<Closed>,
    linger: Option<Linger>,
    _guard: Option<Box<dyn Debug>>,
}

/// State of a connection that was shut down and waits for the peer to close its side. If the socket were closed
/// earlier, it would respond to further data with a reset, and the peer would lose data that it has not read yet.
struct Linger {
    limit: Pin<Box<Sleep>>,
    /// Number of bytes that are still read and discarded.
    left: usize,
    shut: bool,
}

/// Decodes bytes and applies their frames.
#[derive(Debug)]
pub(super) struct Inbox {
    frames: frame::Decoder,
    hpack: hpack::Decoder,
}

impl Inbox {
    pub(super) fn new(block_limit: usize) -> Self {
        Self {
            frames: frame::Decoder::new(block_limit),
            hpack: hpack::Decoder::default(),
        }
    }

    /// Creates the decoder of a server's data.
    pub(super) fn of_server(block_limit: usize) -> Self {
        Self {
            frames: frame::Decoder::of_server(block_limit),
            hpack: hpack::Decoder::default(),
        }
    }

    /// Handles input up to the cost `most`. Returns the cost of handling it, in addition to its bytes.
    pub(super) fn take(
        &mut self,
        channel: &Rc<Channel>,
        bytes: &mut &[u8],
        most: usize,
    ) -> Result<usize, Closed> {
        let core = &mut *channel.core.borrow_mut();
        let mut batch = Batch::new(channel, &mut self.hpack);
        // Requests begin when this returns. A request whose reset was already read does not begin, so resets are
        // handled even beyond the cost limit.
        while (batch.cost < most || self.frames.is_reset_next(bytes))
            && let Some(frame) = self.frames.next(bytes)?
        {
            core.take(&mut batch, frame)?;
        }
        Ok(batch.cost)
    }
}

impl Driver {
    pub(super) fn new(
        stream: Stream,
        inbox: Inbox,
        keepalive: Duration,
        channel: Rc<Channel>,
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

    pub(super) fn is_in_head(&self) -> bool {
        self.ended.is_none() && self.inbox.frames.is_in_head()
    }

    /// Reads, passes input to streams, and writes pending output. Becomes ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
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
    pub(super) fn end(&mut self, closed: Closed) {
        if self.ended.replace(closed).is_some() {
            return;
        }
        if let Some(reason) = closed.reason() {
            // Only this side's log contains the details.
            let core = &mut *self.channel.core.borrow_mut();
            let last = core.last_accepted();
            core.goaway(last, reason);
        }
        if closed == Closed::Quiet {
            let core = &mut *self.channel.core.borrow_mut();
            if core.is_client() {
                core.goaway(0, Reason::NoError);
            }
        }
        if closed == Closed::Quiet || closed.reason().is_some() {
            self.linger = Some(Linger {
                limit: Box::pin(tokio::time::sleep(LINGER)),
                left: LINGER_BYTES,
                shut: false,
            });
        }
        self.channel.close(closed);
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        if let Poll::Ready(closed) = self.poll_read(cx) {
            return Poll::Ready(closed);
        }
        if let Poll::Ready(closed) = self.poll_keepalive(cx) {
            return Poll::Ready(closed);
        }
        self.poll_write(cx)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
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
            inbox.take(channel, bytes, most)
        })
    }

    fn poll_keepalive(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        // A server is asked only while it owes a response.
        let busy = {
            let core = self.channel.core.borrow();
            !core.is_client() || !core.streams.is_empty()
        };
        loop {
            match ready!(self.keepalive.poll(busy, cx)) {
                KeepaliveStep::SendPing => {
                    let core = &mut *self.channel.core.borrow_mut();
                    frame::encode_words(kind::PING, 0, &[0, 0], core.output.tail());
                }
                KeepaliveStep::Dead => return Poll::Ready(Closed::Unresponsive),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Closed> {
        let core = &mut *self.channel.core.borrow_mut();
        if core.output.is_backlog() {
            return Poll::Ready(Closed::Backlog);
        }
        let flushed = {
            let io = &mut *self.channel.io.borrow_mut();
            core.output.poll_flush(io.as_mut().expect(OPEN), cx)
        };
        if core.wake_waiting() {
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

impl Drop for Driver {
    /// Closes the socket: streams hold references to the channel.
    fn drop(&mut self) {
        self.channel.io.take();
    }
}
