//! Properties over random graphs. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use maglor_balance::Rng;
use maglor_service_graph::{
    Graph, Node, Nodes, Options, Outcome, Placement, Plan, Selection, Use, file, partition,
};
use proptest::prelude::*;
use support::{cut, seed};

fn placed(graph: &Graph, nodes: &Nodes, present: Option<&Placement>, options: &Options) -> Plan {
    match partition(graph, nodes, present, options).unwrap() {
        Outcome::Placed(plan) => {
            assert!(plan.placement.is_feasible(graph, nodes));
            plan
        }
        Outcome::Infeasible(infeasible) => panic!("{infeasible}"),
    }
}

fn quick() -> Options {
    Options {
        effort: 0.2,
        ..Options::default()
    }
}

/// The closed form is the definition, for any counts.
#[test]
fn the_cut_is_what_its_definition_says() {
    let mut rng = Rng::seed(seed(1));
    for _ in 0..300 {
        let graph = support::graph(&mut rng, 6);
        let nodes = support::between(&mut rng, 1, 5) as usize;
        let mut placement = Placement::empty(6, nodes);
        let mut rows = vec![vec![0; nodes]; 6];
        for (s, service) in graph.services().iter().enumerate() {
            for _ in 0..service.replicas.get() {
                rows[s][rng.below(nodes as u32) as usize] += 1;
            }
            for (n, &count) in rows[s].iter().enumerate() {
                placement.set(s, n, count);
            }
        }
        let (closed, defined) = (placement.cut(&graph), cut(&graph, &rows));
        assert!(
            (closed - defined).abs() < 1e-9 * graph.rps(),
            "{closed} is not {defined}"
        );
        for edge in graph.edges() {
            let share = placement.remote_share(edge.from, edge.to);
            assert!((0.0..=1.0).contains(&share));
            assert_eq!(share, placement.remote_share(edge.to, edge.from));
            let same = rows[edge.from] == rows[edge.to];
            assert!(!same || share == 0.0, "services spread alike cut nothing");
        }
    }
}

/// Nodes are filled to 70 to 97 % by a placement that is known: it must not be reported infeasible.
#[test]
fn what_fits_is_placed() {
    let base = seed(2);
    for case in 0..60 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let services = support::between(&mut rng, 10, 40) as usize;
        let count = support::between(&mut rng, 3, 8) as usize;
        let graph = support::graph(&mut rng, services);
        let mut loads = vec![[0_u64; 2]; count];
        for service in graph.services() {
            for _ in 0..service.replicas.get() {
                let node = rng.below(count as u32) as usize;
                loads[node][0] += service.cpu_millis;
                loads[node][1] += service.memory_mib;
            }
        }
        let full = 0.7 + 0.27 * rng.unit();
        let node = |(index, load): (usize, &[u64; 2])| Node {
            name: format!("n{index}"),
            cpu_millis: (load[0] as f64 / full).ceil() as u64,
            memory_mib: (load[1] as f64 / full).ceil() as u64,
            pods: None,
        };
        let nodes = Nodes::new(loads.iter().enumerate().map(node).collect()).unwrap();
        let plan = placed(&graph, &nodes, None, &quick());
        assert!(
            plan.bound <= plan.cost + 1e-9 && plan.bound >= 0.0,
            "case {case}"
        );
        assert!(
            (plan.cut - plan.placement.cut(&graph)).abs() < 1e-9,
            "case {case}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_placements() {
    let mut rng = Rng::seed(seed(3));
    let graph = support::graph(&mut rng, 300);
    let nodes = support::nodes(&mut rng, &graph, 8, 0.8);
    let options = Options {
        effort: 0.1,
        ..Options::default()
    };
    let first = placed(&graph, &nodes, None, &options);
    assert_eq!(first, placed(&graph, &nodes, None, &options));
    assert_eq!(first.moves, 0);
}

/// One edge in a hundred, or all by a per cent: at most 2 % of the replicas move.
#[test]
fn a_small_change_moves_little() {
    let base = seed(4);
    for case in 0..6 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let services = [30, 60, 100, 100, 200, 400][case as usize];
        let graph = support::graph(&mut rng, services);
        let nodes = support::nodes(&mut rng, &graph, 4 + services / 25, 0.8);
        let first = placed(&graph, &nodes, None, &quick());
        for change in ["all", "some"] {
            let mut changed = Graph::default();
            for service in graph.services() {
                changed.add_service(service.clone()).unwrap();
            }
            for edge in graph.edges() {
                let (from, to) = (
                    &graph.services()[edge.from].name,
                    &graph.services()[edge.to].name,
                );
                let factor = match change {
                    "all" => 0.99 + 0.02 * rng.unit(),
                    _ if rng.below(100) == 0 => 1.5,
                    _ => 1.0,
                };
                changed
                    .add_calls(from, to, edge.rps * factor, edge.latency_ms, 0.0)
                    .unwrap();
            }
            let plan = placed(&changed, &nodes, Some(&first.placement), &quick());
            let share = plan.moves as f64 / graph.replicas() as f64;
            println!(
                "{services} services, {change}: {} moves, {share:.4}",
                plan.moves
            );
            assert!(share <= 0.02, "case {case}: {change}: {} moves", plan.moves);
        }
    }
}

#[test]
fn limits_and_targets_hold() {
    let base = seed(5);
    for case in 0..20 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let graph = support::graph(&mut rng, 20);
        let nodes = support::nodes(&mut rng, &graph, 5, 0.5);
        let apart = Options {
            max_share: 0.5,
            ..quick()
        };
        let plan = placed(&graph, &nodes, None, &apart);
        for (index, service) in graph.services().iter().enumerate() {
            let most = plan.placement.service(index).iter().max().unwrap();
            assert!(*most <= service.replicas.get().div_ceil(2), "case {case}");
        }

        let used = |plan: &Plan| {
            let loads = plan.placement.loads(&graph);
            loads.iter().filter(|load| load[2] > 0).count()
        };
        let selection = Selection {
            nodes: Use::Fewest,
            balance: None,
        };
        let fewest = placed(
            &graph,
            &nodes,
            None,
            &Options {
                selection,
                ..quick()
            },
        );
        assert!(used(&fewest) <= 4, "case {case}: half of all is free");

        let selection = Selection {
            nodes: Use::All,
            balance: Some(0.25),
        };
        let even = placed(
            &graph,
            &nodes,
            None,
            &Options {
                selection,
                ..quick()
            },
        );
        for (load, node) in even.placement.loads(&graph).iter().zip(nodes.all()) {
            // At half of the capacity in all, a quarter more is five eighths.
            assert!(
                load[0] as f64 <= 0.64 * node.cpu_millis as f64,
                "case {case}: {load:?}"
            );
        }
    }
}

/// The running replicas fit with pinned ones in place, so there is a placement, for any balance and share limits.
#[test]
fn what_is_pinned_widens_what_is_wished_for() {
    let mut rng = Rng::seed(seed(4));
    for case in 0..60 {
        let free = support::graph(&mut rng, 5);
        let utilisation = 0.4 + 0.5 * rng.unit();
        let nodes = support::nodes(&mut rng, &free, 3, utilisation);
        let Outcome::Placed(now) = partition(&free, &nodes, None, &quick()).unwrap() else {
            continue;
        };
        let mut graph = Graph::default();
        for service in free.services() {
            let mut service = service.clone();
            service.pinned = rng.below(2) == 0;
            graph.add_service(service).unwrap();
        }
        for edge in free.edges() {
            let name = |at: usize| &free.services()[at].name;
            let (from, to) = (name(edge.from), name(edge.to));
            graph.add_calls(from, to, edge.rps, 1.0, 1.0).unwrap();
        }
        for (nodes_used, balance) in [
            (Use::All, Some(0.0)),
            (Use::Fewest, None),
            (Use::Fewest, Some(0.0)),
        ] {
            let wish = Options {
                selection: Selection {
                    nodes: nodes_used,
                    balance,
                },
                effort: 0.05,
                ..Options::default()
            };
            let plan = placed(&graph, &nodes, Some(&now.placement), &wish);
            for (index, service) in graph.services().iter().enumerate() {
                let (before, after) = (now.placement.service(index), plan.placement.service(index));
                assert!(
                    !service.pinned || before == after,
                    "case {case}: {service:?}"
                );
            }
        }
    }
}

/// Of very many calls rounding leaves more than a little: that is no reason to move a replica to and fro.
#[test]
fn the_slow_are_pulled_to_an_end() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for seed in 0..80 {
            let mut rng = Rng::seed(seed);
            let mut graph = Graph::default();
            let count = support::between(&mut rng, 2, 5);
            for index in 0..count {
                let replicas = support::between(&mut rng, 1, 7);
                let service = support::service(&mut rng, index as usize, replicas);
                graph.add_service(service).unwrap();
            }
            for _ in 0..8 {
                let (from, to) = (rng.below(count), rng.below(count));
                let (from, to) = (format!("s{from}"), format!("s{to}"));
                let (rps, ms) = (1e15 * rng.unit(), 50.0 * rng.unit());
                graph.add_calls(&from, &to, rps, ms, 1.0).unwrap();
            }
            let nodes = support::nodes(&mut rng, &graph, 3, 0.4);
            let tau = Options {
                effort: 0.001,
                tau_ms: Some(1.0),
                ..Options::default()
            };
            partition(&graph, &nodes, None, &tau).unwrap();
        }
        done.send(()).unwrap();
    });
    let limit = std::time::Duration::from_secs(60);
    assert_eq!(ended.recv_timeout(limit), Ok(()), "it goes on for ever");
}

#[test]
fn late_calls_move_to_their_callers() {
    let graph = file::graph(
        "{services: [{name: a, replicas: 1, cpu_millis: 100, memory_mib: 1},
            {name: b, replicas: 1, cpu_millis: 100, memory_mib: 1},
            {name: c, replicas: 1, cpu_millis: 100, memory_mib: 1}],
          edges: [{from: a, to: b, rps: 1, latency_ms: 50}, {from: c, to: b, rps: 9, latency_ms: 1}]}",
    )
    .unwrap();
    let nodes = file::nodes(
        "nodes: [{name: x, cpu_millis: 200, memory_mib: 9}, {name: y, cpu_millis: 200, memory_mib: 9}]",
    )
    .unwrap();
    let plan = placed(&graph, &nodes, None, &Options::default());
    assert_eq!(plan.cut, 1.0);
    let tau = Options {
        tau_ms: Some(20.0),
        ..Options::default()
    };
    let pulled = placed(&graph, &nodes, None, &tau);
    assert_eq!(
        pulled.cut, 9.0,
        "b moves to a: their calls take more than 20 ms"
    );
    let tau = Options {
        tau_ms: Some(60.0),
        ..Options::default()
    };
    assert_eq!(placed(&graph, &nodes, None, &tau).cut, 1.0);
}

proptest! {
    /// Any text is a graph, nodes or a placement, or an error that can be shown.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z\\[\\]{}:,. 0-9\\-\n]{0,200}") {
        for error in [
            file::graph(&text).err(),
            file::nodes(&text).err(),
            file::placement(&text).err(),
        ].into_iter().flatten() {
            prop_assert!(!error.to_string().is_empty());
            prop_assert!(error.line() != Some(0));
        }
    }
}
