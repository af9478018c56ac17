//! One connection: the socket, what waits to be sent, the streams, and how they end together.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use hashbrown::HashMap;
use tokio::io::AsyncWrite as _;

use super::dispatch::grown;
use super::frame::{Decoder, Malformed, Reason, kind};
use super::outbox::Outbox;
use super::pulse::{Beat, Pulse};
use super::server::Accepting;
use super::stream::Stream;
use super::{CONNECTION_WINDOW, Closed};
use crate::codec;
use crate::io::Io;

/// See the module's documentation. Its driver alone touches the socket.
#[derive(Debug)]
pub(super) struct Channel {
    io: RefCell<Io>,
    decoder: RefCell<Decoder>,
    pulse: RefCell<Pulse>,
    driver: RefCell<Option<Waker>>,
    /// The driver has been woken and has not run since.
    woken: Cell<bool>,
    pub(super) core: RefCell<Core>,
}

/// What the driver and the streams share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) output: Outbox,
    pub(super) streams: HashMap<u32, Rc<Stream>>,
    pub(super) role: Role,
    /// Bytes of bodies that the peer takes at present.
    pub(super) send_window: u32,
    /// Bytes of bodies that the peer may send at present.
    pub(super) receive_window: u32,
    /// Bytes that were taken since the peer was last given credit.
    taken: u32,
    /// Who waits for room in the outbox.
    waiting: VecDeque<Waker>,
    /// Who waits for the peer to take more of all bodies together.
    starved: Vec<Waker>,
    /// To be closed when nothing is left to do.
    leaving: bool,
    closed: Option<Closed>,
}

/// What differs between the two ends.
#[derive(Debug)]
pub(super) enum Role {
    Client {
        /// Number of the next stream.
        next: u32,
        max_streams: u32,
        /// The server takes no further streams.
        gone: bool,
    },
    Server(Accepting),
}

impl Channel {
    pub(super) fn new(io: Io, text_limit: usize, role: Role) -> Rc<Self> {
        Rc::new(Self {
            io: RefCell::new(io),
            decoder: RefCell::new(Decoder::new(text_limit)),
            pulse: RefCell::default(),
            driver: RefCell::default(),
            woken: Cell::new(false),
            core: RefCell::new(Core {
                output: Outbox::default(),
                streams: HashMap::new(),
                role,
                send_window: CONNECTION_WINDOW,
                receive_window: CONNECTION_WINDOW,
                taken: 0,
                waiting: VecDeque::new(),
                starved: Vec::new(),
                leaving: false,
                closed: None,
            }),
        })
    }

    /// Reads, tells streams what has come, and writes what waits. Ready when the connection has ended.
    pub(super) fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        self.woken.set(false);
        self.remember(cx.waker());
        if let Some(closed) = self.core.borrow().closed {
            return Poll::Ready(closed);
        }
        let closed = match self.poll_read(cx) {
            Poll::Ready(closed) => closed,
            Poll::Pending => match self.poll_pulse(cx) {
                Poll::Ready(closed) => closed,
                Poll::Pending => ready!(self.poll_write(cx)),
            },
        };
        if let Closed::Malformed(_) = closed {
            // What was wrong is not said: the log of this side has it.
            let core = &mut *self.core.borrow_mut();
            core.goaway(Reason::Protocol);
            let _ = core.output.poll_flush(&mut self.io.borrow_mut(), cx);
        }
        self.close(closed);
        Poll::Ready(closed)
    }

    fn remember(&self, waker: &Waker) {
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    /// Has the driver look again, after what others do in this turn.
    pub(super) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    fn poll_read(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<Closed> {
        let io = &mut *self.io.borrow_mut();
        loop {
            let read = ready!(codec::poll_read(io, cx, |bytes| self.take(bytes)));
            match read {
                Ok(Ok(())) => {}
                Ok(Err(closed)) => return Poll::Ready(closed),
                Err(error) => return Poll::Ready(Closed::Io(error.kind())),
            }
        }
    }

    fn take(self: &Rc<Self>, mut bytes: &[u8]) -> Result<(), Closed> {
        if bytes.is_empty() {
            return Err(Closed::ByPeer);
        }
        self.pulse.borrow_mut().heard();
        let core = &mut *self.core.borrow_mut();
        let decoder = &mut *self.decoder.borrow_mut();
        while let Some(frame) = decoder.next(&mut bytes)? {
            core.take(self, frame)?;
        }
        Ok(())
    }

    fn poll_pulse(&self, cx: &mut Context<'_>) -> Poll<Closed> {
        let core = &mut *self.core.borrow_mut();
        let busy = !core.streams.is_empty();
        let mut pulse = self.pulse.borrow_mut();
        loop {
            match ready!(pulse.poll(busy, cx)) {
                Beat::Ask => core.output.words(kind::PING, 0, &[0, 0]),
                Beat::Dead => return Poll::Ready(Closed::Unresponsive),
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
            // There may be room still when they have had their turn.
            cx.waker().wake_by_ref();
        }
        if let Err(error) = ready!(flushed) {
            return Poll::Ready(Closed::Io(error.kind()));
        }
        if !core.streams.is_empty() {
            return Poll::Pending;
        }
        core.output.shrink();
        if !core.leaving {
            return Poll::Pending;
        }
        let _ = ready!(Pin::new(io).poll_shutdown(cx));
        Poll::Ready(Closed::Quiet)
    }

    /// Ends every stream; what they have received can still be read.
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

    /// Closes when no stream is left.
    pub(super) fn leave(&self) {
        self.core.borrow_mut().leaving = true;
        self.wake();
    }

    /// Ready when there is room for a head, or when nothing can be sent any more.
    pub(super) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let core = &mut *self.core.borrow_mut();
        if core.output.has_room() || core.closed.is_some() {
            return Poll::Ready(());
        }
        core.wait(cx);
        Poll::Pending
    }

    /// Gives the peer credit for bytes of a stream's body that were taken; `claimed` of it for the stream
    /// itself.
    pub(super) fn give_credit(&self, stream: u32, taken: u32, claimed: u32) {
        let core = &mut *self.core.borrow_mut();
        if core.closed.is_some() {
            return;
        }
        let told = core.give_back(taken);
        if claimed > 0 {
            core.output.words(kind::WINDOW, stream, &[claimed]);
        }
        if told || claimed > 0 {
            self.wake();
        }
    }
}

impl Core {
    /// Whether streams can be opened and answered.
    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Waits for room in the outbox.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|one| one.will_wake(cx.waker())) {
            self.waiting.push_back(cx.waker().clone());
        }
    }

    /// Waits for the peer to take more.
    pub(super) fn starve(&mut self, cx: &Context<'_>) {
        if !self.starved.iter().any(|one| one.will_wake(cx.waker())) {
            self.starved.push(cx.waker().clone());
        }
    }

    /// The peer takes more bytes of all bodies together.
    pub(super) fn grow(&mut self, increment: u32) -> Result<(), Malformed> {
        self.send_window = grown(self.send_window, increment)?;
        for waker in self.starved.drain(..) {
            waker.wake();
        }
        Ok(())
    }

    /// Wakes as many as there is room for; whether others still wait although there is room.
    fn wake_waiting(&mut self) -> bool {
        let room = self.output.room().min(self.waiting.len());
        for waker in self.waiting.drain(..room) {
            waker.wake();
        }
        room > 0 && !self.waiting.is_empty()
    }

    /// Bytes of bodies are taken, or not wanted; whether the peer is told.
    pub(super) fn give_back(&mut self, bytes: u32) -> bool {
        self.taken += bytes;
        if self.taken < CONNECTION_WINDOW / 2 {
            return false;
        }
        self.output.words(kind::WINDOW, 0, &[self.taken]);
        self.receive_window += self.taken;
        self.taken = 0;
        true
    }

    /// Says that no further streams are taken.
    pub(super) fn goaway(&mut self, reason: Reason) {
        let last = match &self.role {
            Role::Client { .. } => 0,
            Role::Server(accepting) => accepting.last(),
        };
        let words = [last, reason as u32];
        self.output.words(kind::GOAWAY, 0, &words);
    }

    /// Gives a stream up and forgets it.
    pub(super) fn reset(&mut self, stream: u32, reason: Reason) {
        self.streams.remove(&stream);
        self.output.words(kind::RESET, stream, &[reason as u32]);
    }
}
