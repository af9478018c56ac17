//! The state that the streams of one connection share: pending output, flow-control windows, and the tasks that
//! wait for either.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;

use super::MAX_WINDOW;
use super::closed::Closed;
use super::connection::{Accepting, Channel, Core, End, Protocol, Role, Stream};
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::outbox::Outbox;

impl<P: Protocol> Channel<P> {
    /// Creates the state of a connection whose first output is `output`.
    pub(in crate::protocol) fn of(
        role: Role<P>,
        output: Outbox,
        send_window: u32,
        more: P::More,
    ) -> Rc<Self> {
        Rc::new(Self {
            io: RefCell::default(),
            driver: RefCell::default(),
            woken: Cell::new(false),
            core: RefCell::new(Core {
                output,
                streams: HashMap::new(),
                role,
                send_window,
                receive_window: P::CONNECTION_WINDOW,
                arrived: 0,
                starved: Vec::new(),
                leaving: false,
                closed: None,
                flood: FloodLimits::default(),
                more,
            }),
        })
    }

    /// Begins a run of the driver: changes after this must wake the driver again.
    pub(super) fn begin_turn(&self, waker: &Waker) {
        self.woken.set(false);
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *driver = Some(waker.clone());
        }
    }

    /// Schedules a further run of the driver.
    pub(in crate::protocol) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Sends output after the end of a stream. That of a server's last open stream is written at once, since the driver
    /// has nothing to add to it: a run of the driver would cost a tenth of the request.
    pub(super) fn deliver(&self, core: &mut Core<P>) {
        let alone = core.streams.is_empty() && !core.is_client() && !core.leaving;
        if !(alone && !self.woken.get() && self.write(core)) {
            self.wake();
        }
    }

    /// Writes pending output; returns whether all of it was written. Errors are left to the driver, which meets them
    /// again.
    fn write(&self, core: &mut Core<P>) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let written = match &mut *self.io.borrow_mut() {
            Some(io) => matches!(core.output.poll_flush(io, cx), Poll::Ready(Ok(()))),
            None => false,
        };
        if written {
            core.output.shrink();
        }
        written
    }

    /// Ends every stream; data already received can still be read.
    pub(super) fn close(&self, closed: Closed<P::Malformed>) {
        let (streams, starved) = {
            let core = &mut *self.core.borrow_mut();
            core.closed.get_or_insert(closed);
            P::admit_waiting(core);
            core.output.wake_all();
            (
                std::mem::take(&mut core.streams),
                std::mem::take(&mut core.starved),
            )
        };
        for stream in streams.values() {
            stream.lose(closed);
        }
        starved.into_iter().for_each(Waker::wake);
    }

    /// Closes the connection when no stream is left.
    pub(super) fn leave(&self) {
        self.core.borrow_mut().leaving = true;
        self.wake();
    }

    /// Becomes ready when there is room for a head, or when nothing can be sent any more.
    pub(in crate::protocol) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let core = &mut *self.core.borrow_mut();
        match core.closed {
            Some(_) => Poll::Ready(()),
            None => core.output.poll_room(cx),
        }
    }

    /// Grants the peer credit for further bytes of a stream's body.
    pub(super) fn grant_credit(&self, stream: u32, bytes: u32) {
        let core = &mut *self.core.borrow_mut();
        if core.closed.is_none() {
            P::encode_credit(stream, bytes, core.output.tail());
            self.wake();
        }
    }
}

impl<P: Protocol> Core<P> {
    /// Registers a task that waits for the connection window.
    pub(super) fn starve(&mut self, cx: &Context<'_>) {
        if !self.starved.iter().any(|one| one.will_wake(cx.waker())) {
            self.starved.push(cx.waker().clone());
        }
    }

    /// Enlarges the connection window for sending; returns whether the result is valid.
    pub(in crate::protocol) fn grow(&mut self, increment: u32) -> bool {
        let grown = self.send_window.checked_add(increment);
        let Some(grown) = grown.filter(|grown| *grown <= MAX_WINDOW) else {
            return false;
        };
        self.send_window = grown;
        P::note_window(self);
        self.starved.drain(..).for_each(Waker::wake);
        true
    }

    /// Records the arrival of body bytes; returns whether the peer had credit for them. The connection's credit is renewed
    /// immediately, even if the bytes are never read: buffered data is bounded by the windows of streams, and credit that
    /// depended on readers would be held back by slow ones, or lost with a failing stream.
    pub(in crate::protocol) fn arrived(&mut self, bytes: u32) -> bool {
        let Some(left) = self.receive_window.checked_sub(bytes) else {
            return false;
        };
        self.receive_window = left;
        self.arrived += bytes;
        if self.arrived >= P::CONNECTION_WINDOW / 2 {
            let credit = std::mem::take(&mut self.arrived);
            P::encode_credit(0, credit, self.output.tail());
            self.receive_window += credit;
        }
        true
    }

    pub(in crate::protocol) fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(_))
    }

    /// Returns the number of the last stream that this side has accepted.
    pub(super) fn last_accepted(&self) -> u32 {
        match &self.role {
            Role::Client(_) => 0,
            Role::Server(accepting) => accepting.last,
        }
    }

    /// Queues a GOAWAY frame that contains the number of the last stream.
    pub(super) fn goaway(&mut self, last: u32, reason: P::Reason) {
        P::encode_goaway(last, reason, self.output.tail());
    }

    /// Removes a stream and records how it has ended.
    pub(in crate::protocol) fn take_stream(
        &mut self,
        stream: u32,
        end: End,
    ) -> Option<Rc<Stream<P>>> {
        let found = self.streams.remove(&stream)?;
        P::ended(self, stream, end);
        P::admit_waiting(self);
        Some(found)
    }

    /// Resets a stream and removes it.
    pub(in crate::protocol) fn reset(&mut self, stream: u32, reason: P::Reason) {
        if self.take_stream(stream, End::ResetHere).is_none() {
            P::ended(self, stream, End::ResetHere);
        }
        P::encode_reset(stream, reason, self.output.tail());
    }

    /// Removes a stream whose sides have both ended.
    pub(in crate::protocol) fn over(&mut self, stream: u32) {
        self.take_stream(stream, End::Over);
    }

    #[cfg(test)]
    pub(in crate::protocol) fn receive_windows(&self) -> (u32, u32) {
        (self.receive_window, self.arrived)
    }
}

impl<P: Protocol> Accepting<P> {
    pub(in crate::protocol) fn within(admission: P::Admission) -> Self {
        Self {
            admission,
            last: 0,
            until: P::LAST_STREAM,
            accepted: Vec::new(),
        }
    }
}
