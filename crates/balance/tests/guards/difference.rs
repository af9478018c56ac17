//! Endpoints whose statuses differ from their peers': found soon, and by nothing that clients can do.

use std::sync::Arc;

use maglor_balance::guard::Percent;
use maglor_balance::guard::outlier::{
    Detector, Enforcing, Event, Finding, Monitor, OutlierParams, Sample, Spared, Watched,
};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::at;
use crate::support::check;

struct Cluster {
    detector: Detector,
    monitors: Vec<Arc<Monitor>>,
    rng: Rng,
    seconds: u64,
}

impl Cluster {
    fn new(params: OutlierParams, n: usize, seed: u64) -> Self {
        let monitors = (0..n).map(|_| Arc::new(Monitor::new())).collect();
        let mut cluster = Self {
            detector: Detector::new(params, Time::ZERO),
            monitors,
            rng: Rng::seed(seed),
            seconds: 0,
        };
        cluster.show(n);
        cluster
    }

    /// The first `n` endpoints exist.
    fn show(&mut self, n: usize) {
        let watched = self.monitors[..n].iter().enumerate();
        let watched = watched.map(|(id, monitor)| Watched {
            id: id as u64,
            monitor: Arc::clone(monitor),
        });
        let now = at(self.seconds * 1000);
        assert_eq!(self.detector.set_endpoints(watched, now), []);
    }

    /// This many requests in a second, at random endpoints; `answer` returns the response of each.
    fn second(
        &mut self,
        requests: u32,
        n: usize,
        answer: impl Fn(usize, &mut Rng) -> Sample,
    ) -> Vec<Event> {
        let params = self.detector.params().clone();
        for _ in 0..requests {
            let to = self.rng.below(n as u32) as usize;
            let sample = answer(to, &mut self.rng);
            assert_eq!(self.monitors[to].record(sample, &params), None);
        }
        self.seconds += 1;
        self.detector.tick(at(self.seconds * 1000), &mut self.rng)
    }
}

/// No streaks, so that nothing but comparisons finds anything.
fn params() -> OutlierParams {
    OutlierParams {
        consecutive_5xx: 0,
        consecutive_gateway_failure: 0,
        ..OutlierParams::default()
    }
}

fn first_is_wrong(to: usize, _: &mut Rng) -> Sample {
    Sample::of_status(if to == 0 { 404 } else { 200 })
}

#[test]
fn a_replica_that_says_404_is_named_and_ejected() {
    for (n, rate) in [(40, 4000), (40, 30), (10, 8), (3, 5), (2, 5)] {
        let mut cluster = Cluster::new(params(), n, 7);
        let mut events = Vec::new();
        while events.is_empty() && cluster.seconds < 60 {
            events = cluster.second(rate, n, first_is_wrong);
        }
        let [Event::Ejected { id: 0, finding, .. }] = events[..] else {
            panic!("{n} endpoints, {rate} a second: {events:?}");
        };
        let expected = Finding::StatusDifference {
            percent: 100.0,
            peers: 0.0,
        };
        assert_eq!((finding, finding.name()), (expected, "status-difference"));
        let limit = if rate > 100 { 10 } else { 60 };
        assert!(cluster.seconds <= limit, "{}", cluster.seconds);
    }
}

#[test]
fn where_it_is_not_enforced_it_is_named() {
    let params = OutlierParams {
        enforcing: Enforcing {
            status_difference: Percent::NONE,
            ..Enforcing::default()
        },
        ..params()
    };
    let mut cluster = Cluster::new(params, 5, 8);
    let mut events = Vec::new();
    for _ in 0..10 {
        events = cluster.second(100, 5, first_is_wrong);
    }
    let [
        Event::Spared {
            id: 0,
            finding,
            why,
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((finding.number(), why), (5, Spared::NotEnforced));
}

#[test]
fn it_can_be_turned_off() {
    let params = OutlierParams {
        status_difference_threshold: 0,
        ..params()
    };
    let mut cluster = Cluster::new(params, 5, 9);
    for _ in 0..30 {
        assert_eq!(cluster.second(100, 5, first_is_wrong), []);
    }
}

/// Errors of clients affect all endpoints equally: at any rates, and however they change with time,
/// endpoints that come and go included, none is found.
#[test]
fn clients_cannot_trip_it() {
    let phase = (1_u32..2000, 0_u32..=100, 2_usize..=12);
    let strategy = (any::<u64>(), proptest::collection::vec(phase, 1..40));
    check(88, &strategy, |(seed, phases)| {
        let mut cluster = Cluster::new(params(), 12, seed);
        for (requests, percent, n) in phases {
            cluster.show(n);
            for _ in 0..3 {
                let events = cluster.second(requests, n, |_, rng| {
                    let wrong = rng.below(100) < percent;
                    Sample::of_status(if wrong {
                        400 + rng.below(30) as u16
                    } else {
                        200
                    })
                });
                assert_eq!(events, []);
            }
        }
    });
}

/// One that joins in the middle of a client's burst of errors is compared from there on.
#[test]
fn different_times_are_not_compared() {
    let mut cluster = Cluster::new(params(), 10, 10);
    cluster.show(9);
    for _ in 0..8 {
        assert_eq!(cluster.second(1000, 9, |_, _| Sample::Success), []);
    }
    cluster.show(10);
    for _ in 0..12 {
        assert_eq!(cluster.second(1000, 10, |_, _| Sample::ClientError), []);
    }
}

/// After its return it is judged by new answers.
#[test]
fn a_replica_that_is_mended_stays() {
    let mut cluster = Cluster::new(params(), 10, 11);
    for second in 1..=10 {
        let events = cluster.second(500, 10, first_is_wrong);
        assert_eq!(events.len(), usize::from(second == 10));
    }
    assert!(cluster.detector.probed(0, true, at(10_500)).is_some());
    for _ in 0..60 {
        assert_eq!(cluster.second(500, 10, |_, _| Sample::Success), []);
    }
}
