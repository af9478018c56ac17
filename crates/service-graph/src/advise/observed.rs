//! The input of Algorithm 2: the graph with the present usage of its vertices and the traffic of
//! its edges.

use std::collections::HashMap;

/// The state of the application at one moment, as averaged by Algorithm 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The vertices, with unique names.
    pub services: Vec<ServiceUse>,
    /// The edges, at most one for each pair of services.
    pub edges: Vec<EdgeUse>,
    /// The traffic splits among versions, at most one for each service.
    pub splits: Vec<SplitUse>,
    /// The free capacity of the nodes for further replicas; `None` = unknown, which is treated as no limit.
    pub room: Option<Room>,
}

/// A service, with the requests of its replicas and their usage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceUse {
    /// The name of the service.
    pub name: String,
    /// The number of running replicas; 0 = unknown.
    pub replicas: u32,
    /// The CPU request of one replica, in thousandths of a core.
    pub cpu_millis: u64,
    /// The memory request of one replica, in MiB.
    pub memory_mib: u64,
    /// The CPU limit of a replica, in thousandths of a core; `None` = no limit.
    pub cpu_limit_millis: Option<u64>,
    /// The memory limit of a replica, in MiB; `None` = no limit.
    pub memory_limit_mib: Option<u64>,
    /// The mean CPU usage of a replica, in thousandths of a core; `None` = unknown.
    pub cpu_used_millis: Option<f64>,
    /// The memory usage, in MiB, of the replica with the highest usage; `None` = unknown.
    pub memory_used_mib: Option<f64>,
    /// The usage of each container of a replica; empty = unknown.
    pub containers: Vec<ContainerUse>,
    /// The number of pending requests of all replicas together.
    pub pending: f64,
    /// The number of requests received per second, including those from outside the graph; `None` = the sum over the
    /// edges of the graph.
    pub rps: Option<f64>,
    /// Whether a HorizontalPodAutoscaler sets the number of replicas by their CPU usage relative to their request.
    pub autoscaled: bool,
}

/// The usage of a container of a service's replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerUse {
    /// The name of the container, unique in the service.
    pub name: String,
    /// The mean CPU usage in one replica, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// The memory usage, in MiB, in the replica in which the container uses most.
    pub memory_used_mib: f64,
}

/// The calls from one service to another: ⟨λ, r⟩ and further measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeUse {
    /// The name of the caller.
    pub from: String,
    /// The name of the called service.
    pub to: String,
    /// λ: the number of calls per second from all replicas of `from` together.
    pub rps: f64,
    /// r: the mean response time in milliseconds, measured by the caller; 0 = not measured.
    pub latency_ms: f64,
    /// The number of unfinished calls, or of open connections if there are no calls.
    pub in_flight: f64,
    /// The 99th percentile of the response time, in milliseconds; `None` = unknown.
    pub p99_ms: Option<f64>,
    /// The number of failing calls per second, included in `rps`.
    pub failures: f64,
    /// The longest deadline that the caller sends, in milliseconds; `None` = none.
    pub deadline_ms: Option<f64>,
}

/// A traffic split among versions of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitUse {
    /// The name of the service.
    pub service: String,
    /// The port of the service's Kubernetes Service.
    pub port: u16,
    /// The versions, with unique names.
    pub versions: Vec<VersionUse>,
}

/// The measurements of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionUse {
    /// The name of the version: its Service, or a subset of the Service.
    pub name: String,
    /// Whether the version is a subset, which is a part of the Service itself (Istio's `DestinationRule`).
    pub subset: bool,
    /// The weight of the version, relative to the other versions.
    pub weight: u32,
    /// The number of replicas of the version; 0 = unknown.
    pub replicas: u32,
    /// λ: the number of calls to the version per second.
    pub rps: f64,
    /// r: the mean response time of the version's calls, in milliseconds.
    pub latency_ms: f64,
    /// The number of failing calls per second, included in `rps`.
    pub failures: f64,
}

/// The free capacity of a node, or of all nodes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A snapshot with indexes by service name.
#[derive(Clone, Debug, Default)]
pub(super) struct Around<'a> {
    into: HashMap<&'a str, Vec<&'a EdgeUse>>,
    out: HashMap<&'a str, Vec<&'a EdgeUse>>,
    replicas: HashMap<&'a str, u32>,
}

impl<'a> Around<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let mut around = Self::default();
        for edge in &snapshot.edges {
            around.into.entry(&edge.to).or_default().push(edge);
            around.out.entry(&edge.from).or_default().push(edge);
        }
        let services = snapshot.services.iter();
        around.replicas = services.map(|one| (&*one.name, one.replicas)).collect();
        around
    }

    /// Returns the edges of calls to a service, including its calls to itself.
    pub(super) fn into(&self, service: &str) -> &[&'a EdgeUse] {
        self.into.get(service).map_or(&[], Vec::as_slice)
    }

    /// Returns the edges of calls from a service, including its calls to itself.
    pub(super) fn out(&self, service: &str) -> &[&'a EdgeUse] {
        self.out.get(service).map_or(&[], Vec::as_slice)
    }

    /// Returns the requests per second that a service receives.
    pub(super) fn rps(&self, service: &ServiceUse) -> f64 {
        let edges = self.into(&service.name).iter();
        service
            .rps
            .unwrap_or_else(|| edges.map(|edge| edge.rps).sum())
    }

    /// Returns the number of replicas of a calling service; 1 if it is unknown.
    pub(super) fn callers(&self, name: &str) -> u32 {
        self.replicas.get(name).map_or(1, |count| (*count).max(1))
    }
}
