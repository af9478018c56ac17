//! The input of Algorithm 2: the graph with the present usage of its vertices and the traffic of
//! its edges.

use std::collections::HashMap;

/// The application at one moment, as averaged by Algorithm 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The vertices, with unique names.
    pub services: Vec<ServiceUse>,
    /// The edges, at most one for each pair.
    pub edges: Vec<EdgeUse>,
    /// The traffic splits among versions, at most one for each service.
    pub splits: Vec<SplitUse>,
    /// The free capacity of the nodes for further replicas; `None`: unknown, and no limit.
    pub room: Option<Room>,
}

/// A service: the requests of its replicas, and their usage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceUse {
    /// Its name.
    pub name: String,
    /// The number of running replicas; 0: unknown.
    pub replicas: u32,
    /// The CPU request of one replica, in thousandths of a core.
    pub cpu_millis: u64,
    /// The memory request of one replica, in MiB.
    pub memory_mib: u64,
    /// A replica's CPU limit in thousandths of a core.
    pub cpu_limit_millis: Option<u64>,
    /// A replica's memory limit in MiB.
    pub memory_limit_mib: Option<u64>,
    /// The mean CPU usage of a replica, in thousandths of a core, if known.
    pub cpu_used_millis: Option<f64>,
    /// The memory usage of the replica that uses most, in MiB, if known.
    pub memory_used_mib: Option<f64>,
    /// The usage of each container of a replica, if known.
    pub containers: Vec<ContainerUse>,
    /// The number of pending requests of all replicas together.
    pub pending: f64,
    /// The received requests per second, including those from outside of the graph; `None`: those
    /// of its edges.
    pub rps: Option<f64>,
    /// Whether a HorizontalPodAutoscaler sets its replicas, by their CPU relative to their request.
    pub autoscaled: bool,
}

/// The usage of a container of a service's replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerUse {
    /// Its name, unique in the service.
    pub name: String,
    /// The mean CPU usage in one replica, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// The memory usage in the replica where it uses most, in MiB.
    pub memory_used_mib: f64,
}

/// The calls of one service by another: ⟨λ, r⟩ and further measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeUse {
    /// The caller.
    pub from: String,
    /// The called service.
    pub to: String,
    /// λ: calls a second of all replicas of `from` together.
    pub rps: f64,
    /// r: mean response time in milliseconds, measured by the caller; 0 if not measured.
    pub latency_ms: f64,
    /// Unfinished calls, or open connections if there are no calls.
    pub in_flight: f64,
    /// The 99th percentile of the response time in milliseconds, if known.
    pub p99_ms: Option<f64>,
    /// The failing calls per second, out of `rps`.
    pub failures: f64,
    /// The longest deadline of the caller, in milliseconds, if it sends one.
    pub deadline_ms: Option<f64>,
}

/// A traffic split among versions of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitUse {
    /// Its name.
    pub service: String,
    /// The port of its Service.
    pub port: u16,
    /// The versions, with unique names.
    pub versions: Vec<VersionUse>,
}

/// The measurements of a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionUse {
    /// Its Service, or the subset of the Service.
    pub name: String,
    /// Whether it is a subset: a part of the Service itself (Istio's `DestinationRule`).
    pub subset: bool,
    /// Its weight, relative to the other versions'.
    pub weight: u32,
    /// The number of its replicas; 0: unknown.
    pub replicas: u32,
    /// λ: its calls per second.
    pub rps: f64,
    /// r: their mean response time in milliseconds.
    pub latency_ms: f64,
    /// The failing calls per second, out of `rps`.
    pub failures: f64,
}

/// Free capacity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A snapshot with indexes by service.
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

    /// Returns the received calls of a service, including those by itself.
    pub(super) fn into(&self, service: &str) -> &[&'a EdgeUse] {
        self.into.get(service).map_or(&[], Vec::as_slice)
    }

    /// Returns the calls made by a service, including those to itself.
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

    /// Returns the number of replicas of a calling service; 1 if unknown.
    pub(super) fn callers(&self, name: &str) -> u32 {
        self.replicas.get(name).map_or(1, |count| (*count).max(1))
    }
}
