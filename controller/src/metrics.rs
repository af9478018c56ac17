//! Metrics of the controller. Names and labels are documented in docs/controller.md.

pub(crate) mod admissions;
pub(crate) mod on_call;
pub(crate) mod writes;

use std::time::Duration;

use maglor_service_graph::tune::Part;
use maglor_telemetry::metrics::Exposition;
use maglor_telemetry::{Buckets, Counter, Gauge, Histogram, Registry};

use crate::clients::{ClientMetrics, PORTS};
use crate::identity::certify::CertifyMetrics;
use crate::identity::rotation::Phase;
use crate::index::facts::Kind;
use crate::index::{Change, ResourceKind};
use crate::resource_server::Table;
use crate::source::Event;
use admissions::AdmissionMetrics;
use on_call::OnCall;
use writes::WriteMetrics;

/// All metric families of the controller.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Counters of events by kind.
    events: Vec<(Kind, Counter)>,
    changes: Vec<(ResourceKind, Counter)>,
    refused: Counter,
    unserved: Counter,
    update: Histogram,
    leader: Gauge,
    rotation: [(Phase, Gauge); Phase::ALL.len()],
    authority_refused: Gauge,
    pub(crate) certificates: CertifyMetrics,
    pub(crate) on_call: OnCall,
    pub(crate) writes: WriteMetrics,
    clients: [(&'static str, ClientMetrics); PORTS.len()],
    pub(crate) placement: PlacementMetrics,
    pub(crate) tuning: TuningMetrics,
    sessions: [(&'static str, Gauge); 2],
    pub(crate) admissions: AdmissionMetrics,
}

/// Metrics of moved pods.
#[derive(Clone, Debug)]
pub(crate) struct PlacementMetrics {
    begun: Counter,
    done: Counter,
    abandoned: Counter,
    rolled_back: Counter,
    moving: Gauge,
}

impl PlacementMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let moves = registry.counter(
            "controller_placement_moves_total",
            "Pod moves, by result.",
            &["result"],
        );
        let rolled_back = registry.counter(
            "controller_placement_rolled_back_total",
            "Services moved back because a move degraded them.",
            &[],
        );
        let moving = registry.gauge(
            "controller_placement_moving",
            "Pods waiting for their replacement.",
            &[],
        );
        Self {
            begun: moves.with(&["begun"]),
            done: moves.with(&["done"]),
            abandoned: moves.with(&["given_up"]),
            rolled_back: rolled_back.with(&[]),
            moving: moving.with(&[]),
        }
    }

    pub(crate) fn begun(&self) {
        self.begun.add_shared(1);
    }

    pub(crate) fn done(&self) {
        self.done.add_shared(1);
    }

    pub(crate) fn abandoned(&self) {
        self.abandoned.add_shared(1);
    }

    pub(crate) fn rolled_back(&self) {
        self.rolled_back.add_shared(1);
    }

    pub(crate) fn moving(&self, pods: usize) {
        self.moving.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }
}

/// The outcome of a change by a `TuningPolicy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tuned {
    Done,
    Missed,
    TakenBack,
}

/// Metrics of tuned services.
#[derive(Clone, Debug)]
pub(crate) struct TuningMetrics(Vec<((Part, Tuned), Counter)>);

impl TuningMetrics {
    fn new(registry: &Registry) -> Self {
        let changes = registry.counter(
            "controller_tuning_changes_total",
            "Changes by TuningPolicies, by part and result.",
            &["part", "result"],
        );
        let results = [
            (Tuned::Done, "done"),
            (Tuned::Missed, "missed"),
            (Tuned::TakenBack, "taken_back"),
        ];
        let parts = Part::ALL.map(|part| match part {
            Part::Replicas => (part, "replicas"),
            Part::Requests => (part, "requests"),
            Part::Traffic => (part, "traffic"),
        });
        let all = parts.into_iter().flat_map(|(part, name)| {
            let each = results.map(|(result, word)| ((part, result), changes.with(&[name, word])));
            each.into_iter()
        });
        Self(all.collect())
    }

    pub(crate) fn count(&self, part: Part, result: Tuned) {
        let known = self.0.iter();
        for (_, counter) in known.filter(|(labels, _)| *labels == (part, result)) {
            counter.add_shared(1);
        }
    }
}

const KINDS: [ResourceKind; 5] = [
    ResourceKind::Cluster,
    ResourceKind::Endpoints,
    ResourceKind::Inbound,
    ResourceKind::Listener,
    ResourceKind::Routes,
];

fn word(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Cluster => "cluster",
        ResourceKind::Endpoints => "endpoints",
        ResourceKind::Inbound => "inbound",
        ResourceKind::Listener => "listener",
        ResourceKind::Routes => "routes",
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new(1);
        registry.describe_process("maglor-controller", env!("CARGO_PKG_VERSION"));
        let count = |name: &str, help: &str, labels: &[&str]| registry.counter(name, help, labels);
        let events = count(
            "controller_events_total",
            "Resources added or removed, by kind.",
            &["kind"],
        );
        let changes = count(
            "controller_changes_total",
            "xDS resources added, changed or removed, by kind.",
            &["kind"],
        );
        let sessions = registry.gauge(
            "controller_sessions",
            "Connected clients, by protocol.",
            &["protocol"],
        );
        Self {
            events: Kind::ALL
                .map(|kind| (kind, events.with(&[kind.label()])))
                .into(),
            changes: KINDS.map(|kind| (kind, changes.with(&[word(kind)]))).into(),
            sessions: ["delta", "sotw"].map(|protocol| (protocol, sessions.with(&[protocol]))),
            refused: count(
                "controller_refused_total",
                "Invalid objects.",
                &[],
            )
            .with(&[]),
            unserved: count(
                "controller_unserved_total",
                "xDS resources that could not be encoded.",
                &[],
            )
            .with(&[]),
            update: registry
                .histogram(
                    "controller_update_seconds",
                    "Delay from an event to the published resources, in seconds.",
                    &[],
                    Buckets::latency(),
                )
                .with(&[]),
            leader: registry
                .gauge("controller_leader", "1 while this replica is the leader.", &[])
                .with(&[]),
            authority_refused: registry
                .gauge(
                    "controller_authority_refused",
                    "1 while the authority of the Secret or directory is invalid and the last valid one is in use.",
                    &[],
                )
                .with(&[]),
            rotation: {
                let family = registry.gauge(
                    "controller_rotation",
                    "1 for the current phase of the root rotation.",
                    &["phase"],
                );
                Phase::ALL.map(|phase| (phase, family.with(&[phase.word()])))
            },
            admissions: AdmissionMetrics::new(&registry),
            certificates: CertifyMetrics::new(&registry),
            on_call: OnCall::new(&registry),
            writes: WriteMetrics::new(&registry),
            clients: ClientMetrics::of_ports(&registry),
            placement: PlacementMetrics::new(&registry),
            tuning: TuningMetrics::new(&registry),
            registry,
        }
    }

    pub(crate) fn took(&self, event: &Event) {
        let (kind, n) = match event {
            Event::Apply(object) => (object.kind, 1),
            Event::Delete(kind, _) => (*kind, 1),
            Event::Pruned(_) => return,
            Event::Refused { .. } => return self.refused.add_shared(1),
            Event::Reset { kind, objects, .. } => (*kind, objects.len()),
        };
        let n = u64::try_from(n).unwrap_or(u64::MAX);
        for (_, counter) in self.events.iter().filter(|(one, _)| *one == kind) {
            counter.add_shared(n);
        }
    }

    pub(crate) fn gave(&self, changes: &[Change], unserved: u64, time: Duration) {
        for change in changes {
            let (Change::Remove(id) | Change::Set(id, _)) = change;
            for (_, counter) in self.changes.iter().filter(|(one, _)| *one == id.kind) {
                counter.add_shared(1);
            }
        }
        self.unserved.add_shared(unserved);
        self.update.observe_shared(time);
    }

    /// Returns the client metrics of a port, which must be one of [`PORTS`].
    pub(crate) fn clients(&self, port: &'static str) -> ClientMetrics {
        let mut all = self.clients.iter();
        let found = all.find(|(name, _)| *name == port);
        found.unwrap_or(&self.clients[0]).1.clone()
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Sets the phase of a root rotation, and whether the current content of the source was rejected.
    pub(crate) fn rotation(&self, now: Phase, refused: bool) {
        self.authority_refused.set(i64::from(refused));
        for (phase, gauge) in &self.rotation {
            gauge.set(i64::from(*phase == now));
        }
    }

    /// Encodes all metrics for a client that accepts these formats and encodings.
    pub(crate) fn expose(&self, table: &Table, accept: &str, accept_encoding: &str) -> Exposition {
        self.refresh(table);
        self.registry.expose(accept, accept_encoding)
    }

    /// Updates gauges from state that is held elsewhere.
    fn refresh(&self, table: &Table) {
        for (protocol, count) in table.protocols() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            for (_, gauge) in self.sessions.iter().filter(|(one, _)| *one == protocol) {
                gauge.set(count);
            }
        }
        self.on_call.refresh(table.longest_unanswered());
    }
}
