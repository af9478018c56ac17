//! The result of the decision rule for a service, and the resources that it requires.

use std::fmt::Write as _;

use maglor_service_graph::policy_choice::{Choice, Prediction, Situation};
use serde_json::{Value, json};

use super::workload::{NAMESPACE, Service, WorkloadError};

/// The result of the decision rule for a service.
pub(super) struct Answer {
    service: Service,
    situation: Situation,
    /// The predictions, fastest first.
    predictions: Vec<Prediction>,
    recommended: Choice,
    gain: f64,
}

impl Answer {
    pub(super) fn of(
        service: &Service,
        sidecars: bool,
        least_gain: f64,
    ) -> Result<Self, WorkloadError> {
        let situation = service.situation()?;
        let verdict = situation
            .decide()
            .map_err(|error| WorkloadError::Situation {
                service: service.place(),
                error,
            })?;
        let possible = |prediction: &Prediction| sidecars || !prediction.choice.is_collaborative();
        let predictions: Vec<Prediction> =
            verdict.predictions.into_iter().filter(possible).collect();
        let (recommended, gain) = best(&predictions, least_gain);
        Ok(Self {
            service: service.clone(),
            situation,
            predictions,
            recommended,
            gain,
        })
    }

    pub(super) fn json(&self) -> Value {
        let prediction = |one: &Prediction| {
            json!({
                "choice": one.choice.name(),
                "policy": one.choice.policy(),
                "mean_ms": milliseconds(one),
            })
        };
        let predictions: Vec<Value> = self.predictions.iter().map(prediction).collect();
        let mut answer = json!({
            "requests_per_second": rounded(self.service.rate()),
            "proxies": self.situation.proxies,
            "predictions": predictions,
            "recommended": self.recommended.name(),
            "gain": rounded(self.gain),
            "manifests": self.resources(),
        });
        if let Some(name) = &self.service.name {
            answer["name"] = json!(name);
        }
        answer
    }

    /// Returns YAML documents.
    pub(super) fn manifests(&self) -> String {
        let mut text = String::new();
        for resource in self.resources() {
            let yaml = maglor_manifests::inject::yaml::to_string(&resource).unwrap_or_default();
            // Writing to a string does not fail.
            let _ = write!(text, "---\n{yaml}");
        }
        text
    }

    /// Returns the resources to apply; empty if the current choice is best.
    fn resources(&self) -> Vec<Value> {
        let name = self.service.name.as_deref().unwrap_or("web");
        let namespace = self.service.namespace.as_deref().unwrap_or(NAMESPACE);
        let resource = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "maglor.dev/v1alpha1",
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            })
        };
        match self.recommended {
            Choice::Local => Vec::new(),
            Choice::ProxyService => {
                let proxies = self.situation.proxies;
                let mut spec = json!({"targetRef": {"name": name}, "replicas": proxies});
                if let Some(millis) = self.service.cpu_millis() {
                    spec["resources"] = json!({"requests": {"cpu": format!("{millis}m")}});
                }
                vec![resource("ProxyService", spec)]
            }
            choice => vec![resource(
                "TrafficPolicy",
                json!({
                    "targetRefs": [{"name": name}],
                    "cluster": {"policy": choice.policy()},
                }),
            )],
        }
    }
}

/// Returns the fastest choice, and the share of the current latency that it saves. If this share is small, returns
/// the current choice.
fn best(predictions: &[Prediction], least_gain: f64) -> (Choice, f64) {
    let local = predictions.iter().find(|one| one.choice == Choice::Local);
    let (Some(first), Some(local)) = (predictions.first(), local) else {
        return (Choice::Local, 0.0);
    };
    let gain = 1.0 - first.mean.as_secs_f64() / local.mean.as_secs_f64();
    match gain >= least_gain {
        true => (first.choice, gain),
        false => (Choice::Local, 0.0),
    }
}

/// Returns a readable summary.
pub(super) fn table(answers: &[Answer]) -> String {
    let mut text = String::new();
    for answer in answers {
        let name = answer.service.name.as_deref().unwrap_or("the service");
        let rate = answer.service.rate();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}, {rate:.0} requests a second:");
        for one in &answer.predictions {
            let mark = match one.choice == answer.recommended {
                true => "*",
                false => " ",
            };
            let (word, policy) = (one.choice.name(), one.choice.policy());
            let mean = milliseconds(one);
            let _ = writeln!(text, "  {mark} {word:<14} {policy:<18} {mean:>9.2} ms");
        }
        let _ = match answer.recommended {
            Choice::Local => writeln!(text, "  keep it as it is"),
            _ => writeln!(
                text,
                "  saves {:.0} % of the mean latency",
                answer.gain * 100.0
            ),
        };
    }
    text
}

fn milliseconds(prediction: &Prediction) -> f64 {
    rounded(prediction.mean.as_secs_f64() * 1000.0)
}

/// Rounds to five digits, which is more than the precision of the rule.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
