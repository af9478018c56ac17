//! One thread of the data path and all that belongs to it alone.
//!
//! Nothing here is `Send`: connections, pools and timers never leave their thread. What a worker
//! shares with others is immutable ([`crate::routing::listener`]) or atomic (metrics, endpoint statistics).

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
use crate::telemetry::access_log::{Ended, Entry};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Worker {
    shard: usize,
    shared: Arc<Shared>,
    rng: RefCell<Rng>,
    /// What its tasks hold of the memory budget.
    pub(crate) holders: Rc<Holders>,
    pub(crate) connections: Connections,
    /// Places that are kept after errors.
    pub(crate) delayed_releases: Rc<DelayedReleases>,
    draining: Cell<bool>,
    /// Connections that have given up their buffers since the last sweep.
    released: Cell<usize>,
    pub(crate) server_first: ServerFirst,
    /// The last instant that was asked for: a request asks for the time of its arrival again and again.
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

    /// Uses the worker's random numbers.
    pub(crate) fn with_rng<R>(&self, f: impl FnOnce(&mut Rng) -> R) -> R {
        f(&mut self.rng.borrow_mut())
    }

    /// The instant as the balancer counts time.
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

    /// So many connections have closed, or become idle and given up their buffers.
    pub(crate) fn count_released(&self, connections: usize) {
        self.released.set(self.released.get() + connections);
        self.shared.count_released(connections);
    }

    /// How many have since the last call.
    pub(crate) fn take_released(&self) -> usize {
        self.released.take()
    }

    /// Whether connections should end at their next opportunity.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Lets every connection end at its next opportunity.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.connections.wake_all();
    }

    /// Notifies those who want to know of a request that has ended.
    pub(crate) fn notify_observers(&self, entry: &Entry, ended: Ended<'_>, now: Instant) {
        let now = self.time(now);
        self.shared.observers.notify(entry, ended, now);
    }
}

/// The tasks of a worker's client connections, to wake them when they should end.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: RefCell<Vec<Option<Entered>>>,
    /// How many have been entered so far.
    entered: Cell<u64>,
    free: RefCell<Vec<Slot>>,
    open: Cell<usize>,
    /// Notified when a connection ends.
    left: Notify,
}

/// Where a connection stands in the list.
pub(crate) type Slot = u32;

/// What the list has of a connection.
#[derive(Debug)]
struct Entered {
    /// `None` = the connection's task has not been polled yet, and will be.
    waker: Option<Waker>,
    /// The lower, the earlier.
    order: u64,
    activity: Activity,
}

/// What a connection has asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Activity {
    /// Nothing: there was no whole request head, and it is none of bytes.
    Nothing,
    /// The same, and it has to make room for others.
    Shed,
    Something,
}

/// A connection's entry; leaves the list on drop.
#[derive(Debug)]
pub(crate) struct Registered {
    worker: Rc<Worker>,
    slot: Slot,
}

impl Connections {
    /// Enters a connection.
    pub(crate) fn register(worker: &Rc<Worker>) -> Registered {
        let list = &worker.connections;
        let mut slots = list.slots.borrow_mut();
        let slot = list.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            // There are fewer descriptors than that.
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

    /// Waits until none is open.
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

    /// A connection has asked for something: it is not among the first to make room for others any more.
    pub(crate) fn mark_active(&self, slot: Slot) {
        if let Some(Some(entered)) = self.slots.borrow_mut().get_mut(slot as usize) {
            entered.activity = Activity::Something;
        }
    }

    /// Lets the oldest connections end that have asked for nothing: so many, and a sixty-fourth of all, so that looking for
    /// them is not repeated for each that comes. Returns how many are about to end, those of earlier calls included.
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
            // The high-water mark of a burst is not kept.
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

    /// Has the calling task woken when the connection should end.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut slots = self.worker.connections.slots.borrow_mut();
        if let Some(Some(entered)) = slots.get_mut(self.slot as usize) {
            entered.waker = Some(waker.clone());
        }
    }

    /// Whether the connection has to make room for others.
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
