//! The state of a data path thread.
//!
//! None of it is `Send`: connections, pools and timers never leave their thread. State shared with other threads is
//! immutable ([`crate::routing::listener`]) or atomic (metrics, endpoint statistics).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use maglor_balance::{Rng, Time};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::os::memory::Holders;
use crate::protocol::detect::ServerFirst;
use crate::runtime::delayed_release::DelayedReleases;
use crate::runtime::shared::Shared;
use crate::telemetry::record::Records;

/// Number of connections that are woken before other connections of the worker have a turn; waking them takes some
/// tens of microseconds.
const WOKEN_IN_TURN: usize = 64;

/// State of a worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    shard: usize,
    shared: Arc<Shared>,
    rng: RefCell<Rng>,
    /// Memory held by the worker's tasks, for the memory budget.
    pub(crate) holders: Rc<Holders>,
    pub(crate) connections: Connections,
    /// In-flight counts of failed requests, to be released later.
    pub(crate) delayed_releases: Rc<DelayedReleases>,
    draining: Cell<bool>,
    /// Number of connections that released their buffers since the last sweep.
    released: Cell<usize>,
    pub(crate) server_first: ServerFirst,
    /// Records of requests, for further ones.
    pub(crate) records: Records,
    /// The last converted instant and its result, since a request converts its arrival time repeatedly.
    last: Cell<Option<(Instant, Time)>>,
}

impl Worker {
    pub(crate) fn new(shard: usize, shared: Arc<Shared>, seed: u64) -> Rc<Self> {
        let holders = Holders::new(Arc::clone(&shared.memory), shard);
        Rc::new(Self {
            shard,
            holders,
            shared,
            rng: RefCell::new(Rng::seed(seed)),
            connections: Connections::default(),
            delayed_releases: Rc::default(),
            draining: Cell::new(false),
            released: Cell::new(0),
            server_first: ServerFirst::default(),
            records: Records::default(),
            last: Cell::new(None),
        })
    }

    /// The worker's index, which is its shard of every metric.
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Calls a function with the worker's random number generator.
    pub(crate) fn with_rng<R>(&self, f: impl FnOnce(&mut Rng) -> R) -> R {
        f(&mut self.rng.borrow_mut())
    }

    /// Converts an instant to the balancer's time.
    pub(crate) fn time(&self, now: Instant) -> Time {
        if let Some((instant, time)) = self.last.get()
            && instant == now
        {
            return time;
        }
        let time = self.shared.time(now);
        self.last.set(Some((now, time)));
        time
    }

    /// Counts connections that were closed, or became idle and released their buffers.
    pub(crate) fn count_released(&self, connections: usize) {
        self.released.set(self.released.get() + connections);
        self.shared.count_released(connections);
    }

    /// Returns the number of connections that released their buffers since the last call.
    pub(crate) fn take_released(&self) -> usize {
        self.released.take()
    }

    /// Returns whether connections should end at their next opportunity.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Lets every connection end at its next opportunity.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.connections.wake_all();
    }
}

/// The tasks of a worker's client connections, which are woken when the connections should end.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: RefCell<Vec<Option<Entered>>>,
    /// Number of connections registered so far.
    entered: Cell<u64>,
    free: RefCell<Vec<Slot>>,
    open: Cell<usize>,
    /// Notified when a connection ends.
    left: Notify,
}

/// Index of a connection in the list.
pub(crate) type Slot = u32;

/// Entry of a connection.
#[derive(Debug)]
struct Entered {
    /// Waker of the connection's task; `None` if the task has not been polled yet.
    waker: Option<Waker>,
    /// Sequence number; the lowest number belongs to the oldest connection.
    order: u64,
    activity: Activity,
}

/// Whether a connection has sent a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Activity {
    /// The connection is not a TCP tunnel, and no complete request head was received.
    Nothing,
    /// Like `Nothing`, and the connection must close to make room for others.
    Shed,
    Something,
}

/// Registration of a connection; removed on drop.
#[derive(Debug)]
pub(crate) struct Registered {
    worker: Rc<Worker>,
    slot: Slot,
}

impl Connections {
    /// Registers a connection.
    pub(crate) fn register(worker: &Rc<Worker>) -> Registered {
        let list = &worker.connections;
        let mut slots = list.slots.borrow_mut();
        let slot = list.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            // The number of connections is far lower, because of the limit of descriptors.
            Slot::try_from(slots.len() - 1).unwrap_or(Slot::MAX)
        });
        let order = list.entered.get();
        list.entered.set(order + 1);
        slots[slot as usize] = Some(Entered {
            waker: None,
            order,
            activity: Activity::Nothing,
        });
        list.open.set(list.open.get() + 1);
        Registered {
            worker: Rc::clone(worker),
            slot,
        }
    }

    /// Waits until no connection is open.
    pub(crate) async fn none_left(&self) {
        while self.open.get() > 0 {
            self.left.notified().await;
        }
    }

    /// Polls every connection's task once.
    pub(crate) fn wake_all(&self) {
        for entered in self.slots.borrow().iter().flatten() {
            entered.wake();
        }
    }

    /// Polls every connection's task once, a few at a time, so that requests are served in between.
    pub(crate) async fn wake_in_turns(&self) {
        let mut next = 0;
        while self.wake_some(next) {
            next += WOKEN_IN_TURN;
            tokio::task::yield_now().await;
        }
    }

    /// Wakes the next connections of the list; returns whether there are more.
    fn wake_some(&self, begin: usize) -> bool {
        let slots = self.slots.borrow();
        let some = slots.iter().skip(begin).take(WOKEN_IN_TURN);
        some.flatten().for_each(Entered::wake);
        begin + WOKEN_IN_TURN < slots.len()
    }

    /// Marks a connection as used, so that it is not among the first to be closed when there is no room.
    pub(crate) fn mark_active(&self, slot: Slot) {
        if let Some(Some(entered)) = self.slots.borrow_mut().get_mut(slot as usize) {
            entered.activity = Activity::Something;
        }
    }

    /// Closes the oldest connections without any request: `excess` of them and another 1/64 of all connections, so
    /// that the search is not repeated for each new connection. Returns the number of connections that are closing,
    /// including those of earlier calls.
    pub(crate) fn shed(&self, excess: usize) -> usize {
        let mut slots = self.slots.borrow_mut();
        let activity = |activity| move |entered: &&mut Entered| entered.activity == activity;
        let ending = slots
            .iter_mut()
            .flatten()
            .filter(activity(Activity::Shed))
            .count();
        let wanted = (excess + self.open.get() / 64).saturating_sub(ending);
        if wanted == 0 {
            return ending;
        }
        let mut silent: Vec<_> = slots
            .iter_mut()
            .flatten()
            .filter(activity(Activity::Nothing))
            .collect();
        let wanted = wanted.min(silent.len());
        if let Some(last) = wanted.checked_sub(1) {
            silent.select_nth_unstable_by_key(last, |entered| entered.order);
        }
        for entered in &mut silent[..wanted] {
            entered.activity = Activity::Shed;
            entered.wake();
        }
        ending + wanted
    }

    fn leave(&self, slot: Slot) {
        let mut slots = self.slots.borrow_mut();
        let mut free = self.free.borrow_mut();
        slots[slot as usize] = None;
        free.push(slot);
        self.open.set(self.open.get() - 1);
        self.left.notify_waiters();
        if self.open.get() == 0 {
            // The capacity needed for a burst is not kept.
            *slots = Vec::new();
            *free = Vec::new();
        }
    }
}

impl Entered {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Registered {
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Sets the task to wake when the connection should end.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut slots = self.worker.connections.slots.borrow_mut();
        if let Some(Some(entered)) = slots.get_mut(self.slot as usize) {
            entered.waker = Some(waker.clone());
        }
    }

    /// Returns whether the connection must close to make room for others.
    pub(crate) fn is_shed(&self) -> bool {
        let slots = self.worker.connections.slots.borrow();
        let entered = slots.get(self.slot as usize).and_then(Option::as_ref);
        entered.is_some_and(|entered| entered.activity == Activity::Shed)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.worker.connections.leave(self.slot);
        self.worker.count_released(1);
    }
}
