//! The input of Algorithm 2: the graph with what its vertices use and its edges carry, now.

use std::collections::HashMap;

/// The application at one moment, as Algorithm 1 averages it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The vertices, each name once at most.
    pub services: Vec<ServiceUse>,
    /// The edges, each pair once at most.
    pub edges: Vec<EdgeUse>,
    /// How requests are divided among versions, each service once at most.
    pub splits: Vec<SplitUse>,
    /// What the nodes have left for further replicas; None: it is not known, and no limit.
    pub room: Option<Room>,
}

/// A service: what its replicas ask for, and what they use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceUse {
    /// Its name.
    pub name: String,
    /// Replicas that run; 0: it is not known.
    pub replicas: u32,
    /// CPU that one replica requests, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory that one replica requests, in MiB.
    pub memory_mib: u64,
    /// A replica's CPU limit in thousandths of a core.
    pub cpu_limit_millis: Option<u64>,
    /// A replica's memory limit in MiB.
    pub memory_limit_mib: Option<u64>,
    /// CPU in use by a replica, the mean, in thousandths of a core, if known.
    pub cpu_used_millis: Option<f64>,
    /// Memory in use by the replica that uses most, in MiB, if known.
    pub memory_used_mib: Option<f64>,
    /// What each container of a replica uses, if known.
    pub containers: Vec<ContainerUse>,
    /// Requests that wait for a replica, of all replicas together.
    pub pending: f64,
    /// Requests a second that it takes, from outside of the graph, too; None: those of its edges.
    pub rps: Option<f64>,
    /// A HorizontalPodAutoscaler decides on its replicas, by their CPU relative to what they request.
    pub autoscaled: bool,
}

/// A container of the replicas of a service, and what it uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerUse {
    /// Its name, each once at most.
    pub name: String,
    /// CPU in use in one replica, the mean, in thousandths of a core.
    pub cpu_used_millis: f64,
    /// Memory in use in the replica where it uses most, in MiB.
    pub memory_used_mib: f64,
}

/// Calls of one service by another: ⟨λ, r⟩ and what goes with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeUse {
    /// Who calls.
    pub from: String,
    /// Who is called.
    pub to: String,
    /// λ: calls a second of all replicas of `from` together.
    pub rps: f64,
    /// r: mean response time in milliseconds, as the caller sees it; 0 if not measured.
    pub latency_ms: f64,
    /// Calls that have not ended; where there are no calls, connections that are open.
    pub in_flight: f64,
    /// The 99th percentile of the response time in milliseconds, if known.
    pub p99_ms: Option<f64>,
    /// Calls a second that fail, of `rps`.
    pub failures: f64,
    /// How long the caller waits at most, in milliseconds, where it says so.
    pub deadline_ms: Option<f64>,
}

/// A service whose requests are divided among versions of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitUse {
    /// Its name.
    pub service: String,
    /// The port of its Service.
    pub port: u16,
    /// The versions, each name once.
    pub versions: Vec<VersionUse>,
}

/// A version, and how it fares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionUse {
    /// Its Service, or the subset of the Service that is divided.
    pub name: String,
    /// It is a subset: a part of the Service itself (Istio's `DestinationRule`).
    pub subset: bool,
    /// Its share of the requests, relative to the other versions'.
    pub weight: u32,
    /// Its replicas; 0: it is not known.
    pub replicas: u32,
    /// λ: calls a second that it takes.
    pub rps: f64,
    /// r: their mean response time in milliseconds.
    pub latency_ms: f64,
    /// Calls a second that fail, of `rps`.
    pub failures: f64,
}

/// What is left.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A snapshot, with what is asked of it service by service looked up once.
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

    /// The calls that a service takes, its own among them.
    pub(super) fn into(&self, service: &str) -> &[&'a EdgeUse] {
        self.into.get(service).map_or(&[], Vec::as_slice)
    }

    /// The calls that it makes, those to itself among them.
    pub(super) fn out(&self, service: &str) -> &[&'a EdgeUse] {
        self.out.get(service).map_or(&[], Vec::as_slice)
    }

    /// Requests a second that a service takes.
    pub(super) fn rps(&self, service: &ServiceUse) -> f64 {
        let edges = self.into(&service.name).iter();
        service
            .rps
            .unwrap_or_else(|| edges.map(|edge| edge.rps).sum())
    }

    /// How many replicas of a service call; 1 if unknown.
    pub(super) fn callers(&self, name: &str) -> u32 {
        self.replicas.get(name).map_or(1, |count| (*count).max(1))
    }
}
