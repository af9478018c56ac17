//! The timers of a worker's connections and requests.
//!
//! Requests set deadlines of seconds and almost always end after microseconds. Arming and disarming a timer of the runtime
//! for each of them would cost more than routing it, and each would take a hundred bytes while its request waits. So a
//! deadline is a number in a list, and a task of the worker looks at the list twice a second. Deadlines before the next
//! look are also in a queue, and the task waits for the earliest of them. A slow request is therefore woken once, at its
//! deadline.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::os::memory;

/// Interval of looking at all timers.
const SCAN_EVERY: Duration = Duration::from_millis(500);
/// Number of timers for which a list always keeps its memory.
const KEPT: usize = 64;

/// Deadline of a timer that has expired.
const EXPIRED: u64 = 0;
/// Later than any deadline.
const NEVER: u64 = u64::MAX;

/// A timer with one deadline at a time, which is cheap to change. Clones are the same timer.
#[derive(Debug)]
pub(crate) struct Timer {
    at: u32,
    /// The index is one of this thread's list.
    _not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct Entry {
    /// The deadline as [`Timers::number`], [`EXPIRED`], or [`NEVER`].
    deadline: u64,
    /// Where the timer is in the queue; [`NEVER`] if it is not there.
    queued: u64,
    /// Waker of the task that waits for the timer.
    waker: Option<Waker>,
    /// Number of clones; 0 if the entry is free.
    clones: u32,
}

/// The timers of a thread.
#[derive(Debug)]
struct Timers {
    /// An instant before all deadlines, from which they are counted; `None` before the first.
    base: Option<Instant>,
    entries: Vec<Entry>,
    /// Indices of free entries.
    free: Vec<u32>,
    /// Deadlines before `scan`, with the indices of their entries. Elements that no longer match their entry have no effect.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// When to look at all entries; [`NEVER`] while none has a deadline.
    scan: u64,
    /// What the task waits for.
    awaited: u64,
    task: Option<Waker>,
}

thread_local! {
    static TIMERS: RefCell<Timers> = const { RefCell::new(Timers::new()) };
}

impl Timer {
    /// Creates a timer without a deadline.
    pub(crate) fn new() -> Self {
        Self::at(TIMERS.with_borrow_mut(Timers::add))
    }

    fn at(at: u32) -> Self {
        Self {
            at,
            _not_send: PhantomData,
        }
    }

    /// Sets or clears the deadline; `now` is the caller's reading of the clock.
    pub(crate) fn set(&self, now: Instant, deadline: Option<Instant>) {
        TIMERS.with_borrow_mut(|timers| timers.set(self.at, now, deadline));
    }

    /// Ready once the deadline has passed, until another one is set. Must be polled after each [`Timer::set`].
    pub(crate) fn poll_expired(&self, cx: &Context<'_>) -> Poll<()> {
        let (polled, replaced) = TIMERS.with_borrow_mut(|timers| timers.poll(self.at, cx.waker()));
        // Not within the timers: the end of a task may drop others.
        drop(replaced);
        polled
    }
}

impl Clone for Timer {
    fn clone(&self) -> Self {
        TIMERS.with_borrow_mut(|timers| {
            if let Some(entry) = timers.entry(self.at) {
                entry.clones += 1;
            }
        });
        Self::at(self.at)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // If the thread is ending, its timers are gone.
        let waker = TIMERS.try_with(|timers| timers.borrow_mut().remove(self.at));
        // Not within the timers: the end of a task may drop others.
        drop(waker);
    }
}

/// Wakes the tasks whose timers have expired; runs for as long as the thread has timers.
pub(crate) async fn run() {
    let mut sleep = pin!(sleep_until(Instant::now()));
    TIMERS.with_borrow_mut(Timers::restart);
    poll_fn(|cx| -> Poll<()> {
        loop {
            let next = TIMERS.with_borrow_mut(|timers| {
                timers.task = Some(cx.waker().clone());
                timers.advance(Instant::now())
            });
            let Some(next) = next else {
                // The next deadline wakes this task.
                return Poll::Pending;
            };
            if sleep.deadline() != next {
                sleep.as_mut().reset(next);
            }
            ready!(sleep.as_mut().poll(cx));
        }
    })
    .await;
}

impl Timers {
    const fn new() -> Self {
        Self {
            base: None,
            entries: Vec::new(),
            free: Vec::new(),
            queue: BinaryHeap::new(),
            scan: NEVER,
            awaited: NEVER,
            task: None,
        }
    }

    /// Begins with a task that has not looked at the list yet.
    fn restart(&mut self) {
        self.scan = EXPIRED;
        self.awaited = EXPIRED;
    }

    fn add(&mut self) -> u32 {
        let entry = Entry {
            deadline: NEVER,
            queued: NEVER,
            waker: None,
            clones: 1,
        };
        while let Some(free) = self.free.pop() {
            // Free entries at the end of the list have been dropped.
            if let Some(place) = self.entry(free) {
                *place = entry;
                return free;
            }
        }
        if self.entries.len() == self.entries.capacity() {
            self.resize(|timers| {
                timers.entries.reserve_exact(timers.entries.len() / 4 + 64);
                // One index for each entry, so that freeing a timer never allocates.
                timers
                    .free
                    .reserve_exact(timers.entries.capacity() - timers.free.len());
            });
        }
        self.entries.push(entry);
        // There are far fewer timers than 2³².
        (self.entries.len() - 1) as u32
    }

    /// Drops one clone of a timer; returns the waker of the last one.
    fn remove(&mut self, at: u32) -> Option<Waker> {
        let entry = self.entry(at)?;
        entry.clones -= 1;
        if entry.clones > 0 {
            return None;
        }
        entry.deadline = NEVER;
        entry.queued = NEVER;
        let waker = entry.waker.take();
        self.free.push(at);
        while self.entries.pop_if(|last| last.clones == 0).is_some() {}
        if self.entries.capacity() > KEPT.max(4 * self.entries.len()) {
            self.resize(Self::shrink);
        }
        waker
    }

    /// Frees the capacity that a burst needed.
    fn shrink(&mut self) {
        let most = KEPT.max(2 * self.entries.len());
        self.entries.shrink_to(most);
        let len = self.entries.len();
        self.free.retain(|at| (*at as usize) < len);
        self.free.shrink_to(most);
        self.queue.retain(|Reverse((_, at))| (*at as usize) < len);
        self.queue.shrink_to(most);
    }

    /// Returns the allocated bytes.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
            + self.queue.capacity() * size_of::<Reverse<(u64, u32)>>()
    }

    /// Changes the capacities, and takes this from the account of the running task: the list is the worker's, and another task
    /// may free what this one allocates.
    #[cold]
    fn resize(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.bytes();
        change(self);
        let now = self.bytes();
        if now > before {
            memory::leave(now - before, false);
        } else if now < before {
            memory::adopt(before - now);
        }
    }

    fn entry(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)
    }

    /// Returns an instant as a number that is neither [`EXPIRED`] nor [`NEVER`]: nanoseconds after the base, and one more.
    fn number(&mut self, instant: Instant) -> u64 {
        let base = *self.base.get_or_insert(instant);
        let since = instant.saturating_duration_since(base);
        let nanos = since.as_secs().saturating_mul(1_000_000_000);
        let nanos = nanos.saturating_add(since.subsec_nanos().into());
        nanos.saturating_add(1).min(NEVER - 1)
    }

    fn set(&mut self, at: u32, now: Instant, deadline: Option<Instant>) {
        if self.base.is_none() {
            self.base = Some(now);
        }
        let deadline = deadline.map_or(NEVER, |deadline| self.number(deadline));
        if let Some(entry) = self.entry(at) {
            entry.deadline = deadline;
        }
        if deadline < self.scan {
            self.plan(at, deadline, now);
        }
    }

    /// Plans to look at a timer before the others, or plans to look at all of them.
    #[inline(never)]
    fn plan(&mut self, at: u32, deadline: u64, now: Instant) {
        if self.scan == NEVER {
            self.scan = self.number(now + SCAN_EVERY);
        }
        if deadline < self.scan {
            self.enqueue(at, deadline);
        }
        let first = self.scan.min(deadline);
        if first < self.awaited {
            self.awaited = first;
            if let Some(task) = &self.task {
                task.wake_by_ref();
            }
        }
    }

    fn enqueue(&mut self, at: u32, deadline: u64) {
        if let Some(entry) = self.entry(at)
            && deadline < entry.queued
        {
            entry.queued = deadline;
            if self.queue.len() == self.queue.capacity() {
                self.resize(|timers| timers.queue.reserve(1));
            }
            self.queue.push(Reverse((deadline, at)));
        }
    }

    fn poll(&mut self, at: u32, waker: &Waker) -> (Poll<()>, Option<Waker>) {
        let Some(entry) = self.entry(at) else {
            return (Poll::Pending, None);
        };
        match entry.deadline {
            EXPIRED => (Poll::Ready(()), None),
            NEVER => (Poll::Pending, None),
            _ => match &mut entry.waker {
                Some(known) if known.will_wake(waker) => (Poll::Pending, None),
                known => (Poll::Pending, known.replace(waker.clone())),
            },
        }
    }

    /// Wakes the tasks of expired timers; returns when to do so again, `None` if no timer has a deadline.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        let time = self.number(now);
        if self.scan <= time {
            self.scan_all(now);
        }
        while let Some(&Reverse((queued, at))) = self.queue.peek()
            && queued <= time
        {
            self.queue.pop();
            self.look(at, queued, time);
        }
        let first = self.queue.peek();
        self.awaited = first.map_or(self.scan, |Reverse((first, _))| self.scan.min(*first));
        let after = Duration::from_nanos(self.awaited - 1);
        self.base
            .filter(|_| self.awaited < NEVER)
            .map(|base| base + after)
    }

    /// Puts the timers into the queue that expire before the next look at all of them.
    fn scan_all(&mut self, now: Instant) {
        self.scan = self.number(now + SCAN_EVERY);
        let mut is_idle = true;
        for at in 0..self.entries.len() {
            let deadline = self.entries[at].deadline;
            if matches!(deadline, EXPIRED | NEVER) {
                continue;
            }
            is_idle = false;
            if deadline < self.scan {
                self.enqueue(at as u32, deadline);
            }
        }
        if is_idle {
            self.scan = NEVER;
        }
    }

    /// Handles a timer whose turn in the queue has come.
    fn look(&mut self, at: u32, queued: u64, time: u64) {
        let scan = self.scan;
        let Some(entry) = self.entry(at).filter(|entry| entry.queued == queued) else {
            return;
        };
        entry.queued = NEVER;
        let deadline = entry.deadline;
        if matches!(deadline, EXPIRED | NEVER) {
            return;
        }
        if deadline <= time {
            entry.deadline = EXPIRED;
            if let Some(waker) = &entry.waker {
                waker.wake_by_ref();
            }
        } else if deadline < scan {
            self.enqueue(at, deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// Runs a test as a task of its own, beside the task that wakes expired timers.
    async fn run(test: impl Future<Output = ()> + 'static) {
        let tasks = LocalSet::new();
        tasks.spawn_local(super::run());
        let test = tasks.run_until(async { spawn_local(test).await });
        test.await.unwrap();
    }

    async fn expired(timer: &Timer) {
        poll_fn(|cx| timer.poll_expired(cx)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fires_at_the_deadline_and_not_before() {
        run(async {
            let timer = Timer::new();
            for millis in [10u64, 499, 500, 501, 3000, 20] {
                let start = Instant::now();
                timer.set(start, Some(start + Duration::from_millis(millis)));
                expired(&timer).await;
                let took = start.elapsed().as_millis();
                assert!(
                    (u128::from(millis)..=u128::from(millis) + 2).contains(&took),
                    "{took}"
                );
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_deadline_does_not_fire_at_the_earlier_one() {
        run(async {
            let timer = Timer::new();
            let start = Instant::now();
            timer.set(start, Some(start + Duration::from_millis(100)));
            let first = poll_fn(|cx| Poll::Ready(timer.poll_expired(cx)));
            assert!(first.await.is_pending());
            timer.set(start, Some(start + Duration::from_secs(2)));
            expired(&timer).await;
            assert!(start.elapsed() >= Duration::from_secs(2));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_replaces_a_later_one() {
        run(async {
            let timer = Timer::new();
            for (later, earlier) in [(400, 100), (3000, 10), (3000, 700)] {
                let start = Instant::now();
                timer.set(start, Some(start + Duration::from_millis(later)));
                tokio::time::sleep(Duration::from_millis(5)).await;
                timer.set(start, Some(start + Duration::from_millis(earlier)));
                expired(&timer).await;
                let took = start.elapsed().as_millis();
                let earlier = u128::from(earlier);
                assert!((earlier..=earlier + 2).contains(&took), "{took}");
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_wakes_its_task_once_at_the_deadline() {
        run(async {
            let timer = Timer::new();
            let start = Instant::now();
            timer.set(start, Some(start + Duration::from_secs(10)));
            let mut polls = 0;
            poll_fn(|cx| {
                polls += 1;
                timer.poll_expired(cx)
            })
            .await;
            assert_eq!(start.elapsed().as_secs(), 10);
            assert_eq!(polls, 2, "at the begin and at the end");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_deadline_it_never_fires() {
        run(async {
            let timer = Timer::new();
            let start = Instant::now();
            timer.set(start, Some(start + Duration::from_millis(5)));
            timer.set(start, None);
            let limit = Duration::from_secs(60);
            assert!(tokio::time::timeout(limit, expired(&timer)).await.is_err());
            TIMERS.with_borrow(|timers| assert_eq!(timers.awaited, NEVER));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_expire_at_their_deadlines_and_leave_no_memory() {
        run(async {
            let start = Instant::now();
            let waits = (0..3000u64).map(|at| {
                spawn_local(async move {
                    let timer = Timer::new();
                    // Few in the order of their creation.
                    let millis = at * 7919 % 3000;
                    timer.set(start, Some(start + Duration::from_millis(millis)));
                    expired(&timer.clone()).await;
                    let took = start.elapsed().as_millis();
                    let millis = u128::from(millis);
                    assert!((millis..=millis + 2).contains(&took), "{millis} {took}");
                })
            });
            for wait in waits.collect::<Vec<_>>() {
                wait.await.unwrap();
            }
            TIMERS.with_borrow(|timers| {
                assert!(timers.entries.capacity() <= KEPT && timers.queue.is_empty());
            });
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stays_after_a_burst_keeps_no_memory_of_the_burst() {
        run(async {
            let now = Instant::now();
            let some = |number: u32| (0..number).map(|_| Timer::new()).collect::<Vec<_>>();
            let before = some(10);
            let mut burst = some(100_000);
            for timer in &burst {
                timer.set(now, Some(now + Duration::from_millis(100)));
            }
            let stays = burst.swap_remove(5);
            drop(burst);
            TIMERS.with_borrow(|timers| {
                assert!(timers.bytes() <= 100 * KEPT, "{timers:?}");
            });
            stays.set(now, Some(now + Duration::from_secs(1)));
            expired(&stays).await;
            assert_eq!(now.elapsed().as_secs(), 1);
            // The entries of the burst are new ones.
            let after = some(200);
            let all = before.iter().chain(&after).chain([&stays]);
            let all: std::collections::BTreeSet<_> = all.map(|timer| timer.at).collect();
            assert_eq!(all.len(), 211);
        })
        .await;
    }

    /// Every waiting request has one.
    #[test]
    fn an_entry_stays_small() {
        assert!(size_of::<Entry>() <= 40);
    }
}
