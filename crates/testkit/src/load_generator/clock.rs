//! A timer with microsecond resolution for thousands of tasks of one thread.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::load_generator::alarm::Alarm;

/// The clock of the tasks of the thread that created it; see the module's documentation.
#[derive(Debug)]
pub struct Clock {
    shared: Rc<Shared>,
    ringer: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    alarm: Alarm,
    sleepers: RefCell<BinaryHeap<Reverse<Sleeper>>>,
}

#[derive(Debug)]
struct Sleeper {
    until: Instant,
    wake: oneshot::Sender<()>,
}

impl Clock {
    /// Creates a clock for the current `LocalSet`.
    ///
    /// # Errors
    ///
    /// The system has no timer, or there is no runtime.
    pub fn new() -> io::Result<Self> {
        let shared = Rc::new(Shared {
            alarm: Alarm::new()?,
            sleepers: RefCell::default(),
        });
        let ringer = tokio::task::spawn_local(ring(Rc::clone(&shared)));
        Ok(Self { shared, ringer })
    }

    /// Waits until `until`, which may be past.
    ///
    /// # Errors
    ///
    /// The system's timer fails.
    pub async fn sleep_until(&self, until: Instant) -> io::Result<()> {
        let now = Instant::now();
        if until <= now {
            return Ok(());
        }
        let (wake, woken) = oneshot::channel();
        let first = {
            let mut sleepers = self.shared.sleepers.borrow_mut();
            let first = sleepers.peek().is_none_or(|Reverse(one)| until < one.until);
            sleepers.push(Reverse(Sleeper { until, wake }));
            first
        };
        if first {
            self.shared.alarm.set(until - now)?;
        }
        let failed = |_| io::Error::other("the clock has stopped");
        woken.await.map_err(failed)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.ringer.abort();
    }
}

/// Wakes due tasks until the timer fails; then waiting tasks are notified by the channel.
async fn ring(shared: Rc<Shared>) {
    while shared.alarm.rings().await.is_ok() {
        let now = Instant::now();
        let mut sleepers = shared.sleepers.borrow_mut();
        while let Some(Reverse(first)) = sleepers.peek() {
            if first.until > now {
                if shared.alarm.set(first.until - now).is_err() {
                    sleepers.clear();
                }
                break;
            }
            if let Some(Reverse(first)) = sleepers.pop() {
                // A task that has stopped waiting needs no wake-up.
                let _ = first.wake.send(());
            }
        }
    }
    shared.sleepers.borrow_mut().clear();
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Sleeper {}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::{JoinSet, LocalSet};

    use super::*;

    #[test]
    fn no_task_is_woken_early_and_all_are_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async move {
            let clock = Rc::new(Clock::new().unwrap());
            let began = Instant::now();
            let mut sleepers = JoinSet::new();
            for index in 0..500 {
                // In no order: 7919 is a prime.
                let until = began + Duration::from_micros(index * 7919 % 50_000);
                let clock = Rc::clone(&clock);
                sleepers.spawn_local(async move {
                    // Every third is cancelled and must not delay the others.
                    if index % 3 == 0 {
                        tokio::select! {
                            biased;
                            () = tokio::task::yield_now() => return None,
                            result = clock.sleep_until(until) => result.unwrap(),
                        }
                    } else {
                        clock.sleep_until(until).await.unwrap();
                    }
                    Some(Instant::now().checked_duration_since(until))
                });
            }
            let mut woken = 0;
            while let Some(lateness) = sleepers.join_next().await {
                if let Some(lateness) = lateness.unwrap() {
                    assert!(lateness.is_some(), "woken before its time");
                    woken += 1;
                }
            }
            assert!(woken >= 333, "{woken}");
        });
    }
}
