//! Metrics of admission requests.

use maglor_telemetry::{Counter, Registry};

/// Counters by webhook and decision.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics(Vec<((&'static str, &'static str), Counter)>);

impl AdmissionMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let admissions = registry.counter(
            "controller_admissions_total",
            "Admission requests, by webhook and decision.",
            &["webhook", "decision"],
        );
        let each =
            decisions().map(|(webhook, word)| ((webhook, word), admissions.with(&[webhook, word])));
        Self(each.collect())
    }

    /// Counts a decision of a webhook.
    pub(crate) fn count(&self, webhook: &str, decision: &str) {
        let known = self.0.iter();
        for (_, counter) in known.filter(|(labels, _)| *labels == (webhook, decision)) {
            counter.add_shared(1);
        }
    }
}

/// Returns each webhook with each of its possible outcomes.
pub(crate) fn decisions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let inject = ["failed", "injected", "refused", "repaired"].into_iter();
    let inject =
        inject.chain(maglor_manifests::inject::Skip::ALL.map(maglor_manifests::inject::Skip::word));
    let keys = ["accepted", "refused", "warned"].map(|word| ("keys", word));
    let validate = ["accepted", "refused"].map(|word| ("validate", word));
    let inject = inject.map(|word| ("inject", word));
    inject.chain(keys).chain(validate)
}
