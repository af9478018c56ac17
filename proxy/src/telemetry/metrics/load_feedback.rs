//! What is counted of the messages about queues; see [`crate::mesh::load_feedback::queue_protocol`].

use maglor_telemetry::{Counter, CounterFamily, Gauge, GaugeFamily, Registry};

/// Families, by cluster for balancers and by listener for servers' proxies.
#[derive(Debug)]
pub(super) struct Families {
    questions: CounterFamily,
    answers: CounterFamily,
    heard: CounterFamily,
    bounces: CounterFamily,
    fallbacks: CounterFamily,
    strangers: CounterFamily,
    samples: CounterFamily,
    in_flight: GaugeFamily,
    bounced: CounterFamily,
    told: CounterFamily,
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
                "Questions put to servers' proxies and ledgers.",
                "cluster",
            ),
            answers: counter(
                "exchange_answers_total",
                "Answers that came in time.",
                "cluster",
            ),
            heard: counter(
                "exchange_loads_heard_total",
                "Loads that servers' proxies told of their own accord.",
                "cluster",
            ),
            bounces: counter(
                "exchange_bounces_total",
                "Requests sent back by a server's proxy because it was too busy.",
                "cluster",
            ),
            fallbacks: counter(
                "exchange_fallbacks_total",
                "Decisions made without the answer that the policy wanted.",
                "cluster",
            ),
            strangers: counter(
                "exchange_strangers_total",
                "Requests sent by plain `lor` because the endpoint does not speak the protocol.",
                "cluster",
            ),
            samples: registry.counter(
                "exchange_arrivals_total",
                "Requests, by how they found the server: idle, or busy.",
                &["listener", "server"],
            ),
            in_flight: registry.gauge(
                "exchange_in_flight",
                "Requests in flight at the server behind a listener.",
                &["listener"],
            ),
            bounced: counter(
                "exchange_refused_total",
                "Requests sent back to their balancer because of its limit.",
                "listener",
            ),
            told: counter(
                "exchange_loads_told_total",
                "Loads told to balancers of the server's own accord.",
                "listener",
            ),
            reports: counter(
                "exchange_reports_total",
                "Reports sent to the host of a ledger.",
                "listener",
            ),
            reports_refused: counter(
                "exchange_reports_refused_total",
                "Reports from members of the mesh that are not of the same workload.",
                "listener",
            ),
            referrals: counter(
                "exchange_referrals_total",
                "Questions answered by the ledger that this proxy hosts.",
                "listener",
            ),
        }
    }

    /// Handles of a cluster.
    pub(super) fn cluster(&self, cluster: &str) -> ExchangeMetrics {
        ExchangeMetrics {
            questions: self.questions.with(&[cluster]),
            answers: self.answers.with(&[cluster]),
            heard: self.heard.with(&[cluster]),
            bounces: self.bounces.with(&[cluster]),
            fallbacks: self.fallbacks.with(&[cluster]),
            strangers: self.strangers.with(&[cluster]),
        }
    }

    /// Handles of a listener.
    pub(super) fn station(&self, listener: &str) -> StationMetrics {
        StationMetrics {
            in_flight: self.in_flight.with(&[listener]),
            idle: self.samples.with(&[listener, "idle"]),
            busy: self.samples.with(&[listener, "busy"]),
            refused: self.bounced.with(&[listener]),
            told: self.told.with(&[listener]),
            reports: self.reports.with(&[listener]),
            reports_refused: self.reports_refused.with(&[listener]),
            referrals: self.referrals.with(&[listener]),
        }
    }
}

/// Handles of a cluster whose policy talks to endpoints.
#[derive(Debug)]
pub(crate) struct ExchangeMetrics {
    pub(crate) questions: Counter,
    pub(crate) answers: Counter,
    pub(crate) heard: Counter,
    pub(crate) bounces: Counter,
    pub(crate) fallbacks: Counter,
    pub(crate) strangers: Counter,
}

/// Handles of a listener that reports loads.
#[derive(Debug)]
pub(crate) struct StationMetrics {
    pub(crate) in_flight: Gauge,
    pub(crate) idle: Counter,
    pub(crate) busy: Counter,
    pub(crate) refused: Counter,
    pub(crate) told: Counter,
    pub(crate) reports: Counter,
    pub(crate) reports_refused: Counter,
    pub(crate) referrals: Counter,
}
