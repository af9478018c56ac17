//! Metrics of admission requests.

use maglor_telemetry::{Counter, Registry};

use super::admission::{Word, asked};

/// Counters by webhook and decision.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics(Vec<((&'static str, Word), Counter)>);

impl AdmissionMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let admissions = registry.counter(
            "controller_admissions_total",
            "Admission requests, by webhook and decision.",
            &["webhook", "decision"],
        );
        let each =
            asked().map(|(webhook, word)| ((webhook, word), admissions.with(&[webhook, word])));
        Self(each.collect())
    }

    /// Counts a decision of a webhook.
    pub(super) fn count(&self, webhook: &str, decision: &str) {
        let known = self.0.iter();
        for (_, counter) in known.filter(|(labels, _)| *labels == (webhook, decision)) {
            counter.add_shared(1);
        }
    }
}
