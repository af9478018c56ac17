//! A relocation over time, on a modelled cluster: at most B moves a round, stable under noise, a worse placement
//! goes back, nothing moves where nothing may. `SEED` replays a run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use maglor_balance::{Rng, Time};
use maglor_service_graph::relocate::{
    Guard, Measured, Move, Params, Reason, Relocation, Round, Stage, View,
};
use maglor_service_graph::{
    Bars, Graph, Node, Nodes, Options, Outcome, Placement, Service, partition,
};
use support::seed;

const ROUND: Duration = Duration::from_secs(60);
/// Between two nodes.
const DELAY_MS: f64 = 5.0;

fn params() -> Params {
    Params {
        options: Options {
            effort: 0.05,
            ..Options::default()
        },
        moves: 2,
        ..Params::default()
    }
}

/// A cluster in which moves are done within a round.
struct Fixture {
    graph: Graph,
    nodes: Nodes,
    present: Placement,
    bars: Bars,
    apply: bool,
    /// Response times on this node are longer by this factor.
    slow: Option<(usize, f64)>,
    /// λ and r have a random relative error up to this, in each round.
    noise: f64,
    rng: Rng,
    relocation: Relocation,
    now: Time,
    moved: Vec<Move>,
}

impl Fixture {
    fn new(graph: Graph, nodes: Nodes, present: Placement, params: Params, rng: Rng) -> Self {
        Self {
            bars: Bars::new(graph.services().len(), nodes.all().len()),
            graph,
            nodes,
            present,
            apply: true,
            slow: None,
            noise: 0.0,
            rng,
            relocation: Relocation::new(params),
            now: Time::ZERO + ROUND,
            moved: Vec::new(),
        }
    }

    /// Traffic as it is seen, and how each service's calls fare.
    fn seen(&mut self) -> (Graph, Vec<Measured>) {
        let mut seen = Graph::default();
        for service in self.graph.services() {
            seen.add_service(service.clone()).unwrap();
        }
        let mut measured = vec![Measured::default(); self.graph.services().len()];
        for edge in self.graph.edges() {
            let mut off = || 1.0 + self.noise * (2.0 * self.rng.unit() - 1.0);
            let remote = self.present.remote_share(edge.from, edge.to);
            let slow = self.slow.map_or(1.0, |(node, factor)| {
                let counts = self.present.service(edge.to);
                let share = f64::from(counts[node]) / f64::from(counts.iter().sum::<u32>());
                1.0 + share * (factor - 1.0)
            });
            let latency = (edge.latency_ms * slow + 2.0 * DELAY_MS * remote) * off();
            let rps = edge.rps * off();
            let name = |service: usize| &self.graph.services()[service].name;
            seen.add_calls(name(edge.from), name(edge.to), rps, latency, 0.0)
                .unwrap();
            let call = Measured {
                rps,
                latency_ms: latency,
                failures: 0.0,
                remote,
            };
            for end in [edge.from, edge.to] {
                measured[end] = measured[end].plus(call);
            }
        }
        (seen, measured)
    }

    fn round(&mut self) -> Round {
        let (graph, measured) = self.seen();
        let view = View {
            graph: &graph,
            nodes: &self.nodes,
            present: &self.present,
            bars: &self.bars,
            measured: &measured,
            busy: false,
            apply: self.apply,
        };
        let round = self.relocation.round(self.now, &view).unwrap();
        for one in &round.moves {
            let service = self.graph.service(&one.service).unwrap();
            let (from, to) = (
                self.nodes.node(&one.from).unwrap(),
                self.nodes.node(&one.to).unwrap(),
            );
            assert!(!self.bars.is_barred(service, to), "{one:?}");
            let counts = self.present.service(service).to_vec();
            self.present.set(service, to, counts[to] + 1);
            // The new replica comes first: both have to fit.
            let loads = self.present.loads(&self.graph);
            let node = &self.nodes.all()[to];
            assert!(
                loads[to][0] <= node.cpu_millis && loads[to][1] <= node.memory_mib,
                "{one:?}"
            );
            self.present
                .set(service, from, counts[from].checked_sub(1).unwrap());
        }
        self.moved.extend(round.moves.iter().cloned());
        self.now = self.now + ROUND;
        round
    }
}

fn random(rng: &mut Rng, services: usize, params: Params) -> Fixture {
    let graph = support::graph(rng, services);
    let nodes = support::nodes(rng, &graph, 4, 0.6);
    let options = Options {
        effort: 0.2,
        ..Options::default()
    };
    let Outcome::Placed(plan) = partition(&graph, &nodes, None, &options).unwrap() else {
        panic!("six tenths of the nodes are used");
    };
    let rng = Rng::seed(u64::from(rng.next_u32()));
    Fixture::new(graph, nodes, plan.placement, params, rng)
}

/// As [`random`], with traffic for which another placement would be better.
fn shifted(rng: &mut Rng, services: usize, params: Params) -> Fixture {
    let mut fixture = random(rng, services, params);
    let rates: Vec<f64> = fixture.graph.edges().iter().map(|edge| edge.rps).collect();
    let mut graph = Graph::default();
    for service in fixture.graph.services() {
        graph.add_service(service.clone()).unwrap();
    }
    for (index, edge) in fixture.graph.edges().iter().enumerate() {
        let name = |service: usize| &fixture.graph.services()[service].name;
        let rps = rates[rates.len() - 1 - index];
        graph
            .add_calls(name(edge.from), name(edge.to), rps, edge.latency_ms, 0.0)
            .unwrap();
    }
    fixture.graph = graph;
    fixture
}

/// A caller on one node and the called service on another, with capacity for both.
fn pair() -> Fixture {
    let service = |name: &str| Service {
        name: name.to_owned(),
        replicas: NonZeroU32::new(3).unwrap(),
        cpu_millis: 100,
        memory_mib: 64,
        max_per_node: None,
        pinned: false,
    };
    let mut graph = Graph::default();
    for name in ["web", "cart"] {
        graph.add_service(service(name)).unwrap();
    }
    graph.add_calls("web", "cart", 100.0, 10.0, 0.0).unwrap();
    let node = |name: &str| Node {
        name: name.to_owned(),
        cpu_millis: 1000,
        memory_mib: 1024,
        pods: None,
    };
    let nodes = Nodes::new(vec![node("a"), node("b")]).unwrap();
    let mut present = Placement::empty(2, 2);
    present.set(0, 0, 3);
    present.set(1, 1, 3);
    Fixture::new(graph, nodes, present, params(), Rng::seed(1))
}

#[test]
fn noise_moves_nothing() {
    let base = seed(1);
    for case in 0..3 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let mut fixture = random(&mut rng, 12 + 8 * case as usize, params());
        fixture.noise = 0.2;
        for minute in 0..60 {
            let round = fixture.round();
            assert!(
                round.moves.is_empty(),
                "case {case}, minute {minute}: {round:?}"
            );
        }
    }
}

/// All necessary moves are made, at most B a round, and then none, for hours of noise.
#[test]
fn a_shift_is_followed_once() {
    let base = seed(2);
    for case in 0..4 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let mut fixture = shifted(&mut rng, 16, params());
        fixture.noise = 0.2;
        let before = fixture.present.cut(&fixture.graph);
        let mut last = 0;
        for minute in 0..240 {
            let round = fixture.round();
            assert!(round.moves.len() <= 2, "case {case}: {round:?}");
            assert!(
                round.undone.is_empty(),
                "case {case}, minute {minute}: {round:?}"
            );
            if !round.moves.is_empty() {
                last = minute;
            }
        }
        let after = fixture.present.cut(&fixture.graph);
        println!(
            "case {case}: {before:.0} to {after:.0}, {} moves, the last after {last} min",
            fixture.moved.len()
        );
        assert!(after <= before);
        // No replica moves to a node that another replica of its service has left.
        let mut left: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for one in &fixture.moved {
            let left = left.entry(&one.service).or_default();
            assert!(
                !left.contains(&&*one.to),
                "case {case}: {:?}",
                fixture.moved
            );
            left.push(&one.from);
        }
    }
}

#[test]
fn nothing_moves_where_it_is_only_said() {
    let mut fixture = pair();
    fixture.apply = false;
    for round in 0..30 {
        let found = fixture.round();
        assert!(found.moves.is_empty());
        assert_eq!(
            found.reason == Reason::Advised,
            round >= 2,
            "{round}: {found:?}"
        );
    }
    assert!(fixture.relocation.records().is_empty());
}

/// Pinned services stay, regardless of the others.
#[test]
fn nothing_moves_that_may_not() {
    let base = seed(3);
    let mut moved = 0;
    for case in 0..4 {
        let mut rng = Rng::seed(base.wrapping_add(case));
        let mut fixture = shifted(&mut rng, 16, params());
        for service in 0..5 {
            fixture.bars.hold(service);
        }
        for service in 5..10 {
            fixture.bars.bar(service, 0);
        }
        for _ in 0..60 {
            fixture.round();
        }
        let held = fixture.graph.services()[..5].iter().map(|one| &*one.name);
        let held: Vec<&str> = held.collect();
        assert!(
            fixture
                .moved
                .iter()
                .all(|one| !held.contains(&&*one.service)),
            "{:?}",
            fixture.moved
        );
        moved += fixture.moved.len();
    }
    assert!(moved > 0, "others do move");
}

#[test]
fn a_pair_comes_together_and_is_kept() {
    let mut fixture = pair();
    let first = fixture.round();
    assert_eq!(first.reason, Reason::Waiting { seen: 1, needed: 3 });
    assert_eq!(first.plan.unwrap().moves, 3);
    fixture.round();
    let third = fixture.round();
    assert_eq!((third.moves.len(), third.reason), (2, Reason::Moving));
    assert_eq!(fixture.round().moves.len(), 1);
    assert_eq!(fixture.round().reason, Reason::Judging);
    for _ in 0..10 {
        fixture.round();
    }
    assert_eq!(fixture.present.cut(&fixture.graph), 0.0);
    let records = fixture.relocation.records();
    let moved = records.values().next().unwrap();
    assert_eq!((records.len(), moved.stage), (1, Stage::Kept));
    let (before, after) = (moved.before.unwrap(), moved.after.unwrap());
    assert!((before.latency_ms - 20.0).abs() < 1e-6 && (after.latency_ms - 10.0).abs() < 1e-6);
    assert_eq!((before.remote, after.remote), (1.0, 0.0));
}

/// If all calls take three times as long, local calls do not compensate for it.
#[test]
fn what_is_worse_off_goes_back_and_rests_longer_each_time() {
    let mut fixture = pair();
    fixture.slow = Some((0, 3.0));
    // Only the called service may move, and the slow node is the better one by the plan.
    fixture.bars.hold(0);
    let mut undone = Vec::new();
    for minute in 0..600 {
        let round = fixture.round();
        assert!(round.moves.len() <= 2);
        undone.extend(round.undone.iter().map(|(name, _)| (minute, name.clone())));
    }
    assert_eq!(fixture.present.service(1), [0, 3]);
    let times: Vec<i32> = undone.iter().map(|(minute, _)| *minute).collect();
    println!("taken back after {times:?} minutes");
    assert!((2..=6).contains(&times.len()), "{undone:?}");
    let pauses: Vec<i32> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        pauses.windows(2).all(|pair| pair[1] > pair[0]),
        "{pauses:?}"
    );
    assert_eq!(
        fixture.relocation.records()["cart"].stage,
        Stage::RolledBack
    );
}

/// Another planner with only the stored state continues, whenever the first one stops.
#[test]
fn a_crash_loses_nothing() {
    for crash in 1..14 {
        let mut fixture = pair();
        for round in 0..40 {
            if round == crash {
                let relocation = &fixture.relocation;
                let (records, since) = (relocation.records().clone(), relocation.judged_since());
                fixture.relocation = Relocation::restored(params(), records, since);
            }
            fixture.round();
        }
        assert_eq!(
            fixture.present.cut(&fixture.graph),
            0.0,
            "after {crash} rounds"
        );
        assert_eq!(fixture.moved.len(), 3, "after {crash} rounds");
        assert!(
            fixture.relocation.under_way().is_empty(),
            "after {crash} rounds"
        );
    }
}

/// An unfinished move is not retried immediately.
#[test]
fn what_failed_rests() {
    let mut fixture = pair();
    fixture.bars.hold(0);
    for _ in 0..2 {
        fixture.round();
    }
    let present = fixture.present.clone();
    assert_eq!(fixture.round().moves.len(), 2);
    // Both pods went elsewhere, and their predecessors stayed.
    fixture.present = present;
    fixture.relocation.failed("cart", fixture.now);
    fixture.moved.clear();
    for _ in 0..15 {
        fixture.round();
    }
    assert!(fixture.moved.is_empty(), "{:?}", fixture.moved);
    assert_eq!(fixture.relocation.records()["cart"].failures, 1);
    for _ in 0..20 {
        fixture.round();
    }
    assert_eq!(fixture.present.cut(&fixture.graph), 0.0, "and then it is");
}

/// Replicas leave forbidden nodes regardless of the gain, and such moves are not evaluated.
#[test]
fn the_nodes_that_are_wanted_are_used() {
    let mut fixture = pair();
    let mut params = params();
    params.options.selection.nodes = maglor_service_graph::Use::Top(1);
    params.guard = Guard {
        latency: 0.01,
        ..Guard::default()
    };
    fixture.slow = Some((0, 9.0));
    fixture.relocation = Relocation::new(params);
    for _ in 0..20 {
        let round = fixture.round();
        assert!(round.undone.is_empty(), "{round:?}");
    }
    assert_eq!(fixture.present.service(0), [3, 0]);
    assert_eq!(fixture.present.service(1), [3, 0]);
}
