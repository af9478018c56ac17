//! Algorithm 2 where demand changes: a burst of requests is answered at once, a burst of CPU alone is not, and memory
//! is requested by how it varies. `SEED` replays a run.
#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

mod support;

use std::time::Duration;

use maglor_balance::{Rng, Time};
use maglor_service_graph::advise::{Advice, Advisor, Params, ServiceUse, Snapshot};
use support::seed;

const PERIOD: Duration = Duration::from_secs(15);
/// The CPU limit of a replica.
const CORE: u64 = 1000;

/// A service of one replica, round by round.
struct Fixture {
    advisor: Advisor,
    round: u32,
}

impl Fixture {
    fn new() -> Self {
        Self {
            advisor: Advisor::new(Params::default()),
            round: 0,
        }
    }

    /// So many rounds with λ, CPU and memory of one replica.
    fn rounds(&mut self, count: u32, rps: f64, cpu: f64, memory: f64) -> Advice {
        self.of(1, count, rps, cpu, memory)
    }

    /// The same with several replicas, each with this usage.
    fn of(&mut self, replicas: u32, count: u32, rps: f64, cpu: f64, memory: f64) -> Advice {
        for _ in 0..count {
            let service = ServiceUse {
                name: "a".to_owned(),
                replicas,
                cpu_millis: CORE,
                memory_mib: 128,
                cpu_limit_millis: Some(CORE),
                cpu_used_millis: Some(cpu),
                memory_used_mib: Some(memory),
                rps: Some(rps),
                ..ServiceUse::default()
            };
            let snapshot = Snapshot {
                services: vec![service],
                ..Snapshot::default()
            };
            self.advisor
                .observe(Time::ZERO + PERIOD * self.round, &snapshot);
            self.round += 1;
        }
        self.advisor.advise().remove(0)
    }
}

fn replicas(advice: &Advice) -> u32 {
    advice.replicas.as_ref().unwrap().value
}

fn cpu(advice: &Advice) -> u64 {
    advice.cpu_millis.as_ref().unwrap().value
}

#[test]
fn a_burst_of_requests_is_answered_at_once() {
    let mut fixture = Fixture::new();
    assert_eq!(replicas(&fixture.rounds(100, 100.0, 400.0, 80.0)), 1);
    let burst = fixture.rounds(1, 200.0, 800.0, 80.0);
    assert_eq!(replicas(&burst), 2, "{burst:?}");
    // The requests of replicas follow the quantile: 400m for two, plus 15 %.
    assert!((230..=240).contains(&cpu(&burst)), "{burst:?}");
    let lasts = fixture.of(2, 3, 200.0, 400.0, 80.0);
    assert!((460..=475).contains(&cpu(&lasts)), "{lasts:?}");
}

/// The replicas of a short burst go as soon as it is over for as long as they have to stay.
#[test]
fn a_short_burst_leaves_with_patience() {
    let mut fixture = Fixture::new();
    fixture.rounds(100, 100.0, 400.0, 80.0);
    assert_eq!(replicas(&fixture.of(1, 1, 200.0, 800.0, 80.0)), 2);
    fixture.of(2, 7, 200.0, 400.0, 80.0);
    let patience = Params::default().scaling.band.patience;
    let rounds = u32::try_from(patience.as_secs() / PERIOD.as_secs()).unwrap();
    assert_eq!(replicas(&fixture.of(2, rounds, 100.0, 200.0, 80.0)), 2);
    assert_eq!(replicas(&fixture.of(2, 2, 100.0, 200.0, 80.0)), 1);
}

/// λ is known before CPU is measured again.
#[test]
fn requests_say_it_before_cpu_does() {
    let mut fixture = Fixture::new();
    fixture.rounds(102, 100.0, 400.0, 80.0);
    assert_eq!(replicas(&fixture.rounds(1, 170.0, 400.0, 80.0)), 1);
    assert_eq!(replicas(&fixture.rounds(1, 190.0, 400.0, 80.0)), 2);
}

/// The usage is limited by the capacity: λ determines the additional need, up to twice as much.
#[test]
fn what_is_busy_all_the_time_needs_more_than_it_uses() {
    let mut fixture = Fixture::new();
    fixture.of(4, 100, 400.0, 400.0, 80.0);
    // 4000m would be six replicas; 6400m are ten, and the number is at most doubled at once.
    let burst = fixture.of(4, 1, 1600.0, 1000.0, 80.0);
    assert_eq!(replicas(&burst), 8, "{burst:?}");
}

/// CPU that λ does not explain is not caused by requests; it counts when it lasts.
#[test]
fn a_burst_of_cpu_alone_is_not() {
    let mut fixture = Fixture::new();
    fixture.rounds(100, 100.0, 400.0, 80.0);
    assert_eq!(replicas(&fixture.rounds(1, 100.0, 900.0, 80.0)), 1);
    assert_eq!(replicas(&fixture.rounds(2, 100.0, 850.0, 80.0)), 1);
    assert_eq!(replicas(&fixture.rounds(1, 100.0, 850.0, 80.0)), 2);
}

/// An idle service uses CPU for itself; a few requests more are no reason for replicas.
#[test]
fn what_is_idle_does_not_grow_by_its_few_requests() {
    let mut fixture = Fixture::new();
    fixture.rounds(100, 0.1, 300.0, 80.0);
    for round in 0..40 {
        // Each request needs 2m, but 3000m for one request a second were observed while the service was idle.
        let advice = fixture.rounds(1, 20.0, 340.0 + f64::from(round % 2), 80.0);
        assert_eq!(replicas(&advice), 1, "{advice:?}");
    }
}

#[test]
fn memory_is_requested_by_how_it_varies() {
    let memory = |series: &dyn Fn(u32) -> f64| {
        let mut fixture = Fixture::new();
        let advice = (0..480).map(|round| fixture.rounds(1, 10.0, 50.0, series(round)));
        let last = advice.last().unwrap().memory_mib.unwrap();
        (last.value, last.reason)
    };
    // Peaks and medians are accurate to 2 %.
    let (steady, reason) = memory(&|_| 100.0);
    assert!((110..=113).contains(&steady), "{reason}");
    assert!(reason.contains("a margin of 10 %"), "{reason}");
    let (swings, reason) = memory(&|round| if round % 20 == 0 { 107.0 } else { 100.0 });
    assert!((125..=137).contains(&swings), "{reason}");
    let (jumps, reason) = memory(&|round| if round % 20 == 0 { 200.0 } else { 100.0 });
    assert!((260..=266).contains(&jumps), "{reason}");
    assert!(reason.contains("a margin of 30 %"), "{reason}");
}

/// For any memory usage, the next request is at least the peak.
#[test]
fn memory_is_never_below_its_peak() {
    let base = seed(31);
    for case in 0..50 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let (mut fixture, mut used, mut peak) = (Fixture::new(), 50.0 + 100.0 * rng.unit(), 0.0f64);
        let (drift, noise) = (0.004 * (rng.unit() - 0.3), 0.2 * rng.unit());
        for round in 0..480 {
            used *= 1.0 + drift;
            let seen = used * (1.0 + noise * (rng.unit() - 0.5));
            peak = peak.max(seen);
            let advice = fixture.rounds(1, 10.0, 50.0, seen);
            let advised = advice.memory_mib.unwrap();
            assert!(
                advised.value as f64 >= peak,
                "case {case}, round {round}: {peak}, {advised:?}"
            );
        }
    }
}

/// λ of seconds is noisy: the largest of many looks calls for nothing.
#[test]
fn noise_of_requests_between_two_measurements_is_none() {
    let mut rng = Rng::seed(seed(32));
    let mut fixture = Fixture::new();
    fixture.rounds(102, 100.0, 640.0, 80.0);
    for _ in 0..400 {
        let rps = 100.0 * (0.9 + 0.2 * rng.unit());
        let advice = fixture.rounds(1, rps, 640.0, 80.0);
        assert_eq!(replicas(&advice), 1, "{advice:?}");
    }
}
