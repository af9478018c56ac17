//! The communication graph at one point in time, which is served, stored, and read by `maglor plan placement`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use maglor_service_graph::{Graph, LiveEdge, Routing, Spread, Times, Traffic};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Usage;
use super::delays::{self, Delay};
use crate::index::facts::Key;
use crate::index::topology::{Topology, Vertex};

/// The communication graph at one point in time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Snapshot {
    /// The time of the snapshot (RFC 3339).
    pub at: String,
    /// The window of the moving averages (T), in seconds.
    pub window_seconds: u64,
    /// The services of the mesh and those that they call, sorted by name.
    pub services: Vec<Service>,
    /// The calls between services, sorted by name.
    pub edges: Vec<Edge>,
    /// Services whose requests are divided among versions; empty in stored snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<Split>,
    /// The nodes; empty in stored snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Delays between nodes, as measured by proxies; empty in stored snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<Delay>,
}

/// A vertex of the graph.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Service {
    /// `NAMESPACE/NAME` of the Service, or of the owner of the pods if they have no Service.
    pub name: String,
    /// The number of pods.
    pub replicas: u32,
    /// The CPU request of each pod, in thousandths of a core; 0 if there is none.
    pub cpu_millis: u64,
    /// The memory request of each pod, in MiB; 0 if there is none.
    pub memory_mib: u64,
    /// The CPU limit of each pod, in thousandths of a core; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_millis: Option<u64>,
    /// The memory limit of each pod, in MiB; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// The mean CPU usage of a pod, in thousandths of a core; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used_millis: Option<f64>,
    /// The largest memory usage of a pod, in MiB; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_used_mib: Option<f64>,
    /// The usage of each container, sorted by name; empty if unknown and in stored snapshots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Requests in flight at all pods.
    pub pending: f64,
    /// Requests per second that the pods accept from any source; without sidecars, the sum of the edges.
    pub rps: f64,
    /// Whether proxies call the service by mutual TLS on all of its ports; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtls: Option<bool>,
    /// Whether calls to the service stay on the caller's node if possible (`localFirst`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local_first: bool,
    /// Whether all pods report accepted requests, so that the callers' reports can be compared with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes: bool,
    /// Whether callers report more calls than the pods have accepted, so that the callers' reports are not used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicted: bool,
    /// The number of pods by node. Pods without a sidecar are omitted, because they are not placed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
}

/// A container of the pods of a service.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Container {
    /// Name of the container.
    pub name: String,
    /// Mean CPU usage of the container over the pods, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// Largest memory usage of the container in a pod, in MiB.
    pub memory_used_mib: f64,
}

/// Calls of one service to another.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Edge {
    /// Name of the caller.
    pub from: String,
    /// Name of the called service.
    pub to: String,
    /// Calls per second (λ).
    pub rps: f64,
    /// Mean response time in milliseconds (r), as measured by the callers' proxies.
    pub latency_ms: f64,
    /// The median of the response time in milliseconds; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the response time in milliseconds; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// Failed calls per second: those with a 5xx response or no response.
    pub failures: f64,
    /// Bytes per second of bodies, and of non-HTTP connections, in both directions.
    pub bytes_per_second: f64,
    /// Connections opened per second.
    #[serde(default)]
    pub connections_per_second: f64,
    /// Calls in flight, and open non-HTTP connections.
    pub in_flight: f64,
}

/// A service whose requests are divided among several versions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Split {
    /// `NAMESPACE/NAME` of the Service.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
    /// The versions of the service.
    pub versions: Vec<Version>,
}

/// A version of a service, and the traffic of all calls to this version.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Version {
    /// Name of the version's Service in the same namespace, or of the subset.
    pub name: String,
    /// Whether the version is a subset of the Service itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subset: bool,
    /// The cluster by which proxies call the version.
    pub cluster: String,
    /// Weight of the version, relative to the others.
    pub weight: u32,
    /// The number of pods of the version.
    pub replicas: u32,
    /// Calls per second (λ).
    pub rps: f64,
    /// Mean response time in milliseconds (r).
    pub latency_ms: f64,
    /// Failed calls per second.
    pub failures: f64,
}

impl Version {
    /// Sets the current traffic; `None` if there is none.
    pub(super) fn set(&mut self, traffic: Option<Traffic>) {
        let traffic = traffic.unwrap_or_default();
        self.rps = traffic.rps.min(MOST);
        self.latency_ms = traffic.latency_ms.min(MOST);
        self.failures = traffic.failures.min(self.rps);
    }
}

/// A node, in the format of `maglor plan placement`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// CPU capacity for the services of the graph, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory capacity for the services of the graph, in MiB.
    pub memory_mib: u64,
    /// Maximum number of pods of the services of the graph; `None` if it is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<u64>,
    /// Zone of the node (`topology.kubernetes.io/zone`); `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// The usage of pods, or of containers of the same name: their number, the sum of CPU, and the maximum of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    count: f64,
    cpu: f64,
    memory: f64,
}

impl Used {
    fn add(&mut self, cpu: f64, memory: f64) {
        self.count += 1.0;
        self.cpu += cpu;
        self.memory = self.memory.max(memory);
    }

    fn mean_cpu(&self) -> f64 {
        self.cpu / self.count.max(1.0)
    }
}

/// The inputs of a snapshot in addition to traffic.
pub(super) struct Builder<'a> {
    pub(super) window: Duration,
    pub(super) topology: &'a Topology,
    pub(super) usage: &'a HashMap<Key, Usage>,
    pub(super) delays: &'a [Delay],
}

impl Builder<'_> {
    /// Builds a snapshot from edges and from the calls that services have accepted.
    pub(super) fn build(
        &self,
        at: Timestamp,
        edges: &[LiveEdge<'_>],
        taken: &BTreeMap<&str, Traffic>,
        versions: &BTreeMap<&str, Traffic>,
    ) -> Snapshot {
        let edges = edges.iter().filter(|edge| edge.traffic.is_some());
        let edges: Vec<Edge> = edges.map(Edge::of).collect();
        let mut services: BTreeMap<&str, Service> = BTreeMap::new();
        let meshed = self
            .topology
            .vertices
            .iter()
            .filter(|(_, vertex)| vertex.meshed);
        let ends = edges.iter().flat_map(|edge| [&edge.from, &edge.to]);
        for name in meshed.map(|(name, _)| name).chain(ends) {
            services.entry(name).or_insert_with(|| self.service(name));
        }
        let mut called: BTreeMap<&str, Traffic> = BTreeMap::new();
        for edge in &edges {
            let sum = called.entry(&edge.to).or_default();
            sum.rps += edge.rps;
            sum.in_flight += edge.in_flight;
        }
        for (name, service) in &mut services {
            let traffic = taken.get(name).or_else(|| called.get(name));
            service.rps = traffic.map_or(0.0, |traffic| traffic.rps.min(MOST));
            service.pending = traffic.map_or(0.0, |traffic| traffic.in_flight.min(MOST));
        }
        let mut services: BTreeMap<String, Service> = services
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect();
        self.add_usage(&mut services);
        Snapshot {
            at: at.to_string(),
            window_seconds: self.window.as_secs(),
            services: services.into_values().collect(),
            edges,
            splits: self.splits(versions),
            nodes: self.nodes(),
            delays: self.delays.to_vec(),
        }
    }

    fn service(&self, name: &str) -> Service {
        // A service without a vertex is outside of the cluster or was just deleted.
        let unknown = Vertex {
            replicas: 1,
            ..Vertex::default()
        };
        let vertex = self.topology.vertices.get(name).unwrap_or(&unknown);
        Service {
            name: name.to_owned(),
            replicas: vertex.replicas,
            cpu_millis: vertex.requests.cpu_millis.unwrap_or(0),
            memory_mib: vertex.requests.memory_mib.unwrap_or(0),
            cpu_limit_millis: vertex.limits.cpu_millis,
            memory_limit_mib: vertex.limits.memory_mib,
            local_first: vertex.local_first,
            takes: self.topology.takes(name),
            mtls: self.topology.secured.get(name).copied(),
            nodes: match vertex.meshed {
                true => vertex.nodes.clone(),
                false => BTreeMap::new(),
            },
            ..Service::default()
        }
    }

    fn add_usage(&self, services: &mut BTreeMap<String, Service>) {
        let mut used: BTreeMap<&str, (Used, BTreeMap<&str, Used>)> = BTreeMap::new();
        for (pod, usage) in self.usage {
            if let Some(vertex) = self.topology.pods.get(pod) {
                let (whole, containers) = used.entry(vertex).or_default();
                whole.add(usage.cpu_millis, usage.memory_mib);
                for (name, cpu, memory) in &usage.containers {
                    containers.entry(name).or_default().add(*cpu, *memory);
                }
            }
        }
        for (vertex, (whole, containers)) in used {
            let Some(service) = services.get_mut(vertex) else {
                continue;
            };
            service.cpu_used_millis = Some(whole.mean_cpu());
            service.memory_used_mib = Some(whole.memory);
            let containers = containers.into_iter().map(|(name, used)| Container {
                name: name.to_owned(),
                cpu_used_millis: used.mean_cpu(),
                memory_used_mib: used.memory,
            });
            service.containers = containers.collect();
        }
    }

    fn splits(&self, traffic: &BTreeMap<&str, Traffic>) -> Vec<Split> {
        let splits = self.topology.splits.iter().map(|(name, split)| {
            let versions = split.versions.iter().map(|(cluster, one)| {
                let mut version = Version {
                    name: one.name.clone(),
                    subset: one.subset,
                    cluster: cluster.clone(),
                    weight: one.weight,
                    replicas: one.replicas,
                    ..Version::default()
                };
                version.set(traffic.get(&**cluster).copied());
                version
            });
            Split {
                service: name.clone(),
                port: split.port,
                versions: versions.collect(),
            }
        });
        splits.collect()
    }

    /// Returns the nodes. A closed node has only the capacity that its current pods use.
    fn nodes(&self) -> Vec<Node> {
        let nodes = self.topology.nodes.iter().map(|(name, room)| {
            let (cpu, memory) = (room.left.cpu_millis, room.left.memory_mib);
            let held = room.closed.then(|| self.held(name));
            let most = |have: u64, held: Option<u64>| held.map_or(have, |held| held.min(have));
            Node {
                name: name.clone(),
                cpu_millis: most(cpu.unwrap_or(0), held.map(|held| held[0])),
                memory_mib: most(memory.unwrap_or(0), held.map(|held| held[1])),
                pods: match held {
                    None => room.pods,
                    Some([.., pods]) => Some(pods),
                },
                zone: room.zone.clone(),
            }
        });
        nodes.collect()
    }

    /// Returns the sum of the CPU and memory requests, and the number, of the mesh's pods on a node.
    fn held(&self, node: &str) -> [u64; 3] {
        let meshed = self.topology.vertices.values().filter(|one| one.meshed);
        meshed.fold([0; 3], |[cpu, memory, pods], vertex| {
            let count = u64::from(vertex.nodes.get(node).copied().unwrap_or(0));
            let of = |each: Option<u64>| each.unwrap_or(0).saturating_mul(count);
            [
                cpu.saturating_add(of(vertex.requests.cpu_millis)),
                memory.saturating_add(of(vertex.requests.memory_mib)),
                pods.saturating_add(count),
            ]
        })
    }
}

/// Maximum weight of an edge ([`maglor_service_graph::GraphError`]).
pub(super) const MOST: f64 = 1e15;

impl Edge {
    /// Returns an edge from averages; the distribution of its response times is unknown.
    #[must_use]
    pub fn new(from: String, to: String, traffic: Traffic) -> Self {
        // An invalid report affects only the reporter's own calls, and must not make the graph unreadable.
        let rps = traffic.rps.min(MOST);
        Self {
            from,
            to,
            rps,
            latency_ms: traffic.latency_ms.min(MOST),
            p50_ms: None,
            p99_ms: None,
            failures: traffic.failures.min(rps),
            bytes_per_second: traffic.bytes_per_second.min(MOST),
            connections_per_second: traffic.connections.min(MOST),
            in_flight: traffic.in_flight.min(MOST),
        }
    }

    fn of(live: &LiveEdge<'_>) -> Self {
        let edge = Self::new(live.from.to_owned(), live.to.to_owned(), live.traffic);
        edge.with_times(&live.times, &live.spread)
    }

    pub(super) fn with_times(mut self, times: &Times, spread: &Spread) -> Self {
        let quantile = |share| times.quantile(share, self.latency_ms, spread);
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        self.p50_ms = p50.map(|ms| ms.min(MOST));
        self.p99_ms = p99.map(|ms| ms.min(MOST));
        self
    }
}

impl Snapshot {
    /// Returns the part of the graph that can be placed: if nodes are known, the services that run on some of them,
    /// and their calls.
    #[must_use]
    pub fn placed(&self) -> Self {
        let mut placed = self.clone();
        if !self.nodes.is_empty() {
            placed.services.retain(|one| !one.nodes.is_empty());
            let names: BTreeSet<&str> = placed.services.iter().map(|one| &*one.name).collect();
            let both = |edge: &Edge| names.contains(&*edge.from) && names.contains(&*edge.to);
            placed.edges.retain(both);
        }
        placed
    }

    /// Returns the routing of the most frequent calls in a graph that was built from this snapshot.
    #[must_use]
    pub fn routing(&self, graph: &Graph) -> Routing {
        let services = self.services.iter().filter(|one| one.local_first);
        let names: BTreeSet<&str> = services.map(|one| &*one.name).collect();
        Routing::of_most(graph, |name| names.contains(name))
    }

    /// Returns the part that can be placed in the format of `maglor plan placement --graph`: services and edges, with
    /// only the fields of this format.
    #[must_use]
    pub fn graph_file(&self) -> String {
        let placed = self.placed();
        let services = placed.services.iter().map(|one| {
            json!({
                "name": one.name,
                "replicas": one.replicas.max(1),
                "cpu_millis": one.cpu_millis,
                "memory_mib": one.memory_mib,
            })
        });
        let edges = placed.edges.iter().map(|one| {
            json!({
                "from": one.from,
                "to": one.to,
                "rps": one.rps,
                "latency_ms": one.latency_ms,
                "bytes_per_second": one.bytes_per_second,
            })
        });
        let services: Vec<_> = services.collect();
        let edges: Vec<_> = edges.collect();
        format!("{:#}\n", json!({"services": services, "edges": edges}))
    }

    /// Adds the delays between nodes that other replicas have observed.
    #[must_use]
    pub fn with_delays(mut self, others: Vec<Vec<Delay>>) -> Self {
        let own = std::mem::take(&mut self.delays);
        self.delays = delays::least(others.into_iter().chain([own]));
        self
    }

    /// Returns the delays of all pairs of nodes ([`delays::completed`]); empty if none are known.
    #[must_use]
    pub fn all_delays(&self) -> Vec<Delay> {
        let nodes = self.nodes.iter();
        let zones = nodes.map(|node| (&*node.name, node.zone.as_deref()));
        delays::completed(&zones.collect(), &self.delays)
    }

    /// Returns the nodes and the delays between them in the format of `maglor plan placement --nodes`.
    #[must_use]
    pub fn nodes_file(&self) -> String {
        let nodes = self.nodes.iter().cloned();
        // The format does not contain zones.
        let nodes = nodes.map(|node| Node { zone: None, ..node });
        let nodes: Vec<Node> = nodes.collect();
        let mut file = json!({"nodes": nodes});
        let delays = self.all_delays();
        if !delays.is_empty() {
            file["delays"] = json!(delays);
        }
        format!("{file:#}\n")
    }

    /// Returns the current placement in the format of `maglor plan placement --current`.
    #[must_use]
    pub fn placement_file(&self) -> String {
        let placed = self.services.iter().filter(|one| !one.nodes.is_empty());
        let placed: BTreeMap<_, _> = placed.map(|one| (&one.name, &one.nodes)).collect();
        format!("{:#}\n", json!({"placement": placed}))
    }
}
