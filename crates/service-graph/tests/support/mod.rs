//! Random graphs and nodes, and the cut by its definition, written down a second time.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::num::NonZeroU32;

use maglor_balance::Rng;
use maglor_service_graph::{Graph, Node, Nodes, Service};

/// The seed of this run: `SEED` from the environment, or `fallback`. Printed, so that a failure
/// shows what to replay.
pub(crate) fn seed(fallback: u64) -> u64 {
    let seed = std::env::var("SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(fallback);
    println!("SEED={seed}");
    seed
}

pub(crate) fn between(rng: &mut Rng, least: u32, most: u32) -> u32 {
    least + rng.below(most - least + 1)
}

/// A service; replicas of 50 to 600 thousandths of a core.
pub(crate) fn service(rng: &mut Rng, index: usize, replicas: u32) -> Service {
    Service {
        name: format!("s{index}"),
        replicas: NonZeroU32::new(replicas).unwrap(),
        cpu_millis: u64::from(between(rng, 5, 60)) * 10,
        memory_mib: u64::from(between(rng, 16, 512)),
        max_per_node: None,
        pinned: false,
    }
}

/// A tree of calls with some more edges; rates are heavy-tailed.
pub(crate) fn connect(rng: &mut Rng, graph: &mut Graph) {
    let count = graph.services().len() as u32;
    let rate = |rng: &mut Rng| 10.0 * (1.0 - rng.unit()).powf(-1.0 / 1.2);
    for to in 1..count {
        let from = rng.below(to).min(rng.below(to));
        let (rps, ms) = (rate(rng), 1.0 + 20.0 * rng.unit());
        graph
            .add_calls(&format!("s{from}"), &format!("s{to}"), rps, ms, 100.0 * rps)
            .unwrap();
    }
    for _ in 0..count / 2 {
        let (from, to) = (rng.below(count), rng.below(count));
        let (rps, ms) = (rate(rng), 1.0 + 20.0 * rng.unit());
        graph
            .add_calls(&format!("s{from}"), &format!("s{to}"), rps, ms, 100.0 * rps)
            .unwrap();
    }
}

/// A random graph with at most this many replicas in all.
pub(crate) fn small_graph(rng: &mut Rng, most: u32) -> Graph {
    let mut graph = Graph::default();
    let mut left = between(rng, 2, most);
    while left > 0 {
        let replicas = between(rng, 1, 3).min(left);
        left -= replicas;
        let service = service(rng, graph.services().len(), replicas);
        graph.add_service(service).unwrap();
    }
    connect(rng, &mut graph);
    graph
}

/// A random graph of this many services.
pub(crate) fn graph(rng: &mut Rng, services: usize) -> Graph {
    let mut graph = Graph::default();
    for index in 0..services {
        let replicas = [1, 1, 2, 2, 3][rng.below(5) as usize];
        let service = service(rng, index, replicas);
        graph.add_service(service).unwrap();
    }
    connect(rng, &mut graph);
    graph
}

/// Unequal nodes that a graph uses to about this share.
pub(crate) fn nodes(rng: &mut Rng, graph: &Graph, count: usize, utilisation: f64) -> Nodes {
    let need = |each: fn(&Service) -> u64| -> f64 {
        let services = graph.services().iter();
        services
            .map(|s| (each(s) * u64::from(s.replicas.get())) as f64)
            .sum()
    };
    let (cpu, memory) = (need(|s| s.cpu_millis), need(|s| s.memory_mib));
    let parts: Vec<f64> = (0..count).map(|_| 0.6 + 0.8 * rng.unit()).collect();
    let all: f64 = parts.iter().sum();
    let node = |(index, part): (usize, &f64)| Node {
        name: format!("n{index}"),
        cpu_millis: (cpu * part / all / utilisation) as u64,
        memory_mib: (memory * part / all / utilisation) as u64,
        pods: None,
    };
    Nodes::new(parts.iter().enumerate().map(node).collect()).unwrap()
}

/// The cut by its definition: node by node, calls go to local replicas as far as an even share
/// allows, and the rest leaves.
pub(crate) fn cut(graph: &Graph, counts: &[Vec<u32>]) -> f64 {
    let mut cut = 0.0;
    for edge in graph.edges() {
        let (u, v) = (&counts[edge.from], &counts[edge.to]);
        let (all_u, all_v) = (u.iter().sum::<u32>(), v.iter().sum::<u32>());
        for (here_u, here_v) in u.iter().zip(v) {
            let calls = edge.rps * f64::from(*here_u) / f64::from(all_u);
            let even_share = edge.rps * f64::from(*here_v) / f64::from(all_v);
            cut += (calls - even_share).max(0.0);
        }
    }
    cut
}
