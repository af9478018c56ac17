//! `circuit_breaker`, `concurrency_limit`, `rate_limit`, `delay` and `slow_start`: admitted requests, and the time of
//! their admission.

use std::time::Duration;

use maglor_balance::guard::breaker::{Breaker, Entry, Phase};
use maglor_balance::guard::concurrency::ConcurrencyLimit;
use maglor_balance::guard::rate::{KeyedBuckets, TokenBucket};
use maglor_balance::{Rng, Time};

use crate::{at, cluster, config};

/// A circuit breaker, and what its requests came to.
struct Circuit(Breaker, Rng);

impl Circuit {
    fn new(settings: &str) -> Self {
        let cluster = cluster(&format!("circuit_breaker: {{{settings}}}"));
        Self(Breaker::new(cluster.circuit_breaker.unwrap()), Rng::seed(1))
    }

    /// So many requests with this result; how long the circuit is open if it opens.
    fn requests(&mut self, count: u32, success: bool, millis: u64) -> Option<Duration> {
        let mut open = None;
        for _ in 0..count {
            if let (Entry::Passed(pass), _) = self.0.enter(at(millis)) {
                let changed = self.0.record(pass, success, at(millis), &mut self.1);
                open = changed.map(|change| change.open_for).or(open);
            }
        }
        open
    }

    fn phase(&self) -> Phase {
        self.0.phase()
    }
}

#[test]
fn circuits_open_at_the_configured_failures() {
    for (settings, phase) in [
        ("consecutive_failures: 2", Phase::Open),
        ("consecutive_failures: 3", Phase::Closed),
    ] {
        let mut circuit = Circuit::new(settings);
        circuit.requests(2, false, 0);
        assert_eq!(circuit.phase(), phase, "{settings}");
    }
    // Five of ten fail, in two stretches of 1.5 s.
    let percent = "consecutive_failures: 0, minimum_requests: 10";
    for (settings, phase) in [
        ("failure_percent: 40", Phase::Open),
        ("failure_percent: 60", Phase::Closed),
        ("failure_percent: 40, interval: 1s", Phase::Closed),
    ] {
        let mut circuit = Circuit::new(&format!("{percent}, {settings}"));
        circuit.requests(5, true, 0);
        circuit.requests(5, false, 1500);
        assert_eq!(circuit.phase(), phase, "{settings}");
    }
    let mut circuit =
        Circuit::new("consecutive_failures: 0, failure_percent: 40, minimum_requests: 11");
    circuit.requests(5, true, 0);
    circuit.requests(5, false, 0);
    assert_eq!(circuit.phase(), Phase::Closed, "too few requests");
}

#[test]
fn circuits_are_open_for_the_configured_time_and_close_after_enough_probes() {
    let seconds = Duration::from_secs;
    let one = "consecutive_failures: 1";
    let mut circuit = Circuit::new(&format!("{one}, base_open_time: 7s, max_open_time: 7s"));
    let open = circuit.requests(1, false, 0).unwrap();
    assert!(
        open > seconds(5) && open < seconds(9),
        "7 s with some jitter: {open:?}"
    );
    // Each failed probe makes it longer, up to the longest.
    let longest = |max: &str| {
        let mut circuit = Circuit::new(&format!("{one}, max_open_time: {max}"));
        let open = (0..20).filter_map(|round| circuit.requests(1, false, round * 60_000));
        open.max().unwrap()
    };
    assert!(longest("2s") < seconds(4) && longest("30s") > seconds(4));
    for (settings, passed) in [("half_open_requests: 1", 1), ("half_open_requests: 4", 4)] {
        let mut circuit = Circuit::new(&format!("{one}, {settings}"));
        circuit.requests(1, false, 0);
        let entries: Vec<_> = (0..9).map(|_| circuit.0.enter(at(60_000)).0).collect();
        let probes = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Passed(_)));
        assert_eq!(probes.count(), passed, "{settings}");
    }
    for (settings, phase) in [
        ("success_threshold: 2", Phase::Closed),
        ("success_threshold: 3", Phase::HalfOpen),
    ] {
        let mut circuit = Circuit::new(&format!("{one}, {settings}"));
        circuit.requests(1, false, 0);
        circuit.requests(2, true, 60_000);
        assert_eq!(circuit.phase(), phase, "{settings}");
    }
}

/// The limit after each window of 100 ms, of ten requests of such a latency in milliseconds.
fn limits(settings: &str, latencies: &[u64]) -> Vec<u32> {
    let cluster = cluster(&format!("concurrency_limit: {{{settings}}}"));
    let limit = ConcurrencyLimit::new(cluster.concurrency_limit.unwrap());
    let mut rng = Rng::seed(1);
    let mut limits = vec![limit.limit()];
    for (window, latency) in (1..).zip(latencies) {
        let now = at(window * 100);
        for _ in 0..10 {
            let latency = Duration::from_millis(*latency);
            let _ = limit.sample(latency, limit.limit(), now, &mut rng);
        }
        limits.push(limit.limit());
    }
    limits
}

#[test]
fn a_concurrency_limit_begins_and_ends_where_it_is_configured() {
    assert_eq!(limits("initial_limit: 7", &[]), [7]);
    let fast = [10; 100];
    assert!(*limits("", &fast).last().unwrap() > 25);
    let most = limits("max_limit: 25, initial_limit: 20", &fast);
    assert_eq!(most.iter().max(), Some(&25));
    // A server that becomes slower and slower.
    let slow: Vec<_> = (0..100).map(|window| 10 + window * window).collect();
    let least = |settings: &str| *limits(settings, &slow).iter().min().unwrap();
    let (usual, raised) = (least(""), least("min_limit: 15"));
    assert!(usual < 15 && raised == 15, "{usual}, {raised}");
}

/// A fifth of the windows is slow, so that the limit is halved for each measurement of the latency without load.
#[test]
fn a_concurrency_limit_measures_the_latency_without_load_as_often_as_configured() {
    let latencies: Vec<_> = (0..600)
        .map(|window| if window % 5 == 0 { 40 } else { 10 })
        .collect();
    let halved = |settings: &str| {
        let limits = limits(settings, &latencies);
        let halves = limits.windows(2).filter(|two| two[1] * 10 <= two[0] * 6);
        halves.count()
    };
    let (often, rarely) = (
        halved("min_rtt_interval: 1s"),
        halved("min_rtt_interval: 1h"),
    );
    assert!(often > 2 * rarely, "{often}, {rarely}");
}

#[test]
fn a_concurrency_limit_adapts_as_configured() {
    let fast = [10; 10];
    assert_ne!(limits("", &fast)[10], 20);
    // Ten requests a window: too few, or not yet time.
    assert_eq!(limits("minimum_samples: 1000", &fast), [20; 11]);
    let late = limits("sample_window: 1m", &fast);
    let changes = |list: &[u32]| list.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes(&late) <= 1, "{late:?}");
    // Half slower than without load: within 100 %, not within 0 %.
    let mut slower = vec![10; 3];
    slower.extend([15; 30]);
    let end = |settings: &str| *limits(settings, &slower).last().unwrap();
    let (patient, strict) = (end("buffer_percent: 100"), end("buffer_percent: 0"));
    assert!(patient > strict, "{patient}, {strict}");
}

#[test]
fn rates_have_a_burst_and_remember_so_many_keys() {
    let limit = |settings: &str| {
        let config = config(&format!("rate_limit: {{{settings}}}"), "", "");
        config.listeners[0].rate_limit.clone().unwrap()
    };
    for (settings, at_once) in [
        ("requests: 5, per: 1h", 5),
        ("requests: 5, per: 1h, burst: 2", 2),
        ("requests: 5, per: 1h, burst: 9", 9),
    ] {
        let bucket = TokenBucket::new(limit(settings).params);
        let passed = (0..20).filter(|_| bucket.take(at(1)).allowed).count();
        assert_eq!(passed, at_once, "{settings}");
    }
    let keyed = "requests: 1, per: 1h, key: {header: x-user}";
    for (settings, most) in [(String::new(), 1000), (", max_keys: 64".to_owned(), 64)] {
        let limit = limit(&format!("{keyed}{settings}"));
        let buckets = KeyedBuckets::new(limit.params, limit.max_keys, &mut Rng::seed(1));
        for key in 0..1000 {
            assert!(buckets.take(key, at(1)).allowed);
        }
        let kept = buckets.len();
        assert!(kept <= most && kept * 4 > most, "{settings}: {kept}");
    }
}

#[test]
fn a_delay_has_its_jitter() {
    let delays = |settings: &str| -> Vec<_> {
        let distance = cluster(&format!("delay: {{{settings}}}")).delay.unwrap();
        let mut rng = Rng::seed(1);
        (0..100).map(|_| distance.draw(&mut rng)).collect()
    };
    let millis = Duration::from_millis;
    assert_eq!(delays("fixed: 10ms"), [millis(10); 100]);
    let spread = delays("fixed: 10ms, jitter: 20ms");
    let range = millis(10)..=millis(30);
    assert!(
        spread.iter().all(|delay| range.contains(delay)),
        "{spread:?}"
    );
    assert!(spread.iter().any(|delay| *delay > millis(25)), "{spread:?}");
}

#[test]
fn an_endpoint_that_joins_begins_with_the_configured_part() {
    let factor = |settings: &str, seconds: u64| {
        let cluster = cluster(&format!("slow_start: {{window: 100s, {settings}}}"));
        let slow_start = cluster.view.slow_start.clone().unwrap();
        slow_start.factor(Time::ZERO, at(seconds * 1000))
    };
    assert!((factor("min_weight_percent: 30", 0) - 0.3).abs() < 1e-9);
    assert!((factor("min_weight_percent: 10", 50) - 0.5).abs() < 1e-9);
    // Faster at first.
    assert!(
        factor("aggression: 2", 25) > 0.49,
        "the square root of a quarter"
    );
    assert!((factor("aggression: 1", 25) - 0.25).abs() < 1e-9);
    assert!((factor("min_weight_percent: 10", 100) - 1.0).abs() < 1e-9);
}
