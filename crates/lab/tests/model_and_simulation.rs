//! The corrected model compared with the simulator, which runs the proxy's own `lor`: they share no code.

use maglor_lab::des::Scenario;
use maglor_lab::model::System;

use crate::support::run_all;

/// Ends and middle of the range that docs/model.md compares in full.
#[test]
fn the_corrected_model_is_within_three_per_cent_of_simulation() {
    let mut cases = Vec::new();
    for choices in [2, 5] {
        for rho in [0.3, 0.75, 0.95] {
            for balancers in [1, 20, 200] {
                cases.push((balancers, choices, rho));
            }
        }
    }
    let scenario = |&(balancers, choices, rho): &(u32, u32, f64)| Scenario {
        policy: format!("lor(choices={choices})").parse().expect("a policy"),
        balancers,
        rho,
        // Long runs where queues change slowly.
        requests: if rho > 0.9 { 150_000 } else { 40_000 },
        runs: 4,
        ..Scenario::default()
    };
    let scenarios: Vec<_> = cases.iter().map(scenario).collect();
    for ((balancers, choices, rho), outcome) in cases.into_iter().zip(run_all(&scenarios)) {
        let system = System::new(balancers, choices, rho).expect("in range");
        let model = 20.0 * system.corrected_for(40).expect("solved");
        let simulated = outcome.mean_ms;
        println!(
            "M = {balancers}, d = {choices}, ρ = {rho}: simulation {:.2} ± {:.2}, model {model:.2}",
            simulated.value, simulated.half_width
        );
        assert!(
            simulated.agrees_with(model, 0.03),
            "M = {balancers}, d = {choices}, ρ = {rho}: {simulated:?}, model {model}"
        );
    }
}
