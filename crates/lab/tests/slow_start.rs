//! Servers that return ramp up, regardless of the observations of the ledger's host.

use std::time::Duration;

use maglor_balance::SlowStart;
use maglor_lab::des::{Change, Discipline, Disturbance, Scenario};

use crate::support::{paper, run_all};

/// Servers; the last one returns.
const SERVERS: u32 = 8;
/// A run.
const SECONDS: f64 = 80.0;

/// Server 7 returns at half of the run; shares are of the second half, in which its ramp gets as far as
/// `part`. Nothing waits at servers, so that the policy alone decides: `rho` requests are in progress at each.
fn returning(policy: &str, rho: f64, part: f64) -> Scenario {
    let half = Duration::from_secs_f64(SECONDS / 2.0);
    let change = |at, change| Disturbance { at, change };
    let rate = rho * f64::from(SERVERS) / 0.02;
    Scenario {
        servers: SERVERS,
        rho,
        discipline: Discipline::Parallel,
        slow_start: Some(SlowStart {
            window: half.div_f64(part),
            ..SlowStart::default()
        }),
        disturbances: vec![
            change(Duration::ZERO, Change::Leave(SERVERS - 1)),
            change(half, Change::Return(SERVERS - 1)),
        ],
        runs: 4,
        requests: (rate * SECONDS) as u64,
        ..paper(policy, 20)
    }
}

/// The same, and the ledger's host restarts when the server has been back for a second: it sees all servers
/// for the first time.
fn with_a_young_host(mut scenario: Scenario) -> Scenario {
    scenario.disturbances.push(Disturbance {
        at: Duration::from_secs_f64(SECONDS / 2.0 + 1.0),
        change: Change::LedgerRestarts(0),
    });
    scenario
}

/// The share of a server while its ramp, from a tenth, gets as far as `part`, among seven that have been there
/// for as long before.
fn wanted(part: f64) -> f64 {
    let steps = (0..1000).map(|step| part * (f64::from(step) + 0.5) / 1000.0);
    let factor = |age: f64| age.clamp(0.1, 1.0);
    let weights = steps.map(|age| factor(age) / factor(part + age));
    let others = f64::from(SERVERS) - 1.0;
    weights
        .map(|weight| weight / (others + weight))
        .sum::<f64>()
        / 1000.0
}

#[test]
fn a_server_that_returns_has_its_share() {
    let mut scenarios = Vec::new();
    for part in [0.25, 1.0] {
        for rho in [0.1, 0.5, 3.0] {
            for policy in ["random", "lor(choices=2)", "bounce(tries=3)"] {
                scenarios.push((part, returning(policy, rho, part)));
            }
            let ledger = returning("ledger(group=40)", rho, part);
            scenarios.push((part, with_a_young_host(ledger.clone())));
            scenarios.push((part, ledger));
        }
    }
    judge(&scenarios);
}

/// A group is drawn by the weights of the balancer, independent of the ledger.
#[test]
fn nothing_is_corrected_twice() {
    let mut scenarios = Vec::new();
    for rho in [0.1, 3.0] {
        for group in [2, 4] {
            let mut scenario = returning(&format!("ledger(group={group})"), rho, 0.25);
            scenarios.push((0.25, scenario.clone()));
            // Each of its hosts sees all servers for the first time.
            let groups = scenario.policy.groups(&view()).unwrap().len() as u32;
            for at in 0..groups {
                scenario.disturbances.push(Disturbance {
                    at: Duration::from_secs_f64(SECONDS / 2.0 + 1.0),
                    change: Change::LedgerRestarts(at),
                });
            }
            scenarios.push((0.25, scenario));
        }
    }
    judge(&scenarios);
}

fn view() -> maglor_balance::View {
    let endpoint = |server| maglor_balance::Endpoint::new(format!("s0-{server}"));
    let endpoints: Vec<_> = (0..SERVERS).map(endpoint).collect();
    let params = maglor_balance::ViewParams::default();
    maglor_balance::View::build(endpoints, &params, maglor_balance::Time::ZERO)
}

fn judge(scenarios: &[(f64, Scenario)]) {
    let all: Vec<Scenario> = scenarios.iter().map(|(_, one)| one.clone()).collect();
    for ((part, scenario), outcome) in scenarios.iter().zip(run_all(&all)) {
        let share = outcome.shares[SERVERS as usize - 1];
        let wanted = wanted(*part);
        println!(
            "{} at {}, {} changes: {share:.4} for {wanted:.4}",
            scenario.policy,
            scenario.rho,
            scenario.disturbances.len()
        );
        let requests = scenario.requests as f64 / 2.0 * f64::from(scenario.runs);
        let noise = 4.0 * (wanted / requests).sqrt();
        assert!(
            (share - wanted).abs() < 0.2 * wanted + noise,
            "{} at {}: {share} for {wanted}",
            scenario.policy,
            scenario.rho
        );
    }
}

/// Without slow start it has its full share immediately.
#[test]
fn without_a_ramp_there_is_none() {
    let scenario = Scenario {
        slow_start: None,
        ..returning("ledger(group=40)", 0.5, 1.0)
    };
    let share = run_all(&[scenario])[0].shares[SERVERS as usize - 1];
    assert!((share - 1.0 / f64::from(SERVERS)).abs() < 0.01, "{share}");
}
