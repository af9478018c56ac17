//! `outlier_ejection`: which endpoints are ejected, when, and for how long.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Rng;
use maglor_balance::Time;
use maglor_balance::guard::outlier::{Detector, Event, Monitor, Sample, Watched};

use crate::{at, cluster};

/// A detector of this many endpoints.
struct Endpoints {
    detector: Detector,
    monitors: Vec<Arc<Monitor>>,
    rng: Rng,
}

impl Endpoints {
    fn new(settings: &str, n: usize) -> Self {
        let cluster = cluster(&format!("outlier_ejection: {{{settings}}}"));
        let params = cluster.outlier.clone().unwrap();
        let monitors: Vec<_> = (0..n).map(|_| Arc::new(Monitor::new())).collect();
        let mut detector = Detector::new(params, Time::ZERO);
        let watched = (0..).zip(&monitors).map(|(id, monitor)| Watched {
            id,
            monitor: Arc::clone(monitor),
        });
        assert_eq!(detector.set_endpoints(watched, Time::ZERO), []);
        let rng = Rng::seed(1);
        Self {
            detector,
            monitors,
            rng,
        }
    }

    fn record(&mut self, id: usize, sample: Sample, count: usize, millis: u64) -> Vec<Event> {
        let (mut events, params) = (Vec::new(), self.detector.params().clone());
        for _ in 0..count {
            let found = self.monitors[id].record(sample, &params);
            events.extend(found.and_then(|finding| {
                let now = at(millis);
                self.detector.found(id as u64, finding, now, &mut self.rng)
            }));
        }
        events
    }

    fn tick(&mut self, millis: u64) -> Vec<Event> {
        self.detector.tick(at(millis), &mut self.rng)
    }

    /// Endpoints that are ejected.
    fn out(&self) -> usize {
        self.detector.ejected()
    }
}

/// Streaks, each with the sample that it counts.
const STREAKS: [(&str, Sample); 3] = [
    ("consecutive_5xx", Sample::ServerError),
    ("consecutive_gateway_failure", Sample::GatewayError),
    ("consecutive_local_origin_failure", Sample::LocalFailure),
];

/// The settings of a streak alone: the others are off.
fn only(field: &str, streak: u32) -> String {
    let settings = STREAKS.map(|(other, _)| match other == field {
        true => format!("{other}: {streak}"),
        false => format!("{other}: 0"),
    });
    settings.join(", ")
}

/// No streak finds anything: only rates are compared.
fn by_rates(settings: &str) -> Endpoints {
    Endpoints::new(
        format!("{}, {settings}", only("", 0)).trim_end_matches(", "),
        10,
    )
}

#[test]
fn failures_in_a_row_eject_after_the_configured_number() {
    for (field, sample) in STREAKS {
        let mut endpoints = Endpoints::new(&only(field, 2), 4);
        endpoints.record(0, sample, 1, 0);
        assert_eq!(endpoints.out(), 0, "{field}");
        endpoints.record(0, sample, 1, 0);
        assert_eq!(endpoints.out(), 1, "{field}");
        let mut off = Endpoints::new(&only(field, 0), 4);
        off.record(0, sample, 50, 0);
        assert_eq!(off.out(), 0, "{field}");
    }
}

#[test]
fn streaks_that_are_not_enforced_eject_nothing() {
    let enforcing = [
        "enforcing_consecutive_5xx",
        "enforcing_consecutive_gateway_failure",
        "enforcing_consecutive_local_origin_failure",
    ];
    for ((field, sample), enforcing) in STREAKS.into_iter().zip(enforcing) {
        for (percent, out) in [(100, 1), (0, 0)] {
            let settings = format!("{}, {enforcing}: {percent}", only(field, 3));
            let mut endpoints = Endpoints::new(&settings, 4);
            endpoints.record(0, sample, 3, 0);
            assert_eq!(endpoints.out(), out, "{settings}");
        }
    }
}

#[test]
fn without_outlier_ejection_there_is_no_detector() {
    assert!(cluster("outlier_ejection: {}").outlier.is_some());
    assert!(
        cluster("outlier_ejection: {enabled: false}")
            .outlier
            .is_none()
    );
}

#[test]
fn one_endpoint_may_be_out_where_the_share_is_less_than_one() {
    for (settings, out) in [
        ("max_ejection_percent: 10", 0),
        ("max_ejection_percent: 10, always_eject_one_host: true", 1),
        ("max_ejection_percent: 100", 3),
    ] {
        let mut endpoints = Endpoints::new(settings, 4);
        for id in 0..3 {
            endpoints.record(id, Sample::ServerError, 5, 0);
        }
        assert_eq!(endpoints.out(), out, "{settings}");
    }
}

/// The times of this many ejections, one after another.
fn times(settings: &str, count: u64) -> Vec<Duration> {
    let mut endpoints = Endpoints::new(settings, 4);
    let mut times = Vec::new();
    for round in 0..count {
        for event in endpoints.record(0, Sample::ServerError, 5, round) {
            if let Event::Ejected { time, .. } = event {
                times.push(time);
            }
        }
        let back = endpoints.detector.probed(0, true, at(round));
        assert!(back.is_some(), "{settings}: it returns");
    }
    times
}

#[test]
fn ejection_times_grow_up_to_the_longest_and_are_spread() {
    let seconds =
        |list: &[u64]| -> Vec<_> { list.iter().copied().map(Duration::from_secs).collect() };
    let base = "base_ejection_time: 10s";
    assert_eq!(times(base, 3), seconds(&[10, 20, 30]));
    let longest = format!("{base}, max_ejection_time: 15s");
    assert_eq!(times(&longest, 3), seconds(&[10, 15, 15]));
    let spread = times(&format!("{base}, max_ejection_time_jitter: 5s"), 1);
    let range = Duration::from_secs(10)..=Duration::from_secs(15);
    assert!(
        range.contains(&spread[0]) && spread != seconds(&[10]),
        "{spread:?}"
    );
}

#[test]
fn probes_come_at_their_interval() {
    let mut endpoints = Endpoints::new(
        "base_ejection_time: 1s, probe_interval: 3s, interval: 1h",
        4,
    );
    endpoints.record(0, Sample::LocalFailure, 5, 0);
    let probe = [Event::Probe { id: 0 }];
    let mut now = 0;
    let mut next = |endpoints: &mut Endpoints| loop {
        now += 100;
        let events = endpoints.tick(now);
        if events == probe {
            assert_eq!(endpoints.detector.probed(0, false, at(now)), None);
            return now;
        }
        assert!(events.is_empty() && now < 60_000, "{events:?} at {now}");
    };
    let first = next(&mut endpoints);
    let second = next(&mut endpoints);
    assert!(
        (3000..=3200).contains(&(second - first)),
        "{first}, {second}"
    );
}

/// Ejected when one of ten endpoints fails a fifth of 200 requests, and the others next to none.
fn out_by_success_rate(settings: &str, millis: u64) -> usize {
    let mut endpoints = by_rates(settings);
    for id in 0..10 {
        let failures = if id == 9 { 40 } else { 1 };
        endpoints.record(id, Sample::ServerError, failures, 0);
        endpoints.record(id, Sample::Success, 200 - failures, 0);
    }
    endpoints.tick(millis);
    endpoints.out()
}

#[test]
fn success_rates_are_compared_as_configured() {
    for (settings, millis, out) in [
        ("", 9_999, 0),
        ("", 10_000, 1),
        ("interval: 2s", 1_999, 0),
        ("interval: 2s", 2_000, 1),
        ("enforcing_success_rate: 0", 10_000, 0),
        ("success_rate_minimum_hosts: 10", 10_000, 1),
        ("success_rate_minimum_hosts: 11", 10_000, 0),
        ("success_rate_request_volume: 200", 10_000, 1),
        ("success_rate_request_volume: 201", 10_000, 0),
        ("success_rate_stdev_factor: 100000", 10_000, 0),
    ] {
        assert_eq!(
            out_by_success_rate(settings, millis),
            out,
            "{settings} {millis}"
        );
    }
}

#[test]
fn failure_percentages_are_compared_as_configured() {
    for (settings, out) in [
        ("", 0),
        ("enforcing_failure_percentage: 100", 1),
        (
            "enforcing_failure_percentage: 100, failure_percentage_threshold: 95",
            0,
        ),
        (
            "enforcing_failure_percentage: 100, failure_percentage_minimum_hosts: 10",
            1,
        ),
        (
            "enforcing_failure_percentage: 100, failure_percentage_minimum_hosts: 11",
            0,
        ),
        (
            "enforcing_failure_percentage: 100, failure_percentage_request_volume: 200",
            1,
        ),
        (
            "enforcing_failure_percentage: 100, failure_percentage_request_volume: 201",
            0,
        ),
    ] {
        let alone = "success_rate_minimum_hosts: 1000, status_difference_threshold: 0";
        let mut endpoints = by_rates(format!("{alone}, {settings}").trim_end_matches(", "));
        for id in 0..10 {
            let failures = if id == 9 { 180 } else { 1 };
            endpoints.record(id, Sample::ServerError, failures, 0);
            endpoints.record(id, Sample::Success, 200 - failures, 0);
        }
        endpoints.tick(10_000);
        assert_eq!(endpoints.out(), out, "{settings}");
    }
}

#[test]
fn statuses_are_compared_as_configured() {
    for (settings, out) in [
        ("", 1),
        ("status_difference_threshold: 0", 0),
        ("enforcing_status_difference: 0", 0),
    ] {
        let mut endpoints = by_rates(settings.trim_end_matches(", "));
        for second in 1..60 {
            for id in 0..10 {
                let sample = Sample::of_status(if id == 9 { 404 } else { 200 });
                endpoints.record(id, sample, 10, second * 1000);
            }
            endpoints.tick(second * 1000);
        }
        assert_eq!(endpoints.out(), out, "{settings}");
    }
}
