//! Metrics of the queue protocol; see [`crate::mesh::load_feedback::queue_protocol`].

use maglor_telemetry::{Counter, CounterFamily, Gauge, GaugeFamily, Registry};

/// Metric families, with labels for the cluster of balancers and for the listener of servers' proxies.
#[derive(Debug)]
pub(super) struct Families {
    questions: CounterFamily,
    answers: CounterFamily,
    loads: CounterFamily,
    bounces: CounterFamily,
    fallbacks: CounterFamily,
    without_protocol: CounterFamily,
    samples: CounterFamily,
    in_flight: GaugeFamily,
    bounced: CounterFamily,
    notified: CounterFamily,
    reports: CounterFamily,
    reports_refused: CounterFamily,
    referrals: CounterFamily,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help, label| registry.counter(name, help, &[label]);
        Self {
            questions: counter(
                "exchange_questions_total",
                "Questions sent to servers' proxies and ledgers.",
                "cluster",
            ),
            answers: counter(
                "exchange_answers_total",
                "Answers received in time.",
                "cluster",
            ),
            loads: counter(
                "exchange_loads_heard_total",
                "Unsolicited load reports received from servers' proxies.",
                "cluster",
            ),
            bounces: counter(
                "exchange_bounces_total",
                "Requests sent back by a server's proxy because it was too busy.",
                "cluster",
            ),
            fallbacks: counter(
                "exchange_fallbacks_total",
                "Decisions made without the answer that the policy requested.",
                "cluster",
            ),
            without_protocol: counter(
                "exchange_strangers_total",
                "Requests sent by plain `lor` because the endpoint does not support the protocol.",
                "cluster",
            ),
            samples: registry.counter(
                "exchange_arrivals_total",
                "Requests, by the state of the server when they arrived: idle or busy.",
                &["listener", "server"],
            ),
            in_flight: registry.gauge(
                "exchange_in_flight",
                "Requests in flight at the server behind a listener.",
                &["listener"],
            ),
            bounced: counter(
                "exchange_refused_total",
                "Requests sent back to their balancer because of its admission limit.",
                "listener",
            ),
            notified: counter(
                "exchange_loads_told_total",
                "Unsolicited load reports sent to balancers.",
                "listener",
            ),
            reports: counter(
                "exchange_reports_total",
                "Reports sent to the host of a ledger.",
                "listener",
            ),
            reports_refused: counter(
                "exchange_reports_refused_total",
                "Reports rejected because their sender is not of the same workload.",
                "listener",
            ),
            referrals: counter(
                "exchange_referrals_total",
                "Questions answered by the ledger that this proxy hosts.",
                "listener",
            ),
        }
    }

    /// Returns the handles of a cluster.
    pub(super) fn cluster(&self, cluster: &str) -> QueueProtocolMetrics {
        QueueProtocolMetrics {
            questions: self.questions.with(&[cluster]),
            answers: self.answers.with(&[cluster]),
            loads: self.loads.with(&[cluster]),
            bounces: self.bounces.with(&[cluster]),
            fallbacks: self.fallbacks.with(&[cluster]),
            without_protocol: self.without_protocol.with(&[cluster]),
        }
    }

    /// Returns the handles of a listener.
    pub(super) fn load_reporter(&self, listener: &str) -> LoadReporterMetrics {
        LoadReporterMetrics {
            in_flight: self.in_flight.with(&[listener]),
            idle: self.samples.with(&[listener, "idle"]),
            busy: self.samples.with(&[listener, "busy"]),
            refused: self.bounced.with(&[listener]),
            notified: self.notified.with(&[listener]),
            reports: self.reports.with(&[listener]),
            reports_refused: self.reports_refused.with(&[listener]),
            referrals: self.referrals.with(&[listener]),
        }
    }
}

/// Handles of a cluster whose policy uses the queue protocol.
#[derive(Debug)]
pub(crate) struct QueueProtocolMetrics {
    pub(crate) questions: Counter,
    pub(crate) answers: Counter,
    pub(crate) loads: Counter,
    pub(crate) bounces: Counter,
    pub(crate) fallbacks: Counter,
    pub(crate) without_protocol: Counter,
}

/// Handles of a listener that reports its server's load.
#[derive(Debug)]
pub(crate) struct LoadReporterMetrics {
    pub(crate) in_flight: Gauge,
    pub(crate) idle: Counter,
    pub(crate) busy: Counter,
    pub(crate) refused: Counter,
    pub(crate) notified: Counter,
    pub(crate) reports: Counter,
    pub(crate) reports_refused: Counter,
    pub(crate) referrals: Counter,
}
