//! Outlier ejection: the guard's invariants always hold, and ejected endpoints return.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::Percent;
use maglor_balance::guard::outlier::{
    Detector, EjectionState, Enforcing, Event, Finding, Monitor, OutlierParams, Sample, Spared,
    Watched,
};
use maglor_balance::{Rng, Time};
use proptest::prelude::*;

use crate::at;
use crate::support::check;

/// A detector of endpoints 0..n with their monitors.
struct Cluster {
    detector: Detector,
    monitors: Vec<Arc<Monitor>>,
    rng: Rng,
}

impl Cluster {
    fn new(params: OutlierParams, n: usize) -> Self {
        let mut cluster = Self {
            detector: Detector::new(params, Time::ZERO),
            monitors: (0..n).map(|_| Arc::new(Monitor::new())).collect(),
            rng: Rng::seed(1),
        };
        let all = cluster.watched(0..n);
        assert_eq!(cluster.detector.set_endpoints(all, Time::ZERO), []);
        cluster
    }

    fn watched(&self, ids: impl IntoIterator<Item = usize>) -> Vec<Watched> {
        let watched = |id: usize| Watched {
            id: id as u64,
            monitor: Arc::clone(&self.monitors[id]),
        };
        ids.into_iter().map(watched).collect()
    }

    /// Records samples as a worker does, and passes findings on.
    fn record(&mut self, id: usize, sample: Sample, count: usize, now: Time) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            let params = self.detector.params().clone();
            if let Some(finding) = self.monitors[id].record(sample, &params) {
                let event = self.detector.found(id as u64, finding, now, &mut self.rng);
                events.extend(event);
            }
        }
        events
    }

    fn tick(&mut self, now: Time) -> Vec<Event> {
        self.detector.tick(now, &mut self.rng)
    }
}

fn ids(events: &[Event], wanted: fn(&Event) -> Option<u64>) -> Vec<u64> {
    events.iter().filter_map(wanted).collect()
}

fn ejected(event: &Event) -> Option<u64> {
    match event {
        Event::Ejected { id, .. } => Some(*id),
        _ => None,
    }
}

fn probes(event: &Event) -> Option<u64> {
    match event {
        Event::Probe { id } => Some(*id),
        _ => None,
    }
}

#[test]
fn failures_in_a_row_eject_and_time_grows_and_shrinks() {
    let mut cluster = Cluster::new(OutlierParams::default(), 4);
    let mut now = at(0);
    for (round, seconds) in [(1, 30), (2, 60), (3, 90)] {
        let events = cluster.record(0, Sample::ServerError, 5, now);
        assert_eq!(
            events,
            [Event::Ejected {
                id: 0,
                finding: Finding::Consecutive5xx,
                time: Duration::from_secs(seconds),
                count: round,
            }]
        );
        assert_eq!(cluster.record(0, Sample::ServerError, 50, now), []);
        let end = now + Duration::from_secs(seconds);
        assert_eq!(ids(&cluster.tick(end), probes), [0]);
        let back = cluster.detector.probed(0, true, end);
        let after = Duration::from_secs(seconds);
        assert_eq!(back, Some(Event::Returned { id: 0, after }));
        now = end;
    }
    // An interval in service takes one off.
    for _ in 0..2 {
        now = now + Duration::from_secs(10);
        assert_eq!(cluster.tick(now), []);
    }
    let events = cluster.record(0, Sample::LocalFailure, 5, now);
    let [
        Event::Ejected {
            count: 2, finding, ..
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(finding.name(), "consecutive-local-origin-failure");
}

#[test]
fn the_guard_spares() {
    let mut cluster = Cluster::new(OutlierParams::default(), 5);
    let mut spared = Vec::new();
    for id in 0..5 {
        spared.extend(cluster.record(id, Sample::GatewayError, 5, at(0)));
    }
    assert_eq!(ids(&spared, ejected), [0, 1], "half of five, rounded down");
    let why = |event: &Event| match event {
        Event::Spared { id, why, .. } => {
            assert_eq!(*why, Spared::MaxEjectionPercent);
            Some(*id)
        }
        _ => None,
    };
    assert_eq!(ids(&spared, why), [2, 3, 4]);
    assert_eq!(cluster.detector.ejected(), 2);
    // When others leave, those whose time ends first return.
    let left = cluster.watched([0, 1, 4]);
    let events = cluster.detector.set_endpoints(left, at(1));
    let [Event::Returned { id, .. }] = events[..] else {
        panic!("{events:?}");
    };
    assert!(id < 2 && cluster.detector.ejected() == 1);
    // One alone stays.
    let left = cluster.watched([1 - id as usize]);
    assert_eq!(cluster.detector.set_endpoints(left, at(2)).len(), 1);
    assert_eq!(
        cluster
            .record(1 - id as usize, Sample::GatewayError, 5, at(3))
            .len(),
        1
    );
    assert_eq!(cluster.detector.ejected(), 0);
}

#[test]
fn rates_are_compared_once_an_interval() {
    let enforcing = Enforcing {
        failure_percentage: Percent::ALL,
        ..Enforcing::default()
    };
    let params = OutlierParams {
        consecutive_5xx: 0,
        consecutive_gateway_failure: 0,
        enforcing,
        ..OutlierParams::default()
    };
    let mut cluster = Cluster::new(params, 10);
    let traffic = |cluster: &mut Cluster, bad: usize| {
        for id in 0..10 {
            let failures = if id == 9 { bad } else { 1 };
            let _ = cluster.record(id, Sample::ServerError, failures, at(0));
            let _ = cluster.record(id, Sample::Success, 200 - failures, at(0));
        }
    };
    traffic(&mut cluster, 40);
    assert_eq!(cluster.tick(at(9_999)), [], "not yet");
    let events = cluster.tick(at(10_000));
    let [
        Event::Ejected {
            id: 9,
            finding: Finding::SuccessRate { rate, threshold },
            ..
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert!(rate == 80.0 && threshold > 80.0 && threshold < 99.0);
    let _ = cluster.detector.probed(9, true, at(10_001));
    // The next interval starts from nothing.
    assert_eq!(cluster.tick(at(20_000)), []);
}

#[test]
fn detectors_are_enforced_in_part() {
    let params = OutlierParams {
        enforcing: Enforcing {
            consecutive_5xx: Percent::whole(30),
            ..Enforcing::default()
        },
        ..OutlierParams::default()
    };
    let mut cluster = Cluster::new(params, 4);
    let mut count = 0;
    for _ in 0..4000 {
        let events = cluster.record(0, Sample::ServerError, 5, at(0));
        assert_eq!(events.len(), 1);
        count += ids(&events, ejected).len();
        let _ = cluster.detector.probed(0, true, at(0));
    }
    // 5 standard deviations of a binomial with n = 4000, p = 0.3.
    assert!(count.abs_diff(1200) < 145, "{count}");
}

/// Everything fails: half is ejected, and the first that recovers is found within a second, although
/// its time is not over.
#[test]
fn in_distress_ejections_do_not_last_their_time() {
    let params = OutlierParams {
        probe_interval: Duration::from_secs(1),
        // One that fails most often stays, as a sign that the others need not wait.
        status_difference_threshold: 0,
        ..OutlierParams::default()
    };
    let mut cluster = Cluster::new(params, 4);
    for id in 0..4 {
        let _ = cluster.record(id, Sample::LocalFailure, 5, at(0));
    }
    assert_eq!(cluster.detector.ejected(), 2);
    let (mut now, mut probed) = (at(0), Vec::new());
    while probed.is_empty() {
        now = cluster.detector.due();
        for id in 2..4 {
            let _ = cluster.record(id, Sample::LocalFailure, 1, now);
        }
        probed = ids(&cluster.tick(now), probes);
    }
    assert_eq!(probed, [0, 1]);
    assert!(now <= at(1000), "{now:?}");
    // 0 does not answer, 1 does.
    assert_eq!(cluster.detector.probed(0, false, now), None);
    assert!(cluster.detector.probed(1, true, now).is_some());
    // Now another one answers well: 0 has to wait.
    for second in 2..29 {
        let _ = cluster.record(1, Sample::Success, 1, at(second * 1000));
        let _ = cluster.record(2, Sample::Success, 1, at(second * 1000));
        let _ = cluster.record(2, Sample::LocalFailure, 4, at(second * 1000));
        assert_eq!(ids(&cluster.tick(at(second * 1000)), probes), []);
    }
    let _ = cluster.record(1, Sample::Success, 1, at(30_000));
    assert_eq!(ids(&cluster.tick(at(30_000)), probes), [0]);
    // A probe that fails is followed by another one a second later, one without result much later.
    assert_eq!(cluster.detector.probed(0, false, at(30_000)), None);
    assert_eq!(ids(&cluster.tick(at(30_999)), probes), []);
    assert_eq!(ids(&cluster.tick(at(31_000)), probes), [0]);
    assert_eq!(ids(&cluster.tick(at(60_999)), probes), []);
    assert_eq!(ids(&cluster.tick(at(61_000)), probes), [0]);
}

#[derive(Clone, Debug)]
enum Step {
    Fail(usize, u8),
    Probed(usize, bool),
    Reject(usize, u8),
    Resize(usize),
    Serve(usize, u8),
    Tick(u16),
}

#[test]
fn never_more_than_the_share_and_never_all() {
    let step = prop_oneof![
        3 => (any::<usize>(), 1_u8..8).prop_map(|(id, n)| Step::Fail(id, n)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(id, ok)| Step::Probed(id, ok)),
        1 => (any::<usize>(), 1_u8..100).prop_map(|(id, n)| Step::Reject(id, n)),
        1 => (0_usize..12).prop_map(Step::Resize),
        1 => (any::<usize>(), 1_u8..200).prop_map(|(id, n)| Step::Serve(id, n)),
        2 => (1_u16..15_000).prop_map(Step::Tick),
    ];
    let steps = proptest::collection::vec(step, 1..80);
    let strategy = (0_u8..=100, any::<bool>(), steps);
    check(86, &strategy, |(percent, always_eject_one_host, steps)| {
        let params = OutlierParams {
            max_ejection_percent: Percent::whole(percent),
            always_eject_one_host,
            success_rate_request_volume: 50,
            enforcing: Enforcing {
                failure_percentage: Percent::ALL,
                ..Enforcing::default()
            },
            ..OutlierParams::default()
        };
        let mut cluster = Cluster::new(params.clone(), 12);
        let (mut n, mut now, mut out) = (12, 0, [false; 12]);
        for step in steps {
            let events = match step {
                Step::Fail(id, count) => {
                    let (id, count) = (id % 12, usize::from(count));
                    cluster.record(id, Sample::GatewayError, count, at(now))
                }
                Step::Reject(id, count) => {
                    cluster.record(id % 12, Sample::ClientError, usize::from(count), at(now))
                }
                Step::Serve(id, count) => {
                    cluster.record(id % 12, Sample::Success, usize::from(count), at(now))
                }
                Step::Probed(id, ok) => {
                    let event = cluster.detector.probed(id as u64 % 12, ok, at(now));
                    event.into_iter().collect()
                }
                Step::Resize(to) => {
                    n = to;
                    out[n..].fill(false);
                    let left = cluster.watched(0..n);
                    cluster.detector.set_endpoints(left, at(now))
                }
                Step::Tick(millis) => {
                    now += u64::from(millis);
                    cluster.tick(at(now))
                }
            };
            for event in events {
                match event {
                    Event::Ejected { id, time, .. } => {
                        assert!(!std::mem::replace(&mut out[id as usize], true), "once");
                        assert!(time >= params.base_ejection_time);
                        assert!(time <= params.max_ejection_time);
                    }
                    Event::Returned { id, .. } => {
                        assert!(std::mem::replace(&mut out[id as usize], false), "once");
                    }
                    Event::Probe { id } => assert!(out[id as usize]),
                    Event::Spared { id, .. } => assert!(!out[id as usize]),
                }
            }
            let count = out.iter().filter(|out| **out).count();
            assert_eq!(cluster.detector.ejected(), count);
            assert!(count <= params.max_ejections(n), "{count} of {n}");
            assert!(count == 0 || count < n, "never all");
            for (id, out) in out[..n].iter().enumerate() {
                let ejection_state = cluster.detector.ejection_state(id as u64);
                let there = matches!(ejection_state, Some(EjectionState::Ejected { .. }));
                assert_eq!(there, *out);
            }
        }
    });
}

/// After any history, endpoints that respond again are all in use a second after the longest ejection time.
#[test]
fn all_come_back() {
    let strategy = (2_usize..10, any::<u64>());
    check(87, &strategy, |(n, seed)| {
        let mut cluster = Cluster::new(OutlierParams::default(), n);
        cluster.rng = Rng::seed(seed);
        let mut now = Time::ZERO;
        for _ in 0..200 {
            let id = cluster.rng.below(n as u32) as usize;
            let _ = cluster.record(id, Sample::ServerError, 5, now);
            now = now + Duration::from_millis(u64::from(cluster.rng.below(2000)));
            for id in ids(&cluster.tick(now), probes) {
                let ok = cluster.rng.below(2) == 0;
                let _ = cluster.detector.probed(id, ok, now);
            }
        }
        let end = now + Duration::from_secs(300 + 30 + 2);
        while cluster.detector.ejected() > 0 {
            assert!(now <= end, "{} still out", cluster.detector.ejected());
            now = now + Duration::from_millis(500);
            for id in ids(&cluster.tick(now), probes) {
                let _ = cluster.detector.probed(id, true, now);
            }
        }
    });
}
