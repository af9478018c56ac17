//! Timers of requests that share a connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::time::Instant;

use crate::http::timer::Timer;

/// Timers kept for the next requests of a connection.
const TIMERS: usize = 64;
/// While there is none, so many.
const KEPT: usize = 2;

/// Timers of a connection's requests. They stay armed between two, which costs less than arming one for
/// each.
#[derive(Debug, Default)]
pub(super) struct Timers {
    free: RefCell<Vec<Rc<Timer>>>,
    lent: Cell<usize>,
}

/// A request's timer.
pub(super) struct Lent {
    timer: Rc<Timer>,
    home: Rc<Timers>,
}

impl Lent {
    pub(super) fn of(timers: &Rc<Timers>) -> Self {
        timers.lent.set(timers.lent.get() + 1);
        Self {
            timer: timers.free.borrow_mut().pop().unwrap_or_default(),
            home: Rc::clone(timers),
        }
    }
}

impl Lent {
    /// The timer itself.
    pub(super) fn get(&self) -> Rc<Timer> {
        Rc::clone(&self.timer)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Timers { free, lent } = &*self.home;
        let mut free = free.borrow_mut();
        lent.set(lent.get() - 1);
        // A body that is still held elsewhere keeps its timer.
        if free.len() < TIMERS && Rc::strong_count(&self.timer) == 1 {
            self.timer.set(Instant::now(), None);
            free.push(Rc::clone(&self.timer));
        }
        if lent.get() == 0 {
            free.truncate(KEPT);
        }
    }
}
