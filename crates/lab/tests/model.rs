//! The models as a whole: over the range that they take, and among each other.

use maglor_lab::model::{System, classic};

fn system(balancers: u32, choices: u32, utilisation: f64) -> System {
    System::new(balancers, choices, utilisation).expect("in range")
}

/// Latencies with two choices and ρ = 0.75, in mean service times.
#[test]
fn the_corrected_model_lies_below_the_papers_and_between_its_ends() {
    for (balancers, expected) in [(1, 1.7585), (20, 3.0379), (100, 3.6515), (1000, 3.9540)] {
        let system = system(balancers, 2, 0.75);
        let corrected = system.corrected().unwrap();
        assert!((corrected - expected).abs() < 1e-4, "{corrected}");
        let paper = system.paper().latency;
        assert!(corrected < paper + 1e-9, "{corrected}, the paper's {paper}");
    }
}

#[test]
fn the_models_have_a_solution_wherever_they_are_asked() {
    for utilisation in [1e-6, 0.3, 0.75, 0.95, 0.999, 0.999_999] {
        for choices in [1, 2, 10, 1_000_000] {
            let mut before = 0.0;
            for balancers in [1, 2, 10, 1000, 1_000_000] {
                let system = system(balancers, choices, utilisation);
                let corrected = system.corrected().unwrap();
                let paper = system.paper().latency;
                let random = system.random();
                let near = 1.0 + 1e-6;
                assert!(
                    corrected >= before / near,
                    "{system:?}: {corrected} after {before}"
                );
                assert!(corrected <= random * near, "{system:?}: {corrected}");
                assert!(paper <= random * near, "{system:?}: {paper}");
                assert!(
                    corrected <= paper * near,
                    "{system:?}: {corrected}, {paper}"
                );
                before = corrected;
            }
        }
    }
}

#[test]
fn with_few_servers_latency_lies_between_one_queue_and_random() {
    for utilisation in [0.001, 0.75, 0.95, 0.999] {
        for (balancers, choices) in [(1, 2), (1, 40), (20, 2), (1000, 5)] {
            let system = system(balancers, choices, utilisation);
            let mut before = f64::INFINITY;
            for servers in [1, 2, 10, 40, 10_000] {
                let latency = system.corrected_for(servers).unwrap();
                let best = classic::mmc(servers, utilisation);
                assert!(
                    latency >= 0.99 * best,
                    "{system:?}, {servers}: {latency}, {best}"
                );
                assert!(
                    latency <= 1.001 * system.random(),
                    "{system:?}, {servers}: {latency}"
                );
                assert!(
                    latency <= before * 1.001,
                    "{system:?}, {servers}: {latency} after {before}"
                );
                before = latency;
            }
        }
    }
}
