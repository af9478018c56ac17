//! Metrics of the proxy's identity, of mesh handshakes, and of authorization.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maglor_identity::Refusal;
use maglor_telemetry::{Counter, CounterFamily, Gauge, Registry};

use crate::protocol::mesh_transport::Closed;

/// Metric families, with labels for the listener and for the cluster.
#[derive(Debug)]
pub(super) struct Families {
    handshakes: CounterFamily,
    refused: CounterFamily,
    upstream_refused: CounterFamily,
    authorization: CounterFamily,
    failed: CounterFamily,
    upstream_failed: CounterFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help, labels: &[&str]| registry.counter(name, help, labels);
        Self {
            handshakes: counter(
                "mesh_handshakes_total",
                "Successful TLS handshakes with mesh members, by kind.",
                &["listener", "kind"],
            ),
            refused: counter(
                "mesh_refused_total",
                "Client connections rejected by mutual TLS, by reason.",
                &["listener", "reason"],
            ),
            authorization: counter(
                "authorization_total",
                "Authorized and denied requests and connections, by decision and rule.",
                &["listener", "decision", "rule"],
            ),
            upstream_refused: counter(
                "upstream_mesh_refused_total",
                "Connections to endpoints whose identity could not be verified, by reason.",
                &["cluster", "reason"],
            ),
            failed: counter(
                "mesh_connections_failed_total",
                "Connections from mesh members closed because of a protocol violation, by reason.",
                &["listener", "reason"],
            ),
            upstream_failed: counter(
                "upstream_mesh_connections_failed_total",
                "Connections to mesh members closed because of a protocol violation, by reason.",
                &["cluster", "reason"],
            ),
        }
    }

    /// Returns the handles of a listener's failed connections.
    pub(super) fn listener_failures(&self, listener: &str) -> Failures {
        Failures::new(&self.failed, listener)
    }

    /// Returns the handles of a cluster's failed connections.
    pub(super) fn cluster_failures(&self, cluster: &str) -> Failures {
        Failures::new(&self.upstream_failed, cluster)
    }

    /// Returns the handles of a listener with mesh TLS.
    pub(super) fn listener(&self, listener: &str) -> MeshMetrics {
        MeshMetrics {
            full: self.handshakes.with(&[listener, "full"]),
            resumed: self.handshakes.with(&[listener, "resumed"]),
            refused: Refusals::new(&self.refused, listener),
        }
    }

    /// Returns the counter of a rule's decisions.
    pub(super) fn authorization(&self, listener: &str, decision: &str, rule: &str) -> Counter {
        self.authorization.with(&[listener, decision, rule])
    }

    /// Returns the handles of a cluster with mesh TLS.
    pub(super) fn cluster(&self, cluster: &str) -> Refusals {
        Refusals::new(&self.upstream_refused, cluster)
    }
}

/// Handles of a listener.
#[derive(Debug)]
pub(crate) struct MeshMetrics {
    /// Handshakes with certificates.
    pub(crate) full: Counter,
    /// Handshakes that resumed a session.
    pub(crate) resumed: Counter,
    pub(crate) refused: Refusals,
}

/// A counter for each reason of a refusal.
#[derive(Debug)]
pub(crate) struct Refusals([(Refusal, Counter); Refusal::ALL.len()]);

impl Refusals {
    fn new(family: &CounterFamily, whose: &str) -> Self {
        Self(Refusal::ALL.map(|reason| (reason, family.with(&[whose, reason.as_str()]))))
    }

    /// Counts a refusal. Any thread may do so, since refusals are rare.
    pub(crate) fn count(&self, reason: Refusal) {
        let found = self.0.iter().find(|(of, _)| *of == reason);
        if let Some((_, counter)) = found {
            counter.add_shared(1);
        }
    }
}

/// A counter for each kind of fault of a peer.
#[derive(Debug)]
pub(crate) struct Failures([Counter; Closed::FAULTS.len()]);

impl Failures {
    fn new(family: &CounterFamily, whose: &str) -> Self {
        Self(Closed::FAULTS.map(|reason| family.with(&[whose, reason])))
    }

    /// Counts a closed connection if the peer caused its end.
    pub(crate) fn count(&self, closed: Closed) {
        if let Some(fault) = closed.fault() {
            self.0[fault].add_shared(1);
        }
    }
}

/// Handles for the proxy's own identity, updated by the control thread.
#[derive(Debug)]
pub(crate) struct IdentityMetrics {
    expiry: Gauge,
    usable: Gauge,
    pub(crate) applied: Counter,
    pub(crate) refused: Counter,
    /// Certificates that the control plane has issued, and failed requests for one.
    pub(crate) certified: Counter,
    pub(crate) failed: Counter,
}

impl IdentityMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let reloads = registry.counter(
            "identity_reloads_total",
            "Changes of the identity or of its roots, by result.",
            &["result"],
        );
        let requests = registry.counter(
            "identity_requests_total",
            "Certificate requests to the control plane, by result.",
            &["result"],
        );
        let expiry = registry.gauge(
            "identity_expiry_seconds",
            "Expiry of the proxy's certificate, in seconds since the Unix epoch; 0 = no certificate.",
            &[],
        );
        let usable = registry.gauge(
            "identity_usable",
            "1 if the proxy's certificate is valid and verified by the trust bundle.",
            &[],
        );
        Self {
            expiry: expiry.with(&[]),
            usable: usable.with(&[]),
            applied: reloads.with(&["applied"]),
            refused: reloads.with(&["refused"]),
            certified: requests.with(&["certified"]),
            failed: requests.with(&["failed"]),
        }
    }

    /// Sets whether the current certificate is valid.
    pub(crate) fn set_usable(&self, usable: bool) {
        self.usable.set(i64::from(usable));
    }

    /// Sets the expiry of the current certificate; `None` if there is none.
    pub(crate) fn expires(&self, at: Option<SystemTime>) {
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let seconds = since.unwrap_or(Duration::ZERO).as_secs();
        self.expiry.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}
