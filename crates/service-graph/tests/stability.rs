//! The planner over time: it stays while traffic is noisy, and follows where it has shifted. `SEED`
//! replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use maglor_balance::Rng;
use maglor_service_graph::{
    Graph, Nodes, Options, Outcome, Placement, Planner, PlannerParams, Round, partition,
};
use support::seed;

fn params() -> PlannerParams {
    let options = Options {
        effort: 0.05,
        ..Options::default()
    };
    PlannerParams {
        options,
        ..PlannerParams::default()
    }
}

fn with_rates(graph: &Graph, mut rate: impl FnMut(usize, f64) -> f64) -> Graph {
    let mut changed = Graph::default();
    for service in graph.services() {
        changed.add_service(service.clone()).unwrap();
    }
    for (index, edge) in graph.edges().iter().enumerate() {
        let name = |service: usize| &graph.services()[service].name;
        let rps = rate(index, edge.rps);
        changed
            .add_calls(name(edge.from), name(edge.to), rps, edge.latency_ms, 0.0)
            .unwrap();
    }
    changed
}

fn start(rng: &mut Rng, services: usize) -> (Graph, Nodes, Placement) {
    let graph = support::graph(rng, services);
    let nodes = support::nodes(rng, &graph, 4, 0.75);
    let options = Options {
        effort: 0.2,
        ..Options::default()
    };
    let Outcome::Placed(plan) = partition(&graph, &nodes, None, &options).unwrap() else {
        panic!("three quarters of the nodes are used");
    };
    (graph, nodes, plan.placement)
}

/// Every edge's rate has an independent error of up to 20 % in each of an hour's 60 rounds.
#[test]
fn noise_moves_nothing() {
    let base = seed(1);
    for case in 0..3 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let (graph, nodes, present) = start(&mut rng, 12 + 8 * case as usize);
        let mut planner = Planner::new(params());
        for minute in 0..60 {
            let noisy = with_rates(&graph, |_, rps| rps * (0.8 + 0.4 * rng.unit()));
            let round = planner.round(&noisy, &nodes, &present).unwrap().unwrap();
            assert!(
                matches!(round, Round::Keep { .. }),
                "case {case}, minute {minute}: {round:?}"
            );
        }
    }
}

/// The rates of all edges change places: after three rounds what runs is as good as a new plan.
#[test]
fn a_shift_is_followed_within_three_rounds() {
    let base = seed(2);
    for case in 0..5 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let (graph, nodes, mut present) = start(&mut rng, 20);
        let rates: Vec<f64> = graph.edges().iter().map(|edge| edge.rps).collect();
        let shifted = with_rates(&graph, |index, _| rates[rates.len() - 1 - index]);
        let before = present.cut(&shifted);
        let mut planner = Planner::new(params());
        let mut moved_in = Vec::new();
        for round in 1..=8 {
            if let Some(Round::Move(plan)) = planner.round(&shifted, &nodes, &present).unwrap() {
                assert!(plan.placement.is_feasible(&shifted, &nodes));
                present = plan.placement;
                moved_in.push(round);
            }
        }
        let after = present.cut(&shifted);
        println!(
            "case {case}: {before:.0} to {after:.0} of {:.0}, {moved_in:?}",
            shifted.rps()
        );
        assert!(after <= before);
        assert!(
            moved_in.iter().all(|round| *round <= 3),
            "case {case}: {moved_in:?}"
        );
    }
}
