//! The graph by service, workload and node.

use std::collections::{BTreeMap, BTreeSet};

use crate::dashboard::page::{Edge, Mesh, Share, Signals, Vertex, View};

use crate::graph::parts::Part;
use crate::graph::{self, Recent, sums};
use crate::index::facts::Key;
use crate::index::topology::Topology;

/// Returns the calls of an edge.
pub(super) fn signals(edge: &graph::Edge) -> Signals {
    Signals {
        rps: edge.rps,
        failures: edge.failures,
        mean_ms: (edge.rps > 0.0 && edge.latency_ms > 0.0).then_some(edge.latency_ms),
        p50_ms: edge.p50_ms,
        p99_ms: edge.p99_ms,
        in_flight: edge.in_flight,
    }
}

/// Returns the graph by service.
pub(super) fn services(recent: &Recent, topology: &Topology) -> Mesh {
    let snapshot = &recent.snapshot;
    let vertices = snapshot.services.iter().map(|service| {
        let vertex = topology.vertices.get(&service.name);
        let calls = recent.vertices.get(&service.name);
        let vertex = Vertex {
            kind: View::Service,
            meshed: vertex.is_some_and(|vertex| vertex.meshed),
            signals: calls.map(signals),
            replicas: vertex.map(|vertex| vertex.replicas),
            ready: ready(&service.name, topology),
            mtls: service.mtls,
            policy: topology.balancing.get(&service.name).cloned(),
            local_first: service.local_first,
            contradicted: service.contradicted,
            cpu_used_millis: service.cpu_used_millis,
            memory_used_mib: service.memory_used_mib,
            nodes: vertex
                .map(|vertex| vertex.nodes.clone())
                .unwrap_or_default(),
            ..Vertex::default()
        };
        (service.name.clone(), vertex)
    });
    let calls = recent
        .parts
        .iter()
        .filter(|part| !part.taken && !part.version);
    let reported = reported(calls.map(|part| ((&*part.edge.from, &*part.edge.to), part)));
    let edges = snapshot.edges.iter().map(|one| {
        let reported = reported.get(&(&*one.from, &*one.to));
        edge(one, reported.copied().unwrap_or_default(), recent, topology)
    });
    Mesh {
        edges: edges.collect(),
        vertices: vertices.collect(),
        ..Mesh::default()
    }
}

/// Returns the number of serving pods of the vertex of a Service.
fn ready(vertex: &str, topology: &Topology) -> Option<u32> {
    let (namespace, name) = vertex.split_once('/')?;
    let key = Key::new(namespace, name);
    let own = topology.services.get(&key).is_some_and(|of| of == vertex);
    // A Service without serving pods is not listed.
    own.then(|| {
        topology
            .servers
            .get(&key)
            .map_or(0, |servers| servers.count)
    })
}

fn edge(edge: &graph::Edge, reported: Reported, recent: &Recent, topology: &Topology) -> Edge {
    let splits = recent.snapshot.splits.iter();
    let mut splits = splits.filter(|split| split.service == edge.to);
    let split = splits.next().map(|split| {
        let share = |version: &graph::Version| Share {
            name: version.name.clone(),
            weight: version.weight,
            signals: Signals {
                rps: version.rps,
                failures: version.failures,
                mean_ms: (version.rps > 0.0).then_some(version.latency_ms),
                ..Signals::default()
            },
        };
        split.versions.iter().map(share).collect()
    });
    Edge {
        from: edge.from.clone(),
        to: edge.to.clone(),
        signals: signals(edge),
        bytes_per_second: Some(edge.bytes_per_second),
        connections_per_second: Some(edge.connections_per_second),
        tcp: edge.rps == 0.0 && (edge.bytes_per_second > 0.0 || edge.in_flight > 0.0),
        mtls: topology.secured.get(&edge.to).copied(),
        mtls_share: reported.mtls_share(),
        policy: topology.balancing.get(&edge.to).cloned(),
        split: split.unwrap_or_default(),
        retries: reported.retries,
        ejected: reported.ejected,
        ..Edge::default()
    }
}

/// What callers report of an edge besides its calls.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    /// Retries per second.
    retries: Option<f64>,
    /// Ejected endpoints of the caller with the most of them.
    ejected: Option<u32>,
    /// Calls by mutual TLS, and all calls.
    mutual_tls: Option<(f64, f64)>,
}

impl Reported {
    fn mtls_share(&self) -> Option<f64> {
        let (by, all) = self.mutual_tls?;
        (all > 0.0).then(|| (by / all).clamp(0.0, 1.0))
    }
}

/// Returns what the parts of each key report together.
fn reported<'a, K: Ord>(parts: impl Iterator<Item = (K, &'a Part)>) -> BTreeMap<K, Reported> {
    let mut all: BTreeMap<K, Reported> = BTreeMap::new();
    for (key, part) in parts {
        let sum = all.entry(key).or_default();
        if let Some(more) = part.retries {
            sum.retries = Some(sum.retries.unwrap_or(0.0) + more);
        }
        sum.ejected = sum.ejected.max(part.ejected);
        if let Some((by, calls)) = part.mutual_tls {
            let (own, all) = sum.mutual_tls.unwrap_or_default();
            sum.mutual_tls = Some((own + by, all + calls));
        }
    }
    all
}

/// The owners of the pods of each vertex.
fn owners(topology: &Topology) -> BTreeMap<&str, BTreeSet<&Key>> {
    let mut owners: BTreeMap<&str, BTreeSet<&Key>> = BTreeMap::new();
    for (pod, vertex) in &topology.pods {
        if let Some(owner) = topology.makers.get(pod) {
            owners.entry(vertex).or_default().insert(owner);
        }
    }
    owners
}

/// The name of the vertex of a service whose pods have several owners: an owner may have the service's name.
fn shared(service: &str) -> String {
    format!("{service} (service)")
}

/// Returns the graph by owner of the pods. Callers report which service they call, not which of its pods; so a service
/// with several owners is a vertex of its own, and its edges to them are the calls that they accepted.
pub(super) fn workloads(recent: &Recent, topology: &Topology) -> Mesh {
    let owners = owners(topology);
    let target = |vertex: &str| match owners.get(vertex) {
        Some(owners) if owners.len() > 1 => shared(vertex),
        Some(owners) => owners
            .first()
            .map_or(vertex.to_owned(), ToString::to_string),
        None => vertex.to_owned(),
    };
    let caller = |part: &Part| {
        let owner = topology.maker_of(&part.proxy);
        owner.map_or_else(|| part.edge.from.clone(), ToString::to_string)
    };
    let services = services(recent, topology);
    let mut mesh = Mesh::default();
    let accepted = recent.parts.iter().filter(|part| part.taken);
    let accepted = sums(accepted.map(|part| (caller(part), part)));
    for (name, vertex) in services.vertices {
        let several = owners.get(&*name).filter(|owners| owners.len() > 1);
        for owner in several.into_iter().flat_map(|owners| owners.iter()) {
            let owner = owner.to_string();
            let calls = accepted.get(&owner);
            mesh.vertices
                .insert(owner.clone(), workload(&owner, &name, calls, topology));
            mesh.edges.extend(calls.map(|calls| Edge {
                from: shared(&name),
                to: owner,
                signals: signals(calls),
                mtls: vertex.mtls,
                ..Edge::default()
            }));
        }
        let target = target(&name);
        let single = several.is_none() && owners.contains_key(&*name);
        let vertex = Vertex {
            kind: if single {
                View::Workload
            } else {
                View::Service
            },
            service: single.then(|| name.clone()),
            ..vertex
        };
        mesh.vertices.insert(target, vertex);
    }
    let calls = || {
        let parts = recent
            .parts
            .iter()
            .filter(|part| !part.taken && !part.version);
        parts.map(|part| ((caller(part), part.edge.to.clone()), part))
    };
    let reported = reported(calls());
    for (key, calls) in sums(calls())
        .into_iter()
        .filter(|(_, calls)| calls.traffic().is_some())
    {
        let reported = reported.get(&key).copied().unwrap_or_default();
        let (from, to) = key;
        let named = graph::Edge {
            from: from.clone(),
            to,
            ..calls
        };
        mesh.edges.push(Edge {
            to: target(&named.to),
            ..edge(&named, reported, recent, topology)
        });
        mesh.vertices.entry(from).or_default();
    }
    mesh
}

fn workload(
    owner: &str,
    service: &str,
    calls: Option<&graph::Edge>,
    topology: &Topology,
) -> Vertex {
    let pods = topology.makers.iter();
    let pods = pods.filter(|(pod, of)| of.to_string() == owner && topology.pods.contains_key(pod));
    let (mut nodes, mut replicas) = (BTreeMap::new(), 0);
    for (pod, _) in pods {
        replicas += 1;
        if let Some(node) = topology.places.get(pod) {
            *nodes.entry(node.clone()).or_default() += 1;
        }
    }
    Vertex {
        kind: View::Workload,
        meshed: true,
        signals: calls.map(signals),
        replicas: Some(replicas),
        policy: topology.balancing.get(service).cloned(),
        mtls: topology.secured.get(service).copied(),
        nodes,
        service: Some(service.to_owned()),
        ..Vertex::default()
    }
}

/// Returns the nodes with the calls that their pods accept, and the measured delays between them.
pub(super) fn nodes(recent: &Recent, topology: &Topology) -> Mesh {
    let accepted = recent.parts.iter().filter(|part| part.taken);
    let accepted = accepted.filter_map(|part| Some((topology.node_of(&part.proxy)?, part)));
    let accepted = sums(accepted);
    let vertices = recent.snapshot.nodes.iter().map(|node| {
        let runs = topology.vertices.iter();
        let runs = runs.filter(|(_, vertex)| vertex.nodes.contains_key(&node.name));
        let vertex = Vertex {
            kind: View::Node,
            meshed: true,
            signals: accepted.get(&*node.name).map(signals),
            zone: node.zone.clone(),
            capacity: Some((node.cpu_millis, node.memory_mib)),
            vertices: runs.map(|(name, _)| name.clone()).collect(),
            ..Vertex::default()
        };
        (node.name.clone(), vertex)
    });
    let known: BTreeMap<String, Vertex> = vertices.collect();
    let delays = recent.snapshot.delays.iter();
    let delays = delays.filter(|one| known.contains_key(&one.from) && known.contains_key(&one.to));
    Mesh {
        edges: delays
            .map(|delay| Edge {
                from: delay.from.clone(),
                to: delay.to.clone(),
                delay_ms: Some(delay.ms),
                ..Edge::default()
            })
            .collect(),
        vertices: known,
        ..Mesh::default()
    }
}
