//! Tests slots and their queue against a model, and with concurrent threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use maglor_balance::guard::limits::{Admission, Claim, Slots};
use proptest::prelude::*;

use crate::support::check;

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit(u32),
    Claim(u32),
    Leave,
    Queue,
    Release,
}

/// The same with plain numbers.
struct Model {
    limit: u32,
    max_waiting: u32,
    active: u32,
    waiting: u32,
}

impl Model {
    fn admit(&mut self, ceiling: u32) -> Admission {
        if self.active < self.limit.min(ceiling) && self.waiting == 0 {
            self.active += 1;
            Admission::Admitted
        } else if self.queue() {
            Admission::Waiting
        } else {
            Admission::Overflow
        }
    }

    fn queue(&mut self) -> bool {
        let room = self.waiting < self.max_waiting;
        self.waiting += u32::from(room);
        room
    }

    fn claim(&mut self, ceiling: u32) -> Claim {
        let limit = self.limit.min(ceiling);
        if self.active >= limit {
            return Claim::Waiting;
        }
        self.waiting -= 1;
        self.active += 1;
        Claim::Claimed {
            wake: self.waiting > 0 && self.active < limit,
        }
    }
}

#[test]
fn it_does_what_the_model_does() {
    let ceiling = || prop_oneof![Just(u32::MAX), 0_u32..6];
    let step = prop_oneof![
        ceiling().prop_map(Step::Admit),
        ceiling().prop_map(Step::Claim),
        Just(Step::Leave),
        Just(Step::Queue),
        Just(Step::Release),
    ];
    let steps = proptest::collection::vec(step, 1..200);
    let strategy = (prop::option::of(1_u32..6), 0_u32..5, steps);
    check(82, &strategy, |(limit, max_waiting, steps)| {
        let slots = Slots::new(limit, max_waiting);
        let limit = limit.unwrap_or(u32::MAX);
        let (active, waiting) = (0, 0);
        let mut model = Model {
            limit,
            max_waiting,
            active,
            waiting,
        };
        for step in steps {
            match step {
                Step::Admit(ceiling) => assert_eq!(slots.admit(ceiling), model.admit(ceiling)),
                Step::Claim(ceiling) if model.waiting > 0 => {
                    assert_eq!(slots.claim(ceiling), model.claim(ceiling));
                }
                Step::Leave if model.waiting > 0 => {
                    model.waiting -= 1;
                    let wake = model.waiting > 0 && model.active < limit;
                    assert_eq!(slots.leave(), wake);
                }
                Step::Queue => assert_eq!(slots.queue(), model.queue()),
                Step::Release if model.active > 0 => {
                    model.active -= 1;
                    assert_eq!(slots.release(), model.waiting > 0);
                }
                Step::Claim(_) | Step::Leave | Step::Release => {}
            }
            assert_eq!(slots.active(), model.active);
            assert_eq!(slots.waiting(), model.waiting);
            assert!(slots.active() <= limit && slots.waiting() <= max_waiting);
        }
    });
}

/// Sleepers that are woken in turn; wakes that come while none sleeps merge into one, as they may
/// in a caller.
#[derive(Default)]
struct Wakes {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl Wakes {
    fn wake(&self) {
        *self.pending.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let pending = self.pending.lock().unwrap();
        let limit = Duration::from_secs(20);
        let (mut pending, result) = self
            .changed
            .wait_timeout_while(pending, limit, |pending| !*pending)
            .unwrap();
        assert!(!result.timed_out(), "a wake was lost");
        *pending = false;
    }
}

#[test]
fn no_wake_is_lost_and_no_limit_exceeded() {
    let (slots, wakes) = (Slots::new(Some(2), 100), Wakes::default());
    let (inside, served) = (AtomicU32::new(0), AtomicU32::new(0));
    let serve = || {
        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
        std::thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        served.fetch_add(1, Ordering::Relaxed);
        if slots.release() {
            wakes.wake();
        }
    };
    let work = || {
        for _ in 0..500 {
            match slots.admit(u32::MAX) {
                Admission::Admitted => serve(),
                Admission::Overflow => panic!("the queue is long enough"),
                Admission::Waiting => loop {
                    wakes.sleep();
                    if let Claim::Claimed { wake } = slots.claim(u32::MAX) {
                        if wake {
                            wakes.wake();
                        }
                        break serve();
                    }
                },
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(work);
        }
    });
    assert_eq!(served.load(Ordering::Relaxed), 4000);
    assert_eq!((slots.active(), slots.waiting()), (0, 0));
}
