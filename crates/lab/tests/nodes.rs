//! Calls that go local first on three nodes: shares are those of `lor`, latency is the ledger's.

use maglor_lab::des::{Nodes, Outcome, Scenario};

use crate::support::{paper, requests, run, run_all};

const NODES: usize = 3;
/// On each node.
const SERVERS: u32 = 13;

/// Two thirds of the calls come from the first node. Half of these have to leave it: with no slack each server
/// gets as much as any other.
fn local_first(policy: &str, rho: f64) -> Scenario {
    Scenario {
        servers: NODES as u32 * SERVERS,
        rho,
        nodes: Some(Nodes {
            callers: vec![4, 1, 1],
            slack: 0.0,
        }),
        runs: 4,
        requests: requests(150_000),
        ..paper(policy, 18)
    }
}

/// The expected destinations of calls from each node.
const WANTED: [[f64; NODES]; NODES] = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

/// Shares to four standard deviations of this many independent draws.
#[track_caller]
fn judge(what: &str, outcome: &Outcome) {
    for (counts, wanted) in outcome.attempts_by_node.iter().zip(WANTED) {
        let all = counts.iter().sum::<u64>() as f64;
        for (count, wanted) in counts.iter().zip(wanted) {
            let (share, noise) = (
                *count as f64 / all,
                4.0 * (wanted * (1.0 - wanted) / all).sqrt(),
            );
            assert!(
                (share - wanted).abs() <= noise,
                "{what}: {counts:?}, {wanted} to {noise}"
            );
        }
    }
}

#[test]
fn shares_are_those_of_local_first_at_every_load() {
    let policies = [
        "random",
        "round-robin",
        "lor(choices=2)",
        "lor(choices=all)",
        "bounce(tries=3)",
        "probe(choices=2)",
        "ledger(group=8)",
        "ledger(group=40)",
        "ledger(group=40,fallback=lor)",
    ];
    let mut scenarios = Vec::new();
    for policy in policies {
        for rho in [0.1, 0.5, 0.9] {
            scenarios.push(local_first(policy, rho));
        }
    }
    for (scenario, outcome) in scenarios.iter().zip(run_all(&scenarios)) {
        judge(
            &format!("{} at {}", scenario.policy, scenario.rho),
            &outcome,
        );
    }
}

/// The servers of a node get a third of a Poisson stream, and are a system of their own.
#[test]
fn latency_is_that_of_a_ledger_of_the_nodes_servers() {
    for rho in [0.5, 0.75, 0.9] {
        let alone = Scenario {
            servers: SERVERS,
            nodes: None,
            ..local_first("ledger(group=40)", rho)
        };
        let outcomes = run_all(&[
            local_first("ledger(group=40)", rho),
            alone,
            local_first("lor(choices=2)", rho),
        ]);
        let [ledger, alone, lor] = [0, 1, 2].map(|at: usize| outcomes[at].mean_ms);
        assert!(
            ledger.agrees_with(alone.value, 0.02),
            "{rho}: {ledger:?} {alone:?}"
        );
        assert!(
            ledger.value + ledger.half_width < lor.value - lor.half_width,
            "{rho}: {ledger:?} {lor:?}"
        );
        assert!(outcomes[0].fallback_share.value < 0.001);
    }
}

#[test]
fn what_fits_stays() {
    let even = Scenario {
        nodes: Some(Nodes::even(3)),
        ..local_first("ledger(group=40)", 0.5)
    };
    let counts = run(&even).attempts_by_node;
    for (from, counts) in counts.iter().enumerate() {
        for (to, count) in counts.iter().enumerate() {
            assert_eq!(*count > 0, from == to, "{counts:?}");
        }
    }
    // No calls come from two of four nodes, and the slack leaves the other two as much as they can take.
    let slack = Scenario {
        servers: 40,
        nodes: Some(Nodes {
            callers: vec![1, 1, 0, 0],
            slack: 0.2,
        }),
        ..local_first("ledger(group=40)", 0.5)
    };
    let counts = run(&slack).attempts_by_node;
    let share = counts[0][0] as f64 / counts[0].iter().sum::<u64>() as f64;
    assert!(
        (share - 0.6).abs() < 0.02 && counts[0][1] == 0,
        "{counts:?}"
    );
    assert_eq!(counts[2], [0; 4]);
}

/// Results are unchanged.
#[test]
fn golden() {
    let small = |policy: &str| Scenario {
        runs: 2,
        requests: 2000,
        ..local_first(policy, 0.75)
    };
    let scenarios = [small("lor(choices=2)"), small("ledger(group=40)")];
    let outcomes = run_all(&scenarios);
    let counts = |at: usize| outcomes[at].attempts_by_node.clone();
    assert_eq!(counts(0), [[648, 317, 325], [0, 304, 0], [0, 0, 350]]);
    assert_eq!(counts(1), [[650, 316, 353], [0, 306, 0], [0, 0, 344]]);
}
