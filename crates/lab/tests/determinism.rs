//! The same seed produces the same numbers, on any number of threads; another seed produces others.

use std::num::NonZeroUsize;
use std::time::Duration;

use maglor_lab::des::{Arrivals, Discipline, Network, Scenario, Service, simulate_all};

use crate::support::paper;

/// Scenarios that reach everything that chance decides.
fn scenarios() -> Vec<Scenario> {
    let policies = [
        "lor(choices=2)",
        "peak-ewma",
        "a-lsq",
        "bounce",
        "ledger(group=10)",
        "join-idle-queue",
        "prequal",
        "probe",
        "subset(size=10)",
    ];
    policies
        .iter()
        .enumerate()
        .map(|(i, policy)| Scenario {
            requests: 3000,
            runs: 5,
            arrivals: [
                Arrivals::Poisson,
                Arrivals::Lognormal { cv: 2.0 },
                Arrivals::SharedLognormal { cv: 2.0 },
            ][i % 3],
            service: Service::Lognormal { cv: 2.0 },
            discipline: [Discipline::Fifo, Discipline::ProcessorSharing][i % 2],
            network: Network {
                delay: Duration::from_micros(400),
                loss: 0.02,
                report_loss: 0.0,
            },
            ..paper(policy, 7)
        })
        .collect()
}

#[test]
fn threads_change_nothing() {
    let scenarios = scenarios();
    let on = |threads| simulate_all(&scenarios, NonZeroUsize::new(threads).unwrap(), &|_, _| {});
    let one = on(1).unwrap();
    for threads in [2, 3, 8] {
        assert_eq!(on(threads).unwrap(), one, "{threads} threads");
    }
}

#[test]
fn seeds_change_everything() {
    let base = &scenarios()[0];
    let other = Scenario {
        seed: base.seed + 1,
        ..base.clone()
    };
    let (a, again, b) = (base.simulate(), base.simulate(), other.simulate());
    assert_eq!(a, again);
    assert_ne!(a.unwrap().mean_ms, b.unwrap().mean_ms);
}

#[test]
fn policies_see_the_same_requests() {
    // With one server there is nothing to choose: all policies give the very same latencies.
    let of = |policy: &str| Scenario {
        servers: 1,
        requests: 5000,
        ..paper(policy, 3)
    };
    let (a, b) = (of("random").simulate(), of("lor(choices=2)").simulate());
    assert_eq!(a.unwrap().mean_ms, b.unwrap().mean_ms);
}

#[test]
fn progress_is_reported_to_the_end() {
    let last = std::sync::Mutex::new((0, 0));
    let report = |done: usize, all: usize| {
        let mut last = last.lock().unwrap();
        last.0 = done.max(last.0);
        last.1 = all;
    };
    simulate_all(&scenarios()[..2], NonZeroUsize::new(2).unwrap(), &report).unwrap();
    assert_eq!(*last.lock().unwrap(), (10, 10));
}
