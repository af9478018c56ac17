//! Fair scheduling among the busy connections of a worker.
//!
//! A task that wakes itself runs again before the worker has polled its sockets, and a dozen such tasks run a dozen
//! times before others run once. Therefore a task that has used up its turn waits in a queue. Each time that the
//! worker has run all other ready tasks and has polled its sockets, one waiting task continues. A task with little to
//! do thus waits for one turn of one busy task, regardless of the number of busy tasks.
//!
//! The queue is used by multiplexed connections that read much data, HTTP/1.1 pipelining, TLS handshakes, the
//! acceptance of many connections, and the closing of connections without a request.
//!
//! A long turn costs less than several short ones: what it handles together is also written together. Therefore the few
//! clients of a worker have longer turns than many ([`turn_length`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Minimum length of a round, in which each client connection of a thread has one turn, in turns of the usual length.
const ROUND: usize = 3;

thread_local! {
    static QUEUE: RefCell<TurnQueue> = RefCell::default();
    /// Number of client connections of the thread.
    static CLIENTS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a client connection of the calling thread until dropped.
#[derive(Debug)]
pub(crate) struct CountedClient(());

impl CountedClient {
    pub(crate) fn new() -> Self {
        CLIENTS.set(CLIENTS.get() + 1);
        Self(())
    }
}

impl Drop for CountedClient {
    fn drop(&mut self) {
        CLIENTS.set(CLIENTS.get() - 1);
    }
}

/// Returns the length of a turn whose usual length is `usual`. The turns of a single client are longer, and those of two
/// a little: another client waits no longer for them than for the turns of three.
pub(crate) fn turn_length(usual: usize) -> usize {
    usual.max(usual * ROUND / CLIENTS.get().max(1))
}

/// Waiting tasks of a thread.
#[derive(Debug, Default)]
struct TurnQueue {
    waiting: VecDeque<Rc<Waiter>>,
    /// Waker of the task that grants turns; `None` if there is no such task, in which case tasks do not wait.
    giver: Option<Waker>,
}

/// A connection in the queue, reused for its next wait.
#[derive(Debug, Default)]
struct Waiter {
    waker: RefCell<Option<Waker>>,
    queued: Cell<bool>,
}

/// A connection's access to the queue.
#[derive(Debug, Default)]
pub(crate) struct Turn(Rc<Waiter>);

impl Turn {
    /// Enters the queue unless already queued; the task of `cx` is woken at its turn.
    pub(crate) fn queue(&self, cx: &Context<'_>) {
        let waiter = &self.0;
        let mut waker = waiter.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        if waiter.queued.replace(true) {
            return;
        }
        QUEUE.with_borrow_mut(|queue| match &queue.giver {
            Some(giver) => {
                // The granting task sleeps only while the queue is empty.
                if queue.waiting.is_empty() {
                    giver.wake_by_ref();
                }
                queue.waiting.push_back(Rc::clone(waiter));
            }
            None => {
                waiter.queued.set(false);
                cx.waker().wake_by_ref();
            }
        });
    }

    /// Returns whether this is queued and its turn has not come yet.
    pub(crate) fn is_queued(&self) -> bool {
        self.0.queued.get()
    }
}

impl Drop for Turn {
    /// A dropped connection uses up no turn.
    fn drop(&mut self) {
        *self.0.waker.borrow_mut() = None;
    }
}

/// Waits until all other ready tasks have run, and all tasks queued before have had their turns.
pub(crate) async fn next() {
    let turn = Turn::default();
    let mut queued = false;
    poll_fn(|cx| {
        if queued && !turn.is_queued() {
            return Poll::Ready(());
        }
        queued = true;
        turn.queue(cx);
        Poll::Pending
    })
    .await;
}

/// Maximum number of closed connections that wait for a turn to release their descriptors.
const MOST_ENDING: usize = 64;

/// Waits for a turn to close a connection that ends without a request, or without another one after being idle.
/// Closing takes longer than all other work for such a connection and is not urgent. Returns immediately if
/// [`MOST_ENDING`] connections already wait.
pub(crate) async fn before_close() {
    if QUEUE.with_borrow(|queue| queue.waiting.len() < MOST_ENDING) {
        next().await;
    }
}

/// Runs an expensive future with one turn for each poll.
pub(crate) async fn each<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let turn = Turn::default();
    let mut entitled = false;
    poll_fn(|cx| {
        if turn.is_queued() {
            // Another event has woken the task.
            turn.queue(cx);
            return Poll::Pending;
        }
        if !std::mem::replace(&mut entitled, true) {
            turn.queue(cx);
            return Poll::Pending;
        }
        let done = future.as_mut().poll(cx);
        entitled = false;
        done
    })
    .await
}

/// Grants the turns of the calling thread; never returns.
pub(crate) async fn run() {
    loop {
        poll_fn(|cx| {
            QUEUE.with_borrow_mut(|queue| {
                queue.giver = Some(cx.waker().clone());
                match queue.waiting.is_empty() {
                    true => Poll::Pending,
                    false => Poll::Ready(()),
                }
            })
        })
        .await;
        // Lets all other ready tasks run and the sockets be polled.
        tokio::task::yield_now().await;
        QUEUE.with_borrow_mut(TurnQueue::run_one);
    }
}

impl TurnQueue {
    fn run_one(&mut self) {
        while let Some(waiter) = self.waiting.pop_front() {
            waiter.queued.set(false);
            if let Some(waker) = &*waiter.waker.borrow() {
                waker.wake_by_ref();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::Future;

    use tokio::task::LocalSet;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.build().unwrap();
        runtime.block_on(LocalSet::new().run_until(test));
    }

    type Log = Rc<RefCell<Vec<&'static str>>>;

    /// Works whenever it gets a turn.
    async fn busy(log: Log) {
        for _ in 0..4 {
            next().await;
            log.borrow_mut().push("busy");
        }
    }

    #[test]
    fn one_of_many_goes_on_before_what_is_ready() {
        run(async {
            let log = Log::default();
            tokio::task::spawn_local(super::run());
            let busy: Vec<_> = (0..10)
                .map(|_| tokio::task::spawn_local(busy(Rc::clone(&log))))
                .collect();
            let light = Rc::clone(&log);
            let light = tokio::task::spawn_local(async move {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                    light.borrow_mut().push("light");
                }
            });
            light.await.unwrap();
            let before = log.borrow().iter().filter(|one| **one == "busy").count();
            assert!((5..=12).contains(&before), "{:?}", log.borrow());
            for task in busy {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn a_task_that_stops_waiting_uses_no_turn() {
        run(async {
            let noop = Context::from_waker(Waker::noop());
            tokio::task::spawn_local(super::run());
            tokio::task::yield_now().await;
            let gone: Vec<Turn> = (0..100).map(|_| Turn::default()).collect();
            gone.iter().for_each(|turn| turn.queue(&noop));
            let last = Turn::default();
            last.queue(&noop);
            drop(gone);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert!(!last.is_queued());
        });
    }

    #[test]
    fn each_expensive_step_has_a_turn_of_its_own() {
        run(async {
            let log = Log::default();
            tokio::task::spawn_local(super::run());
            let steps = Rc::clone(&log);
            let expensive = each(async move {
                for _ in 0..3 {
                    steps.borrow_mut().push("step");
                    tokio::task::yield_now().await;
                }
            });
            let others = Rc::clone(&log);
            tokio::task::spawn_local(async move {
                loop {
                    others.borrow_mut().push("other");
                    tokio::task::yield_now().await;
                }
            });
            expensive.await;
            assert!(!log.borrow().windows(2).any(|two| two == ["step", "step"]));
        });
    }

    #[test]
    fn few_clients_have_longer_turns() {
        let mut clients = Vec::new();
        for expected in [300, 150, 100, 100, 100] {
            clients.push(CountedClient::new());
            assert_eq!(turn_length(100), expected);
        }
        drop(clients);
        assert_eq!(turn_length(100), 300);
    }

    #[test]
    fn without_a_giver_no_task_waits() {
        run(async {
            next().await;
            each(tokio::task::yield_now()).await;
        });
    }
}
