//! Loss, death, restarts, changes of the set, unequal servers: what must not break the policies that
//! talk.

use std::time::Duration;

use maglor_balance::{Endpoint, PolicySpec, Time, View, ViewParams};
use maglor_lab::des::{Antagonist, Change, Disturbance, Network, Outcome, Scenario};

use crate::support::{paper, requests, run, run_all};

const TS: f64 = 20.0;

/// The large system: M = 1000, N = 200.
fn large(policy: &str, rho: f64) -> Scenario {
    Scenario {
        servers: 200,
        rho,
        runs: 3,
        requests: requests(500_000),
        ..paper(policy, 1000)
    }
}

fn lossy(scenario: Scenario, loss: f64) -> Scenario {
    Scenario {
        network: Network {
            loss,
            ..scenario.network
        },
        ..scenario
    }
}

fn with(scenario: Scenario, changes: &[(u64, Change)]) -> Scenario {
    let disturb = |(ms, change): &(u64, Change)| Disturbance {
        at: Duration::from_millis(*ms),
        change: *change,
    };
    Scenario {
        disturbances: changes.iter().map(disturb).collect(),
        ..scenario
    }
}

fn assert_steady(outcome: &Outcome) {
    assert!(
        (outcome.drift.value - 1.0).abs() < 0.15,
        "{:?}",
        outcome.drift
    );
    assert_eq!(outcome.failed, 0);
}

#[test]
fn a_thousand_balancers_at_nine_tenths() {
    let outcome = run(&large("ledger(group=100)", 0.9));
    assert!(outcome.messages_per_request.value <= 3.1);
    assert!(outcome.mean_ms.value <= 1.35 * TS);
    assert!(outcome.p99_ms.value <= 5.8 * TS);
    assert_steady(&outcome);
}

#[test]
fn one_message_in_a_hundred_costs_little() {
    let base = large("ledger(group=40)", 0.75);
    let outcomes = run_all(&[base.clone(), lossy(base, 0.01)]);
    let [sound, lossy] = [&outcomes[0], &outcomes[1]];
    assert!(
        lossy.mean_ms.value <= 1.05 * sound.mean_ms.value,
        "{:?} {:?}",
        lossy.mean_ms,
        sound.mean_ms
    );
    assert!((0.015..0.025).contains(&lossy.fallback_share.value));
}

#[test]
fn half_of_the_messages_lost_is_no_worse_than_no_messages() {
    for policy in [
        "ledger(group=40)",
        "join-idle-queue",
        "probe",
        "a-lsq",
        "prequal",
    ] {
        let base = Scenario {
            requests: requests(100_000),
            ..paper(policy, 20)
        };
        let outcome = run(&lossy(base, 0.5));
        // Random is 80 ms; a decision that waits for a time-out pays for it.
        assert!(
            outcome.mean_ms.value < 80.0,
            "{policy}: {:?}",
            outcome.mean_ms
        );
        assert_steady(&outcome);
    }
}

/// The part of 200 servers whose ledger is the first one.
fn share_of_first_group(policy: &str) -> f64 {
    let spec: PolicySpec = policy.parse().unwrap();
    let endpoints: Vec<_> = (0..200)
        .map(|server| Endpoint::new(format!("s0-{server}")))
        .collect();
    let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
    let groups = spec.groups(&view).unwrap();
    groups.members(0).len() as f64 / 200.0
}

#[test]
fn with_one_ledger_in_five_dead_it_is_better_than_bounce() {
    let share = share_of_first_group("ledger(group=40)");
    for rho in [0.75, 0.9] {
        let dead = with(
            large("ledger(group=40)", rho),
            &[(0, Change::LedgerDies(0))],
        );
        let outcomes = run_all(&[dead, large("bounce(tries=2)", rho)]);
        assert!(outcomes[0].mean_ms.value < outcomes[1].mean_ms.value);
        let fallbacks = outcomes[0].fallback_share.value;
        assert!((fallbacks - share).abs() < 0.02, "{fallbacks} for {share}");
        assert_steady(&outcomes[0]);
    }
}

#[test]
fn a_ledger_that_forgets_everything_recovers() {
    let base = Scenario {
        requests: requests(100_000),
        ..paper("ledger(group=40)", 20)
    };
    // Ten times, 2 s apart, each after half a second of death.
    let restarts: Vec<(u64, Change)> = (1..=10)
        .flat_map(|i| {
            let at = 2000 * i;
            [
                (at - 500, Change::LedgerDies(0)),
                (at, Change::LedgerRestarts(0)),
            ]
        })
        .collect();
    let outcomes = run_all(&[base.clone(), with(base, &restarts)]);
    let cost = outcomes[1].mean_ms.value / outcomes[0].mean_ms.value;
    // Of each 2 s a quarter is bounced: a quarter of the way from 21 to 30 ms, and the time-outs.
    assert!(cost < 1.25, "{cost}");
    assert_steady(&outcomes[1]);
}

#[test]
fn servers_that_leave_and_return_lose_nothing() {
    for policy in [
        "lor(choices=2)",
        "bounce",
        "ledger",
        "join-idle-queue",
        "a-lsq",
    ] {
        let base = Scenario {
            requests: requests(100_000),
            rho: 0.6,
            ..paper(policy, 20)
        };
        // Every second another two of the forty are unavailable.
        let changes: Vec<(u64, Change)> = (0..20)
            .flat_map(|i| {
                let (at, a, b) = (u64::from(1000 * i), 2 * i % 40, (2 * i + 1) % 40);
                [
                    (at, Change::Leave(a)),
                    (at, Change::Leave(b)),
                    (at + 1000, Change::Return(a)),
                    (at + 1000, Change::Return(b)),
                ]
            })
            .collect();
        let outcomes = run_all(&[base.clone(), with(base, &changes)]);
        assert_steady(&outcomes[1]);
        let cost = outcomes[1].mean_ms.value / outcomes[0].mean_ms.value;
        assert!(cost < 1.2, "{policy}: {cost}");
    }
}

#[test]
fn unequal_servers_are_used_as_well_as_by_a_central_queue() {
    let antagonist = Some(Antagonist {
        one_in: 5,
        factor: 0.5,
        lasts: Duration::from_secs(1),
    });
    for (speeds, antagonist) in [
        (vec![1.0, 2.0], None),
        (vec![1.0], antagonist),
        (vec![1.0, 2.0], antagonist),
    ] {
        let of = |policy: &str, balancers| Scenario {
            speeds: speeds.clone(),
            antagonist,
            ..paper(policy, balancers)
        };
        let scenarios = [of("ledger(group=40)", 100), of("lor(choices=all)", 1)];
        let outcomes = run_all(&scenarios);
        let (ledger, central) = (outcomes[0].mean_ms.value, outcomes[1].mean_ms.value);
        assert!(ledger <= 1.1 * central, "{ledger} {central}");
        assert_steady(&outcomes[0]);
    }
}
