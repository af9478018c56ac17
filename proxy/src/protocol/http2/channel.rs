//! The state that the streams of one connection share: pending output, flow-control windows, and the tasks that
//! wait for either.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use tokio::time::Instant;

use super::answer;
use super::closed::Closed;
use super::connection::{Channel, Core, Role, Stream};
use super::frame::{self, PREFACE, kind};
use super::past::{End, Past};
use super::reason::{Malformed, Reason};
use super::{CONNECTION_WINDOW, FIRST_WINDOW, settings};
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::outbox::Outbox;

/// Window in bytes below which a new upload may have to wait for uploads that hold the rest.
const LOW_WINDOW: u32 = 16 * 1024;

impl Channel {
    pub(super) fn new(role: Role) -> Rc<Self> {
        let mut output = Outbox::default();
        match &role {
            Role::Server(accepting) => {
                let (max_streams, header_list) = accepting.announced();
                settings::encode(max_streams, header_list, output.tail());
            }
            Role::Client(opening) => {
                output.tail().extend_from_slice(PREFACE);
                // It fits into 32 bits.
                let list = answer::LIMITS.bytes as u32;
                settings::encode_client(opening.window, list, output.tail());
            }
        }
        let more = CONNECTION_WINDOW - FIRST_WINDOW;
        frame::encode_words(kind::WINDOW_UPDATE, 0, &[more], output.tail());
        Rc::new(Self {
            io: RefCell::default(),
            driver: RefCell::default(),
            woken: Cell::new(false),
            core: RefCell::new(Core {
                output,
                streams: HashMap::new(),
                past: Past::default(),
                role,
                send_window: FIRST_WINDOW,
                stream_window: FIRST_WINDOW,
                receive_window: CONNECTION_WINDOW,
                arrived: 0,
                table: 4096,
                table_reduced: false,
                waiting: VecDeque::new(),
                starved: Vec::new(),
                low_since: None,
                leaving: false,
                closed: None,
                flood: FloodLimits::default(),
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
    pub(super) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Sends output after the end of a stream. That of a server's last open stream is written at once, since the driver
    /// has nothing to add to it: a run of the driver would cost a tenth of the request.
    pub(super) fn deliver(&self, core: &mut Core) {
        let alone = core.streams.is_empty() && !core.is_client() && !core.leaving;
        if !(alone && !self.woken.get() && self.write(core)) {
            self.wake();
        }
    }

    /// Writes pending output; returns whether all of it was written. Errors are left to the driver, which meets them
    /// again.
    fn write(&self, core: &mut Core) -> bool {
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
    pub(super) fn close(&self, closed: Closed) {
        let (streams, waiting, starved) = {
            let core = &mut *self.core.borrow_mut();
            core.closed.get_or_insert(closed);
            core.admit_waiting();
            (
                std::mem::take(&mut core.streams),
                std::mem::take(&mut core.waiting),
                std::mem::take(&mut core.starved),
            )
        };
        for stream in streams.values() {
            stream.lose(closed);
        }
        for waker in waiting.into_iter().chain(starved) {
            waker.wake();
        }
    }

    /// Becomes ready when there is room for a head and the server accepts another stream, or when it accepts none any
    /// more.
    pub(super) fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<()> {
        {
            let core = &mut *self.core.borrow_mut();
            let open = core.streams.len();
            if let Role::Client(opening) = &mut core.role
                && core.closed.is_none()
                && !opening.gone
                && open >= opening.max_streams as usize
            {
                let waiting = &mut opening.waiting;
                if !waiting.iter().any(|one| one.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                return Poll::Pending;
            }
        }
        self.poll_room(cx)
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
        if core.closed.is_none() {
            frame::encode_words(kind::WINDOW_UPDATE, stream, &[bytes], core.output.tail());
            self.wake();
        }
    }
}

impl Core {
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
        let grown = self.send_window.checked_add(increment);
        self.send_window = grown
            .filter(|grown| *grown <= frame::LAST_STREAM)
            .ok_or(Malformed::flow("a flow-control window above 2^31-1"))?;
        self.note_window();
        for waker in self.starved.drain(..) {
            waker.wake();
        }
        Ok(())
    }

    /// Wakes as many tasks as there is room for; returns whether others still wait although there is room.
    pub(super) fn wake_waiting(&mut self) -> bool {
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
    /// If the peer had no credit for these bytes.
    pub(super) fn arrived(&mut self, bytes: u32) -> Result<(), Malformed> {
        let left = self.receive_window.checked_sub(bytes);
        self.receive_window = left.ok_or(Malformed::flow(
            "more bytes than the flow-control window allows",
        ))?;
        self.arrived += bytes;
        if self.arrived >= CONNECTION_WINDOW / 2 {
            let credit = std::mem::take(&mut self.arrived);
            frame::encode_words(kind::WINDOW_UPDATE, 0, &[credit], self.output.tail());
            self.receive_window += credit;
        }
        Ok(())
    }

    /// Records whether the connection window for sending is nearly used up.
    pub(super) fn note_window(&mut self) {
        if self.send_window >= LOW_WINDOW {
            self.low_since = None;
        } else if self.low_since.is_none() && self.is_client() {
            self.low_since = Some(Instant::now());
        }
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self.role, Role::Client(_))
    }

    /// Wakes requests that wait until the server accepts another stream.
    pub(super) fn admit_waiting(&mut self) {
        if let Role::Client(opening) = &mut self.role {
            opening.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Returns the number of the last stream that this side has accepted.
    pub(super) fn last_accepted(&self) -> u32 {
        match &self.role {
            Role::Client(_) => 0,
            Role::Server(accepting) => accepting.last(),
        }
    }

    /// Queues a GOAWAY frame that contains the number of the last stream.
    pub(super) fn goaway(&mut self, last: u32, reason: Reason) {
        let words = [last, reason as u32];
        frame::encode_words(kind::GOAWAY, 0, &words, self.output.tail());
    }

    /// Removes a stream and records how it has ended.
    pub(super) fn take_stream(&mut self, stream: u32, end: End) -> Option<Rc<Stream>> {
        let found = self.streams.remove(&stream)?;
        self.past.add(stream, end);
        self.admit_waiting();
        Some(found)
    }

    /// Resets a stream and removes it.
    pub(super) fn reset(&mut self, stream: u32, reason: Reason) {
        if self.take_stream(stream, End::ResetHere).is_none() {
            self.past.add(stream, End::ResetHere);
        }
        let words = [reason as u32];
        frame::encode_words(kind::RST_STREAM, stream, &words, self.output.tail());
    }

    /// Removes a stream whose sides have both ended.
    pub(super) fn over(&mut self, stream: u32) {
        self.take_stream(stream, End::Over);
    }

    #[cfg(test)]
    pub(super) fn receive_windows(&self) -> (u32, u32) {
        (self.receive_window, self.arrived)
    }
}
