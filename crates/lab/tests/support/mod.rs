//! Common functions of the simulator tests.

use maglor_lab::des::{Outcome, Scenario, simulate_all, threads};

/// Fewer requests where the simulator is not optimised; the confidence intervals widen by themselves.
pub(crate) fn requests(optimised: u64) -> u64 {
    if cfg!(debug_assertions) {
        optimised / 5
    } else {
        optimised
    }
}

/// The system of the paper's §II.D with a policy: N = 40, ρ = 0.75, Ts = 20 ms.
pub(crate) fn paper(policy: &str, balancers: u32) -> Scenario {
    Scenario {
        balancers,
        runs: 8,
        requests: requests(200_000),
        ..Scenario::of(policy.parse().unwrap())
    }
}

pub(crate) fn run(scenario: &Scenario) -> Outcome {
    run_all(std::slice::from_ref(scenario)).remove(0)
}

pub(crate) fn run_all(scenarios: &[Scenario]) -> Vec<Outcome> {
    let outcomes = simulate_all(scenarios, threads(), &|_, _| {}).unwrap();
    for (scenario, outcome) in scenarios.iter().zip(&outcomes) {
        println!(
            "{} M={} N={} rho={}: mean {:.2} ± {:.2} ms, p99 {:.1} ± {:.1} ms, {:.2} messages",
            scenario.policy,
            scenario.balancers,
            scenario.servers,
            scenario.rho,
            outcome.mean_ms.value,
            outcome.mean_ms.half_width,
            outcome.p99_ms.value,
            outcome.p99_ms.half_width,
            outcome.messages_per_request.value,
        );
    }
    outcomes
}

/// Asserts that an estimate is `exact`, to its interval plus a share.
#[track_caller]
pub(crate) fn assert_mean(what: &str, outcome: &Outcome, exact: f64, share: f64) {
    assert!(
        outcome.mean_ms.agrees_with(exact, share),
        "{what}: {:?} for {exact}",
        outcome.mean_ms
    );
}
