//! The governor of the decision rule with a simulated service: the simulator applies its changes.

use std::time::Duration;

use maglor_balance::Time;
use maglor_lab::des::{Network, Proxies, Scenario};
use maglor_service_graph::policy_choice::{
    Budget, Change, Choice, Governor, Limits, Reason, Situation, Telemetry,
};

use crate::support::{paper, run};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(60);
/// Under one load.
const PHASE: Duration = Duration::from_secs(30 * 60);
/// Requests that are simulated for a look, twice, in place of all of [`EVERY`].
const REQUESTS: u64 = 8000;

fn situation(balancers: u32, rho: f64) -> Situation {
    Situation {
        balancers,
        servers: 40,
        rho,
        service_time: Duration::from_millis(20),
        round_trip: Duration::from_micros(500),
        speed_variation: 0.0,
        proxies: 1,
        proxy_penalty: Duration::from_millis(1),
    }
}

/// Its mean latency under a choice, measured over this many requests.
fn simulated(situation: &Situation, choice: Choice, requests: u64, seed: u64) -> Duration {
    let proxies = Proxies {
        instances: situation.proxies,
        penalty: situation.proxy_penalty,
    };
    let outcome = run(&Scenario {
        servers: situation.servers,
        rho: situation.rho,
        service_time: situation.service_time,
        network: Network {
            delay: situation.round_trip / 2,
            loss: 0.0,
            report_loss: 0.0,
        },
        proxies: (choice == Choice::ProxyService).then_some(proxies),
        requests,
        runs: 2,
        seed,
        ..paper(choice.policy(), situation.balancers)
    });
    Duration::from_secs_f64(outcome.mean_ms.value / 1000.0)
}

/// The result for a service under consecutive loads, with these choices.
fn schedule(phases: &[Situation], possible: &[Choice]) -> Vec<Vec<(Choice, Reason)>> {
    let mut governor = Governor::new(Limits::default(), Choice::Local);
    let mut budget = Budget::new(4, Duration::from_secs(3600));
    let (mut now, mut seed) = (Time::ZERO, 1);
    let mut all = Vec::new();
    for situation in phases {
        let end = now + PHASE;
        let mut changes: Vec<Change> = Vec::new();
        while now < end {
            seed += 1;
            let choice = governor.current();
            let telemetry = Telemetry {
                balancers: situation.balancers,
                servers: situation.servers,
                rps: situation.rps(),
                latency: simulated(situation, choice, REQUESTS, seed),
                choice,
                round_trip: situation.round_trip,
                speed_variation: situation.speed_variation,
                proxies: situation.proxies,
                proxy_penalty: situation.proxy_penalty,
            };
            changes.extend(governor.look(now, &telemetry, possible, &mut budget));
            now = now + EVERY;
        }
        if let Some(Change { to, predicted, .. }) = changes.last() {
            gained_what_was_predicted(situation, *to, *predicted);
        }
        all.push(changes.iter().map(|one| (one.to, one.reason)).collect());
    }
    all
}

/// The gain over `lor` in the sidecars is within a fifth of the predicted one.
fn gained_what_was_predicted(situation: &Situation, choice: Choice, predicted: Duration) {
    if choice == Choice::Local {
        return;
    }
    let mean = |choice| simulated(situation, choice, 200_000, 77).as_secs_f64();
    let local = situation.decide().unwrap().of(Choice::Local).unwrap().mean;
    let expected = 1.0 - predicted.as_secs_f64() / local.as_secs_f64();
    let measured = 1.0 - mean(choice) / mean(Choice::Local);
    println!("{choice:?}: gain {measured:.3}, predicted {expected:.3}");
    assert!(
        (measured - expected).abs() <= 0.2 * expected,
        "{choice:?} {measured} {expected}"
    );
}

#[test]
fn loads_come_and_go_and_so_does_what_they_need() {
    let phases = [
        situation(20, 0.15),
        situation(20, 0.75),
        situation(20, 0.85),
        situation(20, 0.04),
    ];
    let proxies = schedule(&phases, &[Choice::ProxyService]);
    let expected = [
        vec![],
        vec![(Choice::ProxyService, Reason::Gain)],
        vec![],
        vec![(Choice::Local, Reason::Idle)],
    ];
    assert_eq!(proxies, expected);
    let all = schedule(
        &phases,
        &[Choice::Bounce, Choice::Ledger, Choice::ProxyService],
    );
    let expected = [
        vec![],
        vec![(Choice::Ledger, Reason::Gain)],
        vec![],
        vec![(Choice::Local, Reason::Idle)],
    ];
    assert_eq!(all, expected);
}
