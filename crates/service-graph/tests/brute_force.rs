//! Small graphs against all their placements. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use maglor_balance::Rng;
use maglor_service_graph::{
    Graph, Nodes, Objective, Options, Outcome, Placement, Routing, partition,
};
use support::{cut, nodes, seed, small_graph};

/// Every way to place the services from `at` on.
fn all(
    graph: &Graph,
    nodes: &Nodes,
    counts: &mut Vec<Vec<u32>>,
    best: &mut Option<f64>,
    cost: &dyn Fn(&[Vec<u32>]) -> f64,
) {
    let at = counts.len();
    let Some(service) = graph.services().get(at) else {
        let cost = cost(counts);
        *best = Some(best.map_or(cost, |best| best.min(cost)));
        return;
    };
    let mut rows = Vec::new();
    distributions(
        service.replicas.get(),
        nodes.all().len(),
        &mut Vec::new(),
        &mut rows,
    );
    for row in rows {
        counts.push(row);
        if fits(graph, nodes, counts) {
            all(graph, nodes, counts, best, cost);
        }
        counts.pop();
    }
}

fn distributions(replicas: u32, nodes: usize, row: &mut Vec<u32>, rows: &mut Vec<Vec<u32>>) {
    if nodes == 1 {
        rows.push([&row[..], &[replicas]].concat());
        return;
    }
    for here in 0..=replicas {
        row.push(here);
        distributions(replicas - here, nodes - 1, row, rows);
        row.pop();
    }
}

fn fits(graph: &Graph, nodes: &Nodes, counts: &[Vec<u32>]) -> bool {
    nodes.all().iter().enumerate().all(|(node, capacity)| {
        let placed = counts.iter().zip(graph.services());
        let (mut cpu, mut memory) = (0, 0);
        for (row, service) in placed {
            cpu += service.cpu_millis * u64::from(row[node]);
            memory += service.memory_mib * u64::from(row[node]);
        }
        cpu <= capacity.cpu_millis && memory <= capacity.memory_mib
    })
}

fn rows(graph: &Graph, placement: &Placement) -> Vec<Vec<u32>> {
    (0..graph.services().len())
        .map(|s| placement.service(s).to_vec())
        .collect()
}

#[test]
fn small_graphs_are_placed_as_well_as_possible() {
    let base = seed(100);
    let mut feasible = 0;
    for case in 0..200 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let graph = small_graph(&mut rng, 12);
        let count = support::between(&mut rng, 1, 3) as usize;
        let utilisation = 0.5 + 0.5 * rng.unit();
        let nodes = nodes(&mut rng, &graph, count, utilisation);
        let mut best = None;
        all(&graph, &nodes, &mut Vec::new(), &mut best, &|counts| {
            cut(&graph, counts)
        });
        let outcome = partition(&graph, &nodes, None, &Options::default()).unwrap();
        match (best, outcome) {
            (None, Outcome::Infeasible(_)) => {}
            (Some(best), Outcome::Placed(plan)) => {
                feasible += 1;
                let close = 1e-9 * graph.rps().max(1.0);
                assert!(
                    (plan.cut - best).abs() < close,
                    "case {case}: {} is not {best}",
                    plan.cut
                );
                assert!((plan.bound - best).abs() < close, "case {case}: {plan:?}");
                assert!(plan.optimal, "case {case}");
                assert!(plan.placement.is_feasible(&graph, &nodes), "case {case}");
                let again = cut(&graph, &rows(&graph, &plan.placement));
                assert!((plan.cut - again).abs() < close, "case {case}");
            }
            (best, outcome) => panic!("case {case}: {best:?} but {outcome:?}"),
        }
    }
    assert!(feasible > 100, "{feasible} of 200 can be placed at all");
}

/// Calls without a local replica go to other nodes in proportion to the remaining capacity.
fn network_ms(graph: &Graph, nodes: &Nodes, counts: &[Vec<u32>]) -> f64 {
    let size = nodes.all().len();
    let mut cost = 0.0;
    for edge in graph.edges() {
        let share = |row: &[u32], n: usize| f64::from(row[n]) / f64::from(row.iter().sum::<u32>());
        let gap = |n: usize| share(&counts[edge.from], n) - share(&counts[edge.to], n);
        let apart: f64 = (0..size).map(|n| gap(n).max(0.0)).sum();
        for from in (0..size).filter(|&n| gap(n) > 0.0) {
            for to in (0..size).filter(|&n| gap(n) < 0.0) {
                let part = gap(from) * -gap(to) / apart;
                cost += edge.rps * part * nodes.delays_ms()[from * size + to];
            }
        }
    }
    cost
}

#[test]
fn distances_between_nodes_count() {
    let base = seed(200);
    for case in 0..60 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let graph = small_graph(&mut rng, 9);
        let mut nodes = nodes(&mut rng, &graph, 3, 0.75);
        for (from, to) in [("n0", "n1"), ("n1", "n2"), ("n0", "n2")] {
            let ms = f64::from(support::between(&mut rng, 1, 10));
            nodes.set_delay(from, to, ms).unwrap();
        }
        let mut best = None;
        all(&graph, &nodes, &mut Vec::new(), &mut best, &|c| {
            network_ms(&graph, &nodes, c)
        });
        let options = Options {
            objective: Objective::Latency,
            ..Options::default()
        };
        let Outcome::Placed(plan) = partition(&graph, &nodes, None, &options).unwrap() else {
            assert!(best.is_none(), "case {case}");
            continue;
        };
        let best = best.unwrap();
        let close = 1e-9 * best.max(1.0);
        assert!(
            (plan.cost - best).abs() < close,
            "case {case}: {} is not {best}",
            plan.cost
        );
        assert!(plan.optimal, "case {case}");
    }
}

/// Every replica is as likely as any other: what stays is where both ends happen to be together.
fn even_cut(graph: &Graph, counts: &[Vec<u32>]) -> f64 {
    let cut = graph.edges().iter().map(|edge| {
        let (u, v) = (&counts[edge.from], &counts[edge.to]);
        let all = f64::from(u.iter().sum::<u32>() * v.iter().sum::<u32>());
        let stays: f64 = u.iter().zip(v).map(|(a, b)| f64::from(a * b)).sum();
        edge.rps * (1.0 - stays / all)
    });
    cut.sum()
}

#[test]
fn even_routing_is_placed_as_well_as_possible() {
    let base = seed(400);
    let mut feasible = 0;
    for case in 0..100 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let graph = small_graph(&mut rng, 10);
        let utilisation = 0.5 + 0.4 * rng.unit();
        let nodes = nodes(&mut rng, &graph, 3, utilisation);
        let mut best = None;
        all(&graph, &nodes, &mut Vec::new(), &mut best, &|counts| {
            even_cut(&graph, counts)
        });
        let options = Options {
            routing: Routing::Even,
            ..Options::default()
        };
        let outcome = partition(&graph, &nodes, None, &options).unwrap();
        let (best, plan) = match (best, outcome) {
            (None, Outcome::Infeasible(_)) => continue,
            (Some(best), Outcome::Placed(plan)) => (best, plan),
            (best, outcome) => panic!("case {case}: {best:?} but {outcome:?}"),
        };
        feasible += 1;
        let close = 1e-9 * graph.rps().max(1.0);
        assert!(
            (plan.cost - best).abs() < close,
            "case {case}: {} is not {best}",
            plan.cost
        );
        assert!(plan.bound <= best + close, "case {case}: {plan:?}");
        let found = even_cut(&graph, &rows(&graph, &plan.placement));
        assert!((plan.cost - found).abs() < close, "case {case}");
        assert!((plan.cut - found).abs() < close, "case {case}");
    }
    assert!(feasible > 50, "{feasible} of 100 can be placed at all");
}

#[test]
fn moves_count_against_the_cut() {
    let base = seed(300);
    for case in 0..60 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let graph = small_graph(&mut rng, 9);
        let nodes = nodes(&mut rng, &graph, 3, 0.75);
        let Outcome::Placed(first) = partition(&graph, &nodes, None, &Options::default()).unwrap()
        else {
            continue;
        };
        let mut changed = graph.clone();
        support::connect(&mut rng, &mut changed);
        let replicas = changed.replicas() as f64;
        let move_cost = 0.25 * 2.0 * changed.rps() / replicas;
        let moves = |counts: &[Vec<u32>]| -> f64 {
            let started = counts.iter().enumerate().map(|(s, row)| {
                let before = first.placement.service(s);
                let pairs = row.iter().zip(before);
                pairs
                    .map(|(now, then)| now.saturating_sub(*then))
                    .sum::<u32>()
            });
            f64::from(started.sum::<u32>())
        };
        let mut best = None;
        all(&changed, &nodes, &mut Vec::new(), &mut best, &|counts| {
            cut(&changed, counts) + move_cost * moves(counts)
        });
        let mut least = None;
        all(&changed, &nodes, &mut Vec::new(), &mut least, &|counts| {
            cut(&changed, counts)
        });
        let options = Options::default();
        let outcome = partition(&changed, &nodes, Some(&first.placement), &options).unwrap();
        let Outcome::Placed(plan) = outcome else {
            panic!("case {case}: it fitted before");
        };
        let cost = plan.cut + move_cost * plan.moves as f64;
        let best = best.unwrap();
        let close = 1e-9 * best.max(1.0);
        assert!(
            (cost - best).abs() < close,
            "case {case}: {cost} is not {best}"
        );
        let least = least.unwrap();
        assert!(plan.optimal, "case {case}: {plan:?}");
        assert!(
            plan.bound <= least + close,
            "case {case}: {} is above {least}",
            plan.bound
        );
    }
}
