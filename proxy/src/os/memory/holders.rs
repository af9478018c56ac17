//! Memory held by each task of a worker, and the reset of the largest holders.
//!
//! A [`Guarded`] future is charged with the growth of the heap while it is polled. Streams of a shared connection
//! have their own tasks, so that each stream is a separate holder; memory that remains after a stream's end is
//! charged to the stream's connection. Bytes that one task allocates and another frees are transferred explicitly
//! ([`leave`], [`adopt`]).
//!
//! Holders exist only while there is a budget: without a budget, tasks are polled directly.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;

use super::budget::{Budget, Level};
use super::heap;
use crate::os::throttle::Throttle;

/// Number of bytes that a connection may hold and still have its requests accepted until memory is exhausted.
const FAIR: i64 = 64 << 10;
/// Bytes below which streams and connections are reset only if larger ones do not suffice.
const LARGE: i64 = 16 << 10;
/// Maximum bytes charged to a stream: charges above it are accumulated rounding errors.
const MOST_OF_STREAM: i64 = 96 << 10;
/// Maximum bytes charged to a connection with streams, for its windows and its send queue.
const MOST_OF_CONNECTION: i64 = 2 << 20;
/// Bytes of a task besides its future, which a connection allocates and the runtime frees.
const TASK: i64 = 192;
/// Maximum bytes of a body that are read at a time while memory is sufficient.
const READ: u64 = 64 << 10;
/// Maximum bytes of a body that are read at a time while memory is short.
const READ_PRESSED: u64 = 8 << 10;
/// Maximum bytes of a body that are read at a time when memory is nearly exhausted.
const READ_SHORT: u64 = 4 << 10;

thread_local! {
    static HERE: RefCell<Option<Rc<Holders>>> = const { RefCell::new(None) };
    static CURRENT: RefCell<Option<Rc<Stake>>> = const { RefCell::new(None) };
    /// Maximum bytes of a body that are read at a time, regardless of the memory pressure.
    static READ_LIMIT: Cell<u64> = const { Cell::new(READ) };
    /// Whether the holder that is being dropped is reset because of the budget.
    static RESETTING: Cell<bool> = const { Cell::new(false) };
}

/// Holders of a worker.
#[derive(Debug)]
pub(crate) struct Holders {
    budget: Arc<Budget>,
    shard: usize,
    stakes: RefCell<Vec<Option<Rc<Stake>>>>,
    free: RefCell<Vec<usize>>,
    /// Number of polls of holders so far, which orders them by their last activity.
    turn: Cell<u64>,
    /// Total allocations of this thread at the last measurement, in bytes.
    trimmed: Cell<u64>,
    /// Wakers of multiplexed connections that wait for lower memory pressure before they read.
    readers: RefCell<Vec<Waker>>,
    /// Bytes of holders that are being reset and have not ended.
    leaving: Cell<i64>,
    log: Throttle,
}

/// Account of one task.
#[derive(Debug)]
pub(crate) struct Stake {
    holders: Rc<Holders>,
    slot: Cell<usize>,
    /// The account of the connection, for a stream.
    parent: Option<Rc<Stake>>,
    bytes: Cell<i64>,
    /// Bytes charged to the streams of this connection.
    of_streams: Cell<i64>,
    /// Number of streams of this connection.
    streams: Cell<u32>,
    /// Value of [`Holders::turn`] at its last poll.
    turn: Cell<u64>,
    /// Number of bytes that it held when its reset began; `None` if it is not being reset.
    doomed: Cell<Option<i64>>,
    waker: RefCell<Option<Waker>>,
}

impl Holders {
    pub(crate) fn new(budget: Arc<Budget>, shard: usize) -> Rc<Self> {
        Rc::new(Self {
            budget,
            shard,
            stakes: RefCell::default(),
            free: RefCell::default(),
            turn: Cell::new(0),
            trimmed: Cell::new(0),
            readers: RefCell::default(),
            leaving: Cell::new(0),
            log: Throttle::new(),
        })
    }

    /// Makes these the holders of the calling thread.
    pub(crate) fn enter(self: &Rc<Self>) {
        HERE.set(Some(Rc::clone(self)));
    }

    /// Publishes the size of this thread's heap in bytes; the thread calls it about once a second.
    pub(crate) fn publish(&self) -> i64 {
        let bytes = heap::balance();
        self.budget.publish(self.shard, bytes);
        bytes
    }

    fn level(&self) -> Level {
        let memory = &self.budget;
        if !memory.is_limited() {
            return Level::Free;
        }
        memory.publish(self.shard, heap::balance());
        memory.level()
    }

    /// Returns whether to reject a request, and counts the rejection. Requests are rejected if memory is exhausted,
    /// or if it is short and the request's connection holds more than others.
    pub(crate) fn refuses(&self) -> bool {
        let memory = &self.budget;
        let refuses = memory.is_limited()
            && (memory.is_shedding()
                || match self.level() {
                    Level::Free | Level::Pressed => false,
                    Level::Short | Level::Over => family_of_current() > FAIR,
                    Level::Full => true,
                });
        if refuses {
            memory.count_refused();
        }
        refuses
    }

    fn stake(self: &Rc<Self>, parent: Option<Rc<Stake>>) -> Rc<Stake> {
        if let Some(parent) = &parent {
            parent.streams.set(parent.streams.get() + 1);
        }
        let stake = Rc::new(Stake {
            holders: Rc::clone(self),
            slot: Cell::new(0),
            parent,
            bytes: Cell::new(0),
            of_streams: Cell::new(0),
            streams: Cell::new(0),
            turn: Cell::new(self.turn.get()),
            doomed: Cell::new(None),
            waker: RefCell::new(None),
        });
        let mut stakes = self.stakes.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            stakes.push(None);
            stakes.len() - 1
        });
        stakes[slot] = Some(Rc::clone(&stake));
        stake.slot.set(slot);
        stake
    }

    /// After a poll: occasionally resets the largest holders above the limit, or lets connections read again.
    fn settle(&self) {
        let turnover = heap::turnover();
        if turnover - self.trimmed.get() >= self.budget.step() {
            self.trimmed.set(turnover);
            self.budget.trim();
        }
        if self.level() >= Level::Over {
            self.relieve();
        } else {
            self.read_on();
        }
    }

    /// Lets multiplexed connections read again.
    pub(crate) fn read_on(&self) {
        if !self.readers.borrow().is_empty() {
            let readers = self.readers.take();
            readers.into_iter().for_each(Waker::wake);
        }
    }

    fn relieve(&self) {
        let mut excess = self.budget.excess() - self.leaving.get();
        if excess <= 0 {
            return;
        }
        let stakes = self.stakes.borrow();
        let mut chosen: Vec<(bool, i64, &Rc<Stake>)> = stakes
            .iter()
            .flatten()
            .filter(|stake| stake.doomed.get().is_none())
            .map(|stake| (stake.ends_others(), stake.held(), stake))
            .filter(|(_, held, _)| *held > 0)
            .collect();
        // Streams before connections that have streams, then by size as a power of two, then the longest inactive.
        chosen.sort_by_key(|(shared, held, stake)| {
            let small = *held < LARGE;
            (small, *shared, Reverse(held.ilog2()), stake.turn.get())
        });
        let mut reset = 0;
        for (_, held, stake) in chosen {
            if excess <= 0 {
                break;
            }
            excess -= held;
            reset += 1;
            stake.end(held);
        }
        if reset > 0 {
            self.budget.count_reset(reset);
            if let Some(unsaid) = self.log.allow() {
                tracing::warn!(
                    reset,
                    suppressed = unsaid,
                    "memory budget exceeded; connections and streams reset"
                );
            }
        }
    }
}

impl Stake {
    /// Returns the number of bytes attributed to this holder.
    fn held(&self) -> i64 {
        self.bytes.get().max(0)
    }

    /// Returns whether the end of this holder also ends streams that hold memory of their own.
    fn ends_others(&self) -> bool {
        self.streams.get() > 0
    }

    fn family(&self) -> i64 {
        self.bytes.get() + self.of_streams.get()
    }

    fn add(&self, bytes: i64) {
        self.bytes.set(self.bytes.get() + bytes);
        if let Some(parent) = &self.parent {
            parent.of_streams.set(parent.of_streams.get() + bytes);
        }
    }

    /// Runs a part of the holder's work and charges it with the growth of the heap.
    fn charge<R>(self: &Rc<Self>, run: impl FnOnce() -> R) -> R {
        let outer = CURRENT.replace(Some(Rc::clone(self)));
        let before = heap::balance();
        let result = run();
        let grown = heap::balance() - before;
        CURRENT.set(outer);
        self.add(grown);
        let turn = self.holders.turn.get() + 1;
        self.holders.turn.set(turn);
        self.turn.set(turn);
        result
    }

    /// Limits the charge of a stream to what a stream can hold, so that rounding errors do not accumulate.
    fn settle(&self) {
        if self.parent.is_some() && self.bytes.get() > MOST_OF_STREAM {
            self.add(MOST_OF_STREAM - self.bytes.get());
        }
    }

    fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn end(&self, held: i64) {
        self.doomed.set(Some(held));
        let leaving = self.holders.leaving.get();
        self.holders.leaving.set(leaving + held);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Closes the account; the remaining charge is transferred to the connection.
    fn leave(&self) {
        if let Some(held) = self.doomed.get() {
            let leaving = self.holders.leaving.get();
            self.holders.leaving.set(leaving - held);
        }
        if let Some(parent) = &self.parent {
            let streams = parent.streams.get() - 1;
            parent.streams.set(streams);
            let left = self.bytes.replace(0);
            parent.of_streams.set(parent.of_streams.get() - left);
            let bytes = parent.bytes.get() + left - TASK;
            // An idle connection holds little; other tasks have freed the rest.
            let most = if streams == 0 {
                MOST_OF_STREAM
            } else {
                MOST_OF_CONNECTION
            };
            parent.bytes.set(bytes.min(most));
        }
        let slot = self.slot.get();
        let mut stakes = self.holders.stakes.borrow_mut();
        stakes[slot] = None;
        let mut free = self.holders.free.borrow_mut();
        free.push(slot);
        if free.len() == stakes.len() {
            // The capacity needed for a burst is not kept.
            *stakes = Vec::new();
            *free = Vec::new();
        }
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn family_of_current() -> i64 {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref();
        current.map_or(0, |it| it.parent.as_ref().unwrap_or(it).family())
    })
}

fn adopt_signed(bytes: i64) {
    CURRENT.with_borrow(|current| {
        if let Some(current) = current {
            current.add(bytes);
        }
    });
}

/// Charges the running task with bytes that another task has allocated.
pub(crate) fn adopt(bytes: usize) {
    adopt_signed(signed(bytes));
}

/// Transfers bytes of the running task to the task that will free them: the connection, if the running task is a
/// stream that sends `to_client`, or otherwise a task without an account.
pub(crate) fn leave(bytes: usize, to_client: bool) {
    CURRENT.with_borrow(|current| {
        if let Some(current) = current {
            current.add(-signed(bytes));
            if let Some(parent) = current.parent.as_ref().filter(|_| to_client) {
                parent.add(signed(bytes));
            }
        }
    });
}

/// Limits the charge of an idle connection to the bytes in its buffers, because other tasks have freed the rest.
pub(crate) fn rebase(bytes: usize) {
    CURRENT.with_borrow(|current| {
        if let Some(current) = current {
            current.bytes.set(current.bytes.get().min(signed(bytes)));
        }
    });
}

/// Returns the account of the running task; `None` if it has none.
fn current() -> Option<Rc<Stake>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Returns the memory pressure.
pub(crate) fn level() -> Level {
    HERE.with_borrow(|here| here.as_ref().map_or(Level::Free, |here| here.level()))
}

/// Becomes ready when a multiplexed connection may read: a few bytes of one can cause large allocations.
pub(crate) fn poll_read(cx: &Context<'_>) -> Poll<()> {
    HERE.with_borrow(|here| match here {
        Some(here) if here.level() >= Level::Over => {
            let mut readers = here.readers.borrow_mut();
            if !readers.iter().any(|one| one.will_wake(cx.waker())) {
                readers.push(cx.waker().clone());
            }
            Poll::Pending
        }
        _ => Poll::Ready(()),
    })
}

/// Returns the maximum number of bytes of a body to read at a time.
pub(crate) fn read_limit() -> u64 {
    let most = READ_LIMIT.get();
    match level() {
        Level::Free => most,
        Level::Pressed => most.min(READ_PRESSED),
        Level::Short | Level::Over | Level::Full => most.min(READ_SHORT),
    }
}

/// Runs a function that reads at most this many bytes of a body at a time.
pub(crate) fn reading<R>(most: u64, run: impl FnOnce() -> R) -> R {
    let before = READ_LIMIT.replace(most);
    let result = run();
    READ_LIMIT.set(before);
    result
}

/// Returns whether the future that is being dropped is reset because of the budget.
pub(crate) fn is_resetting() -> bool {
    RESETTING.get()
}

pin_project! {
    /// A task with an account, which can be reset.
    pub(crate) struct Guarded<F> {
        #[pin]
        future: Option<F>,
        stake: Option<Rc<Stake>>,
    }

    impl<F> PinnedDrop for Guarded<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(stake) = this.stake.take() {
                stake.charge(|| this.future.set(None));
                stake.leave();
            }
        }
    }
}

/// Wraps a connection's task.
pub(crate) fn guard<F>(holders: &Rc<Holders>, future: F) -> Guarded<F> {
    let limited = holders.budget.is_limited();
    Guarded {
        future: Some(future),
        stake: limited.then(|| holders.stake(None)),
    }
}

/// Wraps the task of a stream of the running connection, if the connection has an account. The future is boxed so
/// that memory that the connection has allocated is freed while the stream is charged.
pub(crate) fn guard_stream<F>(future: Pin<Box<F>>) -> Guarded<Pin<Box<F>>> {
    Guarded {
        future: Some(future),
        stake: current().map(|parent| parent.holders.stake(Some(Rc::clone(&parent)))),
    }
}

impl<F: Future<Output = ()>> Future for Guarded<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(stake) = this.stake else {
            let future = this.future.as_pin_mut();
            return future.map_or(Poll::Ready(()), |future| future.poll(cx));
        };
        if stake.doomed.get().is_some() {
            RESETTING.set(true);
            stake.charge(|| this.future.set(None));
            RESETTING.set(false);
            return Poll::Ready(());
        }
        stake.remember(cx.waker());
        let polled = stake.charge(|| {
            let future = this.future.as_mut().as_pin_mut();
            future.map_or(Poll::Ready(()), |future| future.poll(cx))
        });
        stake.settle();
        stake.holders.settle();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Pending, pending};

    use super::*;

    const MIB: i64 = 1 << 20;
    const KIB: i64 = 1 << 10;

    type Pinned = Pin<Box<Pending<()>>>;
    type Task = Pin<Box<Guarded<Pending<()>>>>;

    /// Returns the holders of a worker with 100 MiB for the heaps, and the budget.
    fn holders() -> (Rc<Holders>, Arc<Budget>) {
        let metrics = crate::telemetry::metrics::Metrics::new(1).memory();
        let budget = Arc::new(Budget::new(metrics, 1));
        budget.set(Some(101 << 20));
        (Holders::new(Arc::clone(&budget), 0), budget)
    }

    fn poll<F: Future<Output = ()>>(task: &mut Pin<Box<Guarded<F>>>) -> Poll<()> {
        let cx = &mut Context::from_waker(Waker::noop());
        task.as_mut().poll(cx)
    }

    fn connection(holders: &Rc<Holders>, bytes: i64) -> Task {
        let mut task = Box::pin(guard(holders, pending()));
        assert!(poll(&mut task).is_pending());
        stake(&task).add(bytes);
        task
    }

    fn stream(of: &Task, bytes: i64) -> Pin<Box<Guarded<Pinned>>> {
        let mut task = stake(of).charge(|| Box::pin(guard_stream(Box::pin(pending()))));
        assert!(poll(&mut task).is_pending());
        stake(&task).add(bytes);
        task
    }

    fn stake<F>(task: &Guarded<F>) -> &Rc<Stake> {
        task.stake.as_ref().unwrap()
    }

    fn is_doomed<F>(task: &Guarded<F>) -> bool {
        stake(task).doomed.get().is_some()
    }

    #[test]
    fn without_a_budget_nothing_is_charged() {
        let (holders, budget) = holders();
        budget.set(None);
        let task = Box::pin(guard(&holders, pending::<()>()));
        assert!(task.stake.is_none());
        assert!(guard_stream(Box::pin(pending::<()>())).stake.is_none());
        assert!(!holders.refuses());
    }

    #[test]
    fn the_largest_are_reset_and_of_equals_those_that_stand_still() {
        let (holders, budget) = holders();
        let mut small = connection(&holders, 15 * KIB);
        let mut still = connection(&holders, 5 * MIB);
        let mut moving = connection(&holders, 6 * MIB);
        let mut largest = connection(&holders, 9 * MIB);
        // Reset down to 62 of 100 MiB.
        budget.publish(1, 73 * MIB);
        assert!(poll(&mut moving).is_pending());
        assert!(!is_doomed(&largest), "it is short, not over");
        budget.publish(1, 75 * MIB);
        assert!(poll(&mut moving).is_pending());
        let doomed = [&small, &still, &moving, &largest].map(|task| is_doomed(task));
        assert_eq!(doomed, [false, true, false, true]);
        assert!(poll(&mut largest).is_ready() && poll(&mut still).is_ready());
        drop((largest, still));
        // The memory of the reset holders is free.
        budget.publish(1, 61 * MIB);
        assert!(poll(&mut moving).is_pending() && poll(&mut small).is_pending());
        assert!(!is_doomed(&moving) && !is_doomed(&small));
        assert_eq!(holders.leaving.get(), 0);
        drop((moving, small));
        assert!(holders.stakes.borrow().is_empty());
    }

    #[test]
    fn a_stream_is_reset_before_the_connection_that_others_share() {
        let (holders, budget) = holders();
        let mut shared = connection(&holders, 20 * MIB);
        let (large, small) = (stream(&shared, 90 * KIB), stream(&shared, KIB));
        let other = connection(&holders, 13 * MIB - 50 * KIB);
        budget.publish(1, 75 * MIB);
        assert!(poll(&mut shared).is_pending());
        assert!(is_doomed(&large) && is_doomed(&other));
        assert!(!is_doomed(&shared) && !is_doomed(&small));
    }

    #[test]
    fn what_a_stream_leaves_is_its_connections() {
        let (holders, _) = holders();
        let connection = connection(&holders, 3);
        let one = stream(&connection, 5);
        let two = stream(&connection, -2);
        assert_eq!(stake(&connection).family(), 6);
        drop((one, two));
        let stake = stake(&connection);
        assert_eq!(stake.bytes.get(), 6 - 2 * TASK);
        assert_eq!((stake.of_streams.get(), stake.streams.get()), (0, 0));
    }

    #[test]
    fn rounding_does_not_add_up_over_a_long_stream() {
        let (holders, _) = holders();
        let connection = connection(&holders, 0);
        let mut long = stream(&connection, 50 * MIB);
        assert!(poll(&mut long).is_pending());
        assert_eq!(stake(&long).bytes.get(), MOST_OF_STREAM);
        assert_eq!(stake(&connection).family(), MOST_OF_STREAM);
    }

    #[test]
    fn who_holds_more_than_others_is_refused_first() {
        let (holders, budget) = holders();
        let (little, much) = (connection(&holders, 0), connection(&holders, MIB));
        let refused = |task: &Task| stake(task).charge(|| holders.refuses());
        for (mib, of_little, of_much) in [(55, false, false), (63, false, true), (91, true, true)] {
            budget.publish(1, mib * MIB);
            assert_eq!((refused(&little), refused(&much)), (of_little, of_much));
        }
    }
}
