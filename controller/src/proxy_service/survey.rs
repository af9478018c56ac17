//! The status of a `ProxyService` without a `targetRef`.

use std::cmp::Ordering;

use maglor_service_graph::policy_choice::{Choice, View};
use serde_json::{Value, json};

use super::observed::Claim;
use super::progress::auto_status_of;
use crate::crd::{Condition, ProxyServiceSpec, ServiceBalance};
use crate::index::facts::Key;

/// Maximum number of Services that a status lists, which take about 25 kB in the API server.
const LISTED: usize = 100;

/// A Service that is called by sidecars.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) service: Key,
    /// Current balancing mode of the Service.
    pub(super) current: Choice,
    /// Why the Service cannot have proxies; `None` if it can.
    pub(super) reason: Option<&'static str>,
    /// Observations of the Service; `None` if there are none.
    pub(super) view: Option<View>,
}

impl Entry {
    /// Returns the fraction of the Service's latency that the best mode would save.
    fn gain(&self) -> f64 {
        let gain = |view: &View| {
            let measured = view.measured.as_secs_f64().max(f64::MIN_POSITIVE);
            1.0 - view.predicted.as_secs_f64() / measured
        };
        self.view.as_ref().map_or(0.0, gain)
    }

    /// Orders Services whose balancing was changed first, then those with the largest gain.
    fn rank(&self, other: &Self) -> Ordering {
        let idle = |entry: &Self| entry.current == Choice::Local;
        let gain = other.gain().total_cmp(&self.gain());
        let first = idle(self).cmp(&idle(other)).then(gain);
        first.then_with(|| self.service.cmp(&other.service))
    }
}

/// Returns the status, without times.
pub(super) fn status(claim: &Claim, mut entries: Vec<Entry>) -> Value {
    entries.sort_by(Entry::rank);
    let left_out = entries.len().saturating_sub(LISTED);
    let listed = |entry: &Entry| ServiceBalance {
        name: entry.service.to_string(),
        balancing: entry.current.name().to_owned(),
        reason: entry.reason.map(str::to_owned),
        auto: entry.view.as_ref().map(auto_status_of),
    };
    let services: Vec<ServiceBalance> = entries.iter().take(LISTED).map(listed).collect();
    let mut status = json!({"conditions": conditions(claim)});
    if claim.spec.is_ok() {
        status["services"] = json!(services);
        status["servicesLeftOut"] = json!(left_out);
    }
    status
}

fn conditions(claim: &Claim) -> Vec<Condition> {
    let condition = |kind: &str, holds, reason: &str, message: &str| {
        Condition::new(kind, holds, reason, message, claim.generation)
    };
    let spec = match &claim.spec {
        Ok(spec) => spec,
        Err(problem) => {
            return ["Accepted", "Ready"]
                .map(|kind| condition(kind, false, "Invalid", problem))
                .to_vec();
        }
    };
    let (ready, reason, message) = match (claim.deleting, spec.dry_run()) {
        (true, _) => (false, "Withdrawing", "changes are reverted"),
        (false, true) => (false, "DryRun", "dryRun: no changes are made"),
        (false, false) => (true, "Governing", "recommended changes are applied"),
    };
    vec![
        condition("Accepted", true, "Accepted", "preconditions are met"),
        condition("Ready", ready, reason, message),
    ]
}

/// Returns the parts of a status that are written without delay: the balancing of each Service, and the conditions.
pub(super) fn urgent(status: &Value) -> Value {
    let services = status["services"].as_array().into_iter().flatten();
    let changed = services.filter(|one| one["balancing"] != Choice::Local.name());
    let mut changed: Vec<_> = changed
        .map(|one| (one["name"].to_string(), one["balancing"].to_string()))
        .collect();
    changed.sort();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let held: Vec<_> = conditions
        .map(|one| [&one["reason"], &one["message"], &one["observedGeneration"]])
        .collect();
    json!([changed, held])
}

/// Returns whether policies of callers' sidecars may be chosen for a Service: all of its pods have sidecars, and no
/// other policy sets its load balancing.
pub(super) fn may_collaborate(spec: &ProxyServiceSpec, meshed: bool, spoken_for: bool) -> bool {
    spec.sidecar_policies() && meshed && !spoken_for
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn claim(spec: &Value) -> Claim {
        Claim::read(&json!({"metadata": {"name": "all", "namespace": "shop"}, "spec": spec}))
    }

    fn entry(name: &str, current: Choice, predicted: u64) -> Entry {
        let milliseconds = Duration::from_millis;
        Entry {
            service: Key::new("shop", name),
            current,
            reason: None,
            view: Some(View {
                best: Choice::ProxyService,
                predicted: milliseconds(predicted),
                measured: milliseconds(100),
                local: milliseconds(100),
                proxied: milliseconds(predicted),
                rho: 0.7512,
            }),
        }
    }

    #[test]
    fn what_is_done_and_what_would_gain_most_comes_first() {
        let entries = vec![
            entry("little", Choice::Local, 90),
            entry("much", Choice::Local, 40),
            entry("done", Choice::ProxyService, 95),
        ];
        let status = status(&claim(&json!({"mode": "Auto"})), entries);
        let services = status["services"].as_array().unwrap();
        let names: Vec<_> = services.iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["shop/done", "shop/much", "shop/little"]);
        let expected = json!({
            "name": "shop/much", "balancing": "local",
            "auto": {"recommended": "proxy-service", "predictedMilliseconds": 40.0,
                     "measuredMilliseconds": 100.0, "localMilliseconds": 100.0,
                     "proxiedMilliseconds": 40.0, "utilization": 0.75},
        });
        assert_eq!(services[1], expected);
        assert_eq!(status["servicesLeftOut"], 0);
        assert_eq!(status["conditions"][1]["reason"], "DryRun");
    }

    #[test]
    fn a_status_has_bounds() {
        let many = (0..250).map(|at| entry(&format!("web-{at}"), Choice::Local, 50));
        let status = status(&claim(&json!({"mode": "Auto"})), many.collect());
        assert_eq!(status["services"].as_array().unwrap().len(), LISTED);
        assert_eq!(status["servicesLeftOut"], 150);
        assert!(status.to_string().len() < 30_000);
    }

    #[test]
    fn what_is_done_is_said_at_once_and_the_rest_now_and_then() {
        let live = claim(&json!({"mode": "Auto", "dryRun": false}));
        let said = |claim: &Claim, entries| urgent(&status(claim, entries));
        let before = said(&live, vec![entry("web", Choice::Local, 50)]);
        assert_eq!(before, said(&live, vec![entry("web", Choice::Local, 60)]));
        assert_ne!(
            before,
            said(&live, vec![entry("web", Choice::ProxyService, 50)])
        );
        let mut gone = live.clone();
        gone.deleting = true;
        assert_ne!(before, said(&gone, vec![entry("web", Choice::Local, 50)]));
        let bad = status(&claim(&json!({"mode": "Auto", "replicas": 0})), Vec::new());
        assert_eq!(bad["conditions"][0]["reason"], "Invalid");
        assert!(bad["services"].is_null());
    }
}
