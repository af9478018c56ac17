//! Metrics of retries, limits, ejection and health.

use std::sync::{Arc, Mutex, PoisonError};

use maglor_balance::View;
use maglor_balance::guard::breaker::Phase;
use maglor_balance::guard::outlier::{Finding, Spared};
use maglor_balance::guard::retry::GiveUp;
use maglor_telemetry::{Counter, CounterFamily, Gauge, GaugeFamily, Registry};

/// Metric families with a label for the cluster.
#[derive(Debug)]
pub(super) struct Families {
    retries: CounterFamily,
    retries_suppressed: CounterFamily,
    overflows: CounterFamily,
    ejections: CounterFamily,
    ejections_spared: CounterFamily,
    ejected: GaugeFamily,
    breaker: GaugeFamily,
    endpoints: GaugeFamily,
    available: GaugeFamily,
    panic: GaugeFamily,
    health_checks: CounterFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| registry.gauge(name, help, &["cluster"]);
        let counter = |name, help, label| registry.counter(name, help, &["cluster", label]);
        Self {
            retries: registry.counter(
                "upstream_retries_total",
                "Retries of requests.",
                &["cluster"],
            ),
            retries_suppressed: counter(
                "upstream_retries_suppressed_total",
                "Retriable failures that were not retried, by reason.",
                "reason",
            ),
            overflows: counter(
                "upstream_overflows_total",
                "Requests rejected with 503 because of a limit, by limit.",
                "reason",
            ),
            ejections: counter(
                "upstream_ejections_total",
                "Ejections of endpoints as outliers, by detector.",
                "reason",
            ),
            ejections_spared: counter(
                "upstream_ejections_spared_total",
                "Outliers that were not ejected, by reason.",
                "reason",
            ),
            ejected: gauge("upstream_ejected_endpoints", "Ejected endpoints."),
            breaker: gauge(
                "upstream_circuit_breaker_state",
                "State of the circuit breaker: 0 = closed, 1 = half-open, 2 = open.",
            ),
            endpoints: gauge("upstream_endpoints", "Known endpoints."),
            available: gauge(
                "upstream_available_endpoints",
                "Endpoints that are healthy, not ejected and not draining.",
            ),
            panic: gauge(
                "upstream_panic",
                "1 while so few endpoints are available that all of them are used.",
            ),
            health_checks: counter(
                "upstream_health_checks_total",
                "Active health checks, by result.",
                "result",
            ),
        }
    }

    /// Returns the handles of a cluster.
    pub(super) fn cluster(&self, cluster: &str) -> GuardMetrics {
        GuardMetrics {
            retries: self.retries.with(&[cluster]),
            ejected: self.ejected.with(&[cluster]),
            breaker: self.breaker.with(&[cluster]),
            endpoints: self.endpoints.with(&[cluster]),
            available: self.available.with(&[cluster]),
            panic: self.panic.with(&[cluster]),
            retries_suppressed: Reasons::new(&self.retries_suppressed, cluster),
            overflows: Reasons::new(&self.overflows, cluster),
            ejections: Reasons::new(&self.ejections, cluster),
            ejections_spared: Reasons::new(&self.ejections_spared, cluster),
            health_checks: Reasons::new(&self.health_checks, cluster),
        }
    }
}

/// Handles of a cluster.
#[derive(Debug)]
pub(crate) struct GuardMetrics {
    pub(crate) retries: Counter,
    pub(crate) ejected: Gauge,
    breaker: Gauge,
    endpoints: Gauge,
    available: Gauge,
    panic: Gauge,
    retries_suppressed: Reasons,
    overflows: Reasons,
    ejections: Reasons,
    ejections_spared: Reasons,
    health_checks: Reasons,
}

impl GuardMetrics {
    /// Counts a failure of a retriable kind that was not retried.
    pub(crate) fn retry_suppressed(&self, reason: GiveUp) {
        self.retries_suppressed.count(reason.name());
    }

    /// Counts a request that was not admitted.
    pub(crate) fn overflow(&self, reason: &'static str) {
        self.overflows.count(reason);
    }

    pub(crate) fn ejection(&self, finding: Finding) {
        self.ejections.count(finding.name());
    }

    pub(crate) fn ejection_spared(&self, why: Spared) {
        self.ejections_spared.count(why.name());
    }

    pub(crate) fn health_check(&self, passed: bool) {
        let result = if passed { "passed" } else { "failed" };
        self.health_checks.count(result);
    }

    /// Copies the state of the endpoints from a view; called before the metrics are exposed.
    pub(crate) fn observe(&self, view: &View) {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.endpoints.set(count(view.len()));
        self.available.set(count(view.available()));
        self.panic.set(i64::from(view.in_panic()));
    }

    pub(crate) fn breaker(&self, phase: Phase) {
        self.breaker.set(phase as i64);
    }
}

/// Counters of one cluster by reason. The time series of a reason begins when it first occurs, because most clusters
/// need none.
#[derive(Debug)]
struct Reasons {
    family: CounterFamily,
    cluster: Arc<str>,
    /// Counters by reason; a series lasts as long as its handle.
    met: Mutex<Vec<(&'static str, Counter)>>,
}

impl Reasons {
    fn new(family: &CounterFamily, cluster: &str) -> Self {
        Self {
            family: family.clone(),
            cluster: cluster.into(),
            met: Mutex::default(),
        }
    }

    fn count(&self, reason: &'static str) {
        // No panic can occur while the lock is held.
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let at = met.iter().position(|(known, _)| *known == reason);
        let at = at.unwrap_or_else(|| {
            met.push((reason, self.family.with(&[&*self.cluster, reason])));
            met.len() - 1
        });
        met[at].1.add_shared(1);
    }
}
