//! One connection: its socket, pending output and streams, and how they end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::io::AsyncWrite as _;

use super::connection::{Channel, Core, Linger, Role};
use super::frame::{Decoder, Frame, Malformed, Reason, kind};
use super::outbox::Outbox;
use super::window::grown;
use super::{CONNECTION_WINDOW, Closed};
use crate::net::io::Io;
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::http1;
use crate::protocol::keepalive::{Keepalive, KeepaliveStep};
use crate::protocol::read_budget::{BY_FRAME, BY_REQUEST};

/// Interval of keepalive checks. A silent peer is sent a PING after three intervals and must respond within one.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How long the peer may take, and how many bytes it may send, until it closes a connection that was shut down.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

impl Channel {
    pub(super) fn new(io: Io, text_limit: usize, role: Role) -> Rc<Self> {
        Rc::new(Self {
            io: RefCell::new(io),
            intake: RefCell::default(),
            decoder: RefCell::new(Decoder::new(text_limit)),
            keepalive: RefCell::new(Keepalive::every(KEEPALIVE)),
            driver: RefCell::default(),
            woken: Cell::new(false),
            linger: RefCell::default(),
            core: RefCell::new(Core {
                output: Outbox::default(),
                streams: HashMap::new(),
                role,
                send_window: CONNECTION_WINDOW,
                receive_window: CONNECTION_WINDOW,
                arrived: 0,
                waiting: VecDeque::new(),
                starved: Vec::new(),
                leaving: false,
                closed: None,
                flood: FloodLimits::default(),
            }),
        })
    }

    /// Reads, passes input to streams, and writes pending output. Becomes ready when the connection has ended.
    pub(super) fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        self.woken.set(false);
        self.remember(cx.waker());
        let before = self.core.borrow().closed;
        let closed = match before {
            Some(closed) => closed,
            None => {
                let closed = ready!(self.poll_open(cx));
                if let Some(reason) = closed.reason() {
                    // Only this side's log contains the details.
                    self.core.borrow_mut().goaway(reason);
                }
                if closed == Closed::Quiet || closed.reason().is_some() {
                    *self.linger.borrow_mut() = Some(Linger {
                        limit: Box::pin(tokio::time::sleep(LINGER)),
                        left: LINGER_BYTES,
                        shut: false,
                    });
                }
                self.close(closed);
                closed
            }
        };
        self.poll_linger(cx).map(|()| closed)
    }

    fn poll_open(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        match self.poll_read(cx) {
            Poll::Ready(closed) => Poll::Ready(closed),
            Poll::Pending => match self.poll_keepalive(cx) {
                Poll::Ready(closed) => Poll::Ready(closed),
                Poll::Pending => self.poll_write(cx),
            },
        }
    }

    fn poll_linger(&self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = &mut *self.linger.borrow_mut();
        let Some(Linger { limit, left, shut }) = linger else {
            return Poll::Ready(());
        };
        if limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let io = &mut *self.io.borrow_mut();
        if !*shut {
            let flushed = ready!(self.core.borrow_mut().output.poll_flush(io, cx));
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

    fn remember(&self, waker: &Waker) {
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    /// Schedules a further run of the driver.
    pub(super) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    fn poll_read(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        let io = &mut *self.io.borrow_mut();
        let intake = &mut *self.intake.borrow_mut();
        intake.poll(io, cx, Closed::Io, |bytes, most| self.take(bytes, most))
    }

    /// Handles input up to the cost `most`. Returns the cost of handling it, in addition to its bytes.
    fn take(self: &Rc<Self>, bytes: &mut &[u8], most: usize) -> Result<usize, Closed> {
        if bytes.is_empty() {
            return Err(Closed::ByPeer);
        }
        self.keepalive.borrow_mut().received();
        let core = &mut *self.core.borrow_mut();
        let decoder = &mut *self.decoder.borrow_mut();
        let mut cost = 0;
        let mut now = None;
        // Requests begin when this returns. A request whose reset was already read does not begin, so resets are
        // handled even beyond the cost limit.
        while (cost < most || decoder.is_reset_next(bytes))
            && let Some(frame) = decoder.next(bytes)?
        {
            cost += match frame {
                Frame::Head { .. } => BY_REQUEST,
                _ => BY_FRAME,
            };
            core.take(self, frame, &mut now)?;
        }
        Ok(cost)
    }

    fn poll_keepalive(&self, cx: &mut Context<'_>) -> Poll<Closed> {
        let core = &mut *self.core.borrow_mut();
        let busy = !core.streams.is_empty();
        let mut keepalive = self.keepalive.borrow_mut();
        loop {
            match ready!(keepalive.poll(busy, cx)) {
                KeepaliveStep::SendPing => core.output.words(kind::PING, 0, &[0, 0]),
                KeepaliveStep::Dead => return Poll::Ready(Closed::Unresponsive),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>) -> Poll<Closed> {
        let core = &mut *self.core.borrow_mut();
        let io = &mut *self.io.borrow_mut();
        if core.output.is_backlog() {
            return Poll::Ready(Closed::Backlog);
        }
        let flushed = core.output.poll_flush(io, cx);
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

    /// Ends every stream; data already received can still be read.
    pub(super) fn close(&self, closed: Closed) {
        let (streams, waiting, starved) = {
            let core = &mut *self.core.borrow_mut();
            core.closed.get_or_insert(closed);
            (
                std::mem::take(&mut core.streams),
                std::mem::take(&mut core.waiting),
                std::mem::take(&mut core.starved),
            )
        };
        for stream in streams.values() {
            stream.lose();
        }
        for waker in waiting.into_iter().chain(starved) {
            waker.wake();
        }
    }

    /// Closes the connection when no stream is left.
    pub(super) fn leave(&self) {
        self.core.borrow_mut().leaving = true;
        self.wake();
    }

    /// Becomes ready when there is room for a head, or when nothing can be sent any more.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let core = &mut *self.core.borrow_mut();
        if core.output.has_room() || core.closed.is_some() {
            return Poll::Ready(());
        }
        core.wait(cx);
        Poll::Pending
    }

    /// Grants the peer credit for further bytes of a stream's body.
    pub(super) fn grant_credit(&self, stream: u32, bytes: u32) {
        let core = &mut *self.core.borrow_mut();
        if core.closed.is_some() {
            return;
        }
        core.output.words(kind::WINDOW, stream, &[bytes]);
        self.wake();
    }
}

impl Core {
    /// Returns whether streams can be opened and answered.
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Registers a task that waits for room in the outbox.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|one| one.will_wake(cx.waker())) {
            self.waiting.push_back(cx.waker().clone());
        }
    }

    /// Registers a task that waits for the connection window.
    pub(super) fn starve(&mut self, cx: &Context<'_>) {
        if !self.starved.iter().any(|one| one.will_wake(cx.waker())) {
            self.starved.push(cx.waker().clone());
        }
    }

    /// Enlarges the connection window for sending.
    pub(super) fn grow(&mut self, increment: u32) -> Result<(), Malformed> {
        self.send_window = grown(self.send_window, increment)?;
        for waker in self.starved.drain(..) {
            waker.wake();
        }
        Ok(())
    }

    /// Wakes as many tasks as there is room for; returns whether others still wait although there is room.
    fn wake_waiting(&mut self) -> bool {
        let room = self.output.room().min(self.waiting.len());
        for waker in self.waiting.drain(..room) {
            waker.wake();
        }
        room > 0 && !self.waiting.is_empty()
    }

    /// Records the arrival of body bytes. The connection's credit is renewed immediately, even if the bytes are never
    /// read: buffered data is bounded by the windows of streams, and credit that depended on readers would be held
    /// back by slow ones, or lost with a failing stream.
    ///
    /// # Errors
    /// [`Malformed::FlowControl`] if the peer had no credit for these bytes.
    pub(super) fn arrived(&mut self, bytes: u32) -> Result<(), Malformed> {
        let left = self.receive_window.checked_sub(bytes);
        self.receive_window = left.ok_or(Malformed::FlowControl)?;
        self.arrived += bytes;
        if self.arrived >= CONNECTION_WINDOW / 2 {
            let credit = std::mem::take(&mut self.arrived);
            self.output.words(kind::WINDOW, 0, &[credit]);
            self.receive_window += credit;
        }
        Ok(())
    }

    /// Queues a GOAWAY frame: no further streams are accepted.
    pub(super) fn goaway(&mut self, reason: Reason) {
        let last = match &self.role {
            Role::Client { .. } => 0,
            Role::Server(accepting) => accepting.last(),
        };
        let words = [last, reason as u32];
        self.output.words(kind::GOAWAY, 0, &words);
    }

    /// Resets a stream and removes it.
    pub(super) fn reset(&mut self, stream: u32, reason: Reason) {
        self.streams.remove(&stream);
        self.output.words(kind::RESET, stream, &[reason as u32]);
    }
}
