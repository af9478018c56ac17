//! The adaptive limit: noise does not lower it, queues do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use maglor_balance::guard::concurrency::{ConcurrencyLimit, ConcurrencyParams};
use maglor_balance::{Rng, Time};

use crate::support::seed;

/// The time of a request without queue, in nanoseconds.
type Law = fn(&mut Rng) -> f64;

/// All of them 20 ms on average.
const LAWS: [(&str, Law); 4] = [
    ("exponential", |rng| -(1.0 - rng.unit()).ln() * 20e6),
    ("bimodal", |rng| if rng.unit() < 0.9 { 2e6 } else { 182e6 }),
    ("lognormal", |rng| {
        let normal = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
        let normal = normal * (std::f64::consts::TAU * rng.unit()).cos();
        let variance = 5.0_f64.ln();
        (variance.sqrt() * normal - variance / 2.0).exp() * 20e6
    }),
    ("deterministic", |_| 20e6),
];

/// All of them 5 s on average.
const SLOW: [(&str, Law); 3] = [
    ("exponential", |rng| -(1.0 - rng.unit()).ln() * 5e9),
    (
        "bimodal",
        |rng| if rng.unit() < 0.9 { 0.5e9 } else { 45.5e9 },
    ),
    ("deterministic", |_| 5e9),
];

/// A FIFO service with this many slots, behind one limit.
struct Fixture {
    law: Law,
    places: usize,
    limit: ConcurrencyLimit,
    /// Ends, with beginnings.
    served: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: VecDeque<u64>,
    /// End times of the requests that would be in progress without rejections.
    free: BinaryHeap<Reverse<u64>>,
    /// In nanoseconds.
    now: f64,
    rng: Rng,
    answered: f64,
    latency: f64,
}

impl Fixture {
    fn new(law: Law, places: usize) -> Self {
        Self {
            law,
            places,
            limit: ConcurrencyLimit::new(ConcurrencyParams::default()),
            served: BinaryHeap::new(),
            waiting: VecDeque::new(),
            free: BinaryHeap::new(),
            now: 0.0,
            rng: Rng::seed(seed(94)),
            answered: 0.0,
            latency: 0.0,
        }
    }

    /// The share of windows of 100 ms in which the limit is never below the most that are in progress.
    fn run(&mut self, rate: f64, seconds: f64) -> f64 {
        let end = self.now + seconds * 1e9;
        let mut window_end = self.now + 100e6;
        let (mut need, mut least) = (0, u32::MAX);
        let (mut windows, mut enough) = (0.0, 0.0);
        while self.now < end {
            self.now -= (1.0 - self.rng.unit()).ln() / rate * 1e9;
            self.end_until(self.now as u64);
            least = least.min(self.limit.limit());
            while self.now >= window_end {
                windows += 1.0;
                enough += f64::from(u8::from(least as usize >= need));
                (need, least) = (self.free.len(), self.limit.limit());
                window_end += 100e6;
            }
            self.arrive(self.now as u64);
            need = need.max(self.free.len());
        }
        enough / windows
    }

    /// Nothing arrives, and all ends.
    fn pause(&mut self, seconds: f64) {
        self.now += seconds * 1e9;
        self.end_until(self.now as u64);
    }

    fn arrive(&mut self, now: u64) {
        let end = now + (self.law)(&mut self.rng) as u64;
        self.free.push(Reverse(end));
        let active = (self.served.len() + self.waiting.len()) as u32;
        if active >= self.limit.limit() {
            return;
        }
        if self.served.len() < self.places {
            self.served.push(Reverse((end, now)));
        } else {
            self.waiting.push_back(now);
        }
    }

    fn end_until(&mut self, now: u64) {
        while self.free.peek().is_some_and(|end| end.0 <= now) {
            self.free.pop();
        }
        while let Some(Reverse((end, began))) = self.served.peek().copied() {
            if end > now {
                break;
            }
            let active = (self.served.len() + self.waiting.len()) as u32;
            self.served.pop();
            let latency = Duration::from_nanos(end - began);
            self.answered += 1.0;
            self.latency += latency.as_secs_f64();
            let at = Time::from_nanos(end);
            let _ = self.limit.sample(latency, active, at, &mut self.rng);
            if let Some(began) = self.waiting.pop_front() {
                let work = (self.law)(&mut self.rng) as u64;
                self.served.push(Reverse((end + work, began)));
            }
        }
    }
}

/// A running minimum of means fell to 4 here, in nearly all windows of all but the last law.
#[test]
fn where_nothing_queues_there_is_room_for_all() {
    for (name, law) in LAWS {
        for rate in [100.0, 1000.0, 5000.0] {
            let enough = Fixture::new(law, usize::MAX).run(rate, 40.0);
            println!("{name} at {rate}/s: {enough:.3}");
            assert!(enough >= 0.95, "{name} at {rate}/s: {enough}");
        }
    }
}

/// A service whose requests last for seconds: at first only the short ones have been answered, which is no baseline.
#[test]
fn a_slow_service_is_not_cut_to_what_is_answered_first() {
    for (name, law) in SLOW {
        let mut fixture = Fixture::new(law, usize::MAX);
        fixture.run(40.0, 100.0);
        let enough = fixture.run(40.0, 300.0);
        println!("{name}: {enough:.3}");
        assert!(enough >= 0.9, "{name}: {enough}");
    }
}

/// After a pause the short requests come first again.
#[test]
fn a_pause_makes_no_baseline_of_what_is_answered_first() {
    let mut fixture = Fixture::new(|rng| -(1.0 - rng.unit()).ln() * 200e6, usize::MAX);
    fixture.run(2000.0, 30.0);
    let before = fixture.limit.baseline().unwrap();
    for _ in 0..5 {
        fixture.pause(10.0);
        let enough = fixture.run(2000.0, 4.0);
        assert!(enough >= 0.9, "{enough}");
    }
    let after = fixture.limit.baseline().unwrap();
    assert!(after > before.mul_f64(0.6), "{before:?} {after:?}");
}

/// Nothing queues, but each request takes three times as long from now on.
#[test]
fn a_service_that_becomes_slower_has_its_room_back_soon() {
    let mut fixture = Fixture::new(LAWS[0].1, usize::MAX);
    fixture.run(1000.0, 30.0);
    fixture.law = |rng| -(1.0 - rng.unit()).ln() * 60e6;
    fixture.run(1000.0, 10.0);
    let enough = fixture.run(1000.0, 60.0);
    assert!(enough >= 0.95, "{enough}");
}

/// Four slots result in 20 responses a window, which is a small sample.
#[test]
fn few_answers_are_enough_to_see_a_queue() {
    for (name, law) in LAWS {
        let mut fixture = Fixture::new(law, 4);
        fixture.run(400.0, 30.0);
        (fixture.answered, fixture.latency) = (0.0, 0.0);
        fixture.run(400.0, 120.0);
        let goodput = fixture.answered / 120.0 / 200.0;
        let latency = 1e3 * fixture.latency / fixture.answered;
        println!("{name}: {goodput:.3} of the capacity, {latency:.1} ms");
        assert!(
            goodput > 0.85 && latency < 45.0,
            "{name}: {goodput} {latency}"
        );
    }
}

/// Twice the capacity of the service: it works at nearly full capacity, and successful requests have waited only
/// briefly.
#[test]
fn overload_makes_no_long_queue() {
    for (name, law) in LAWS {
        let (places, seconds) = (40, 30.0);
        let capacity = places as f64 / 0.02;
        let mut fixture = Fixture::new(law, places);
        fixture.run(2.0 * capacity, seconds);
        let goodput = fixture.answered / seconds / capacity;
        let latency = 1e3 * fixture.latency / fixture.answered;
        println!("{name}: {goodput:.3} of the capacity, {latency:.1} ms");
        assert!(
            goodput > 0.85 && latency < 40.0,
            "{name}: {goodput} {latency}"
        );
    }
}

/// Its places become a sixth: the baseline that is measured with a queue in there is no new normal.
#[test]
fn a_queue_does_not_become_the_baseline() {
    let mut fixture = Fixture::new(LAWS[0].1, 60);
    fixture.run(6000.0, 10.0);
    let before = fixture.limit.baseline().unwrap();
    let mut slower = Fixture::new(LAWS[0].1, 10);
    slower.limit = fixture.limit;
    // It begins at time zero again, but the limit's next measurement is at a time that comes.
    slower.run(6000.0, 100.0);
    let after = slower.limit.baseline().unwrap();
    assert!(after < before.mul_f64(1.5), "{before:?} {after:?}");
    assert!(
        (8..40).contains(&slower.limit.limit()),
        "{}",
        slower.limit.limit()
    );
}
