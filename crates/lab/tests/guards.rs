//! Failures, and the guards of `maglor_balance` against them, in whole systems.

use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_lab::des::{Faults, Guards, Outcome, Scenario};

use crate::support::{paper, requests, run_all};

/// Four servers of forty fail at three requests in ten.
fn faulty(policy: &str, guards: Guards) -> Scenario {
    Scenario {
        rho: 0.6,
        faults: Some(Faults {
            servers: 4,
            share: 0.3,
            work: 1.0,
            status: Faults::STATUS,
        }),
        guards,
        requests: requests(150_000),
        runs: 4,
        ..paper(policy, 5)
    }
}

fn failed_share(outcome: &Outcome) -> f64 {
    outcome.failed as f64 / outcome.simulated as f64
}

fn ejecting(guards: Guards) -> Guards {
    Guards {
        ejection: Some(OutlierParams {
            // Of 30 % failures hardly ever five come in a row.
            consecutive_5xx: 3,
            ..OutlierParams::default()
        }),
        ..guards
    }
}

#[test]
fn retries_hide_failures_at_little_cost() {
    let outcomes = run_all(&[
        faulty("lor(choices=2)", Guards::default()),
        faulty("lor(choices=2)", Guards::retrying(2)),
    ]);
    // A tenth of the servers fails at three in ten: 3 %.
    assert!((failed_share(&outcomes[0]) - 0.03).abs() < 0.004);
    // Twice in a row at 3 %, for the second try avoids the first server only: 0.1 %; and a third.
    assert!(
        failed_share(&outcomes[1]) < 0.0005,
        "{}",
        failed_share(&outcomes[1])
    );
    let retries = outcomes[1].retries_per_request.value;
    assert!((retries - 0.031).abs() < 0.004, "{retries}");
    assert!(outcomes[1].mean_ms.value < 1.1 * outcomes[0].mean_ms.value);
}

#[test]
fn collaborative_policies_are_retried_too() {
    for policy in ["bounce(tries=3)", "ledger(group=40)"] {
        let outcomes = run_all(&[faulty(policy, Guards::retrying(2))]);
        assert!(failed_share(&outcomes[0]) < 0.0005, "{policy}");
    }
}

#[test]
fn ejection_takes_bad_servers_out_and_the_guard_holds() {
    let outcomes = run_all(&[
        faulty("lor(choices=2)", ejecting(Guards::default())),
        Scenario {
            faults: Some(Faults {
                servers: 40,
                share: 1.0,
                work: 0.1,
                status: Faults::STATUS,
            }),
            ..faulty("lor(choices=2)", ejecting(Guards::default()))
        },
    ]);
    assert!(outcomes[0].ejections > 0);
    assert!(
        failed_share(&outcomes[0]) < 0.02,
        "{}",
        failed_share(&outcomes[0])
    );
    // Everything fails, all servers are still used: half of the servers at most are out.
    assert!(failed_share(&outcomes[1]) > 0.99);
    assert!(
        outcomes[1].ejections >= 5 * 20 * 4,
        "{}",
        outcomes[1].ejections
    );
}

#[test]
fn servers_that_fail_fast_attract_no_traffic_for_long() {
    // A server that fails immediately would always look idle, if errors did not hold their slots.
    let black_hole = |guards| Scenario {
        rho: 0.9,
        balancers: 1,
        faults: Some(Faults {
            servers: 1,
            share: 1.0,
            work: 0.0,
            status: Faults::STATUS,
        }),
        ..faulty("lor(choices=all)", guards)
    };
    let outcomes = run_all(&[
        black_hole(Guards::default()),
        black_hole(ejecting(Guards::retrying(2))),
    ]);
    let fair = 1.0 / 40.0;
    assert!(
        (0.5 * fair..1.5 * fair).contains(&failed_share(&outcomes[0])),
        "{}",
        failed_share(&outcomes[0])
    );
    assert!(
        failed_share(&outcomes[1]) < 0.01,
        "{}",
        failed_share(&outcomes[1])
    );
}

#[test]
fn the_budget_keeps_an_outage_from_becoming_a_storm() {
    let outage = Scenario {
        faults: Some(Faults {
            servers: 40,
            share: 1.0,
            work: 1.0,
            status: Faults::STATUS,
        }),
        ..faulty("lor(choices=2)", Guards::retrying(3))
    };
    let outcomes = run_all(&[outage]);
    let retries = outcomes[0].retries_per_request.value;
    // 20 % of the requests, and a floor of three a second for each of five balancers.
    assert!((0.15..0.25).contains(&retries), "{retries}");
}

#[test]
fn breakers_and_limits_turn_requests_away_at_once() {
    let outage = Scenario {
        faults: Some(Faults {
            servers: 40,
            share: 1.0,
            work: 1.0,
            status: Faults::STATUS,
        }),
        ..faulty(
            "lor(choices=2)",
            Guards {
                breaker: Some(BreakerParams::default()),
                ..Guards::default()
            },
        )
    };
    // A load that needs 24 concurrent requests with 15 slots.
    let limited = Scenario {
        faults: None,
        guards: Guards {
            max_requests: Some(3),
            ..Guards::default()
        },
        ..faulty("lor(choices=2)", Guards::default())
    };
    let outcomes = run_all(&[outage, limited]);
    assert!(failed_share(&outcomes[0]) > 0.99);
    let shed = failed_share(&outcomes[1]);
    assert!((0.3..0.6).contains(&shed), "{shed}");
    // Admitted requests wait less.
    assert!(outcomes[1].mean_ms.value < 30.0);
}
