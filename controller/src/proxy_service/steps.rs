//! What is to be done next for a Service: a function of what is seen of it.
//!
//! A step is taken only when what it relies on is seen to be there: the selector goes over to the
//! proxies when all of them are available and the target has endpoints; proxies are taken away when no
//! endpoint of the Service is one of them. Should they fail meanwhile, or have to listen on other
//! ports, the Service goes back to its own endpoints until they are ready.

use maglor_mcg::rule::Choice;
use serde_json::{Value, json};

use super::autoscaler::autoscaler;
use super::manifests::{self, is_current, same_ports};
use super::observed::{Claim, Observed};
use super::progress::Progress;
use super::refusal::{self, Refusal};
use super::selector::{Selected, in_place};
use super::sidecars;
use super::{FIELD_MANAGER, RECORD};
use crate::crd::ProxyServiceSpec;
use crate::index::facts::Key;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Apply a resource that is ours.
    Apply(Box<Value>),
    /// Delete a resource that is ours.
    Delete(Box<Value>),
    /// Put the finalizer on a `ProxyService`.
    Hold(Key),
    /// Take the finalizer from a `ProxyService`.
    Release(Key),
    /// Replace the Service by this one, which has its own selector and nothing of ours, if it is
    /// still the version that was seen.
    Restore(Box<Value>),
    /// Apply the proxies' selector to the Service, if it is still the version that was seen.
    Switch(Box<Value>),
}

/// What is to be done, and how far things are.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// `None`: nothing, or nothing before something else happens.
    pub step: Option<Step>,
    /// How far things are.
    pub progress: Progress,
    /// Without a step: there will be one when pods or endpoints have come or gone.
    pub waits: bool,
}

impl Next {
    pub(super) fn step(step: Step, progress: Progress) -> Self {
        Self {
            step: Some(step),
            progress,
            waits: false,
        }
    }

    fn wait(progress: Progress) -> Self {
        Self {
            waits: true,
            ..Self::rest(progress)
        }
    }

    pub(super) fn rest(progress: Progress) -> Self {
        Self {
            step: None,
            progress,
            waits: false,
        }
    }
}

/// The next step.
#[must_use]
pub fn next(seen: &Observed) -> Next {
    let Some(claim) = seen.claims.iter().find(|claim| !claim.deleting) else {
        return withdraw(seen, Progress::Withdrawing);
    };
    if let Some(refusal) = refusal::of(seen) {
        return withdraw(seen, Progress::Refused(refusal));
    }
    match &claim.spec {
        Ok(spec) if spec.is_auto() => match advised(seen, spec) {
            Choice::ProxyService => insert(seen, claim, spec),
            Choice::Local => withdraw(seen, Progress::NotAdvised),
            choice => {
                let left = withdraw(seen, Progress::Collaborating(choice));
                match left.step.is_some() || left.waits {
                    true => left,
                    false => sidecars::collaborate(seen, claim, choice),
                }
            }
        },
        Ok(spec) => insert(seen, claim, spec),
        // What was in force before stays.
        Err(problem) => Next::rest(Progress::Invalid(problem.clone())),
    }
}

/// What the decision rule wants. Without a word of it things stay as they are.
fn advised(seen: &Observed, spec: &ProxyServiceSpec) -> Choice {
    if spec.dry_run() {
        return Choice::Local;
    }
    let choice = seen
        .advice
        .map_or_else(|| seen.current(), |advice| advice.choice);
    // What it needs may have gone since it was advised.
    match choice.is_collaborative() && !(spec.sidecar_policies() && seen.collaborative) {
        true => Choice::Local,
        false => choice,
    }
}

fn insert(seen: &Observed, claim: &Claim, spec: &ProxyServiceSpec) -> Next {
    let (Some(service), Some(selected)) = (&seen.service, seen.selected()) else {
        let missing = Refusal::TargetNotFound(seen.name.clone());
        return Next::rest(Progress::Refused(missing));
    };
    let rollout = seen.rollout();
    let progress = Progress::Starting(rollout);
    if !claim.held {
        return Next::step(Step::Hold(claim.key.clone()), progress);
    }
    if let Some(other) = leaving(seen) {
        return Next::step(Step::Release(other.key.clone()), progress);
    }
    if let Some(policy) = seen.ours(seen.sidecar_policy.as_ref()) {
        // Proxies are no servers whose queues anybody tells.
        return Next::step(Step::Delete(Box::new(policy.clone())), progress);
    }
    let settings = &seen.settings;
    let made = [
        (
            &seen.target,
            Some(manifests::target(service, &selected.own, spec, settings)),
        ),
        (&seen.policy, Some(manifests::traffic_policy(service, spec))),
        (&seen.account, manifests::account(service, spec, settings)),
    ];
    for (there, wanted) in made {
        let Some(wanted) = wanted else { continue };
        let there = there.as_ref();
        if !there.is_some_and(|there| is_current(there, &wanted)) {
            return Next::step(Step::Apply(Box::new(wanted)), progress);
        }
    }
    let wanted = manifests::deployment(service, &selected.own, spec, &seen.settings);
    let there = seen.deployment.as_ref();
    if !there.is_some_and(|there| is_current(there, &wanted)) {
        let other_ports = !there.is_some_and(|there| same_ports(there, &wanted));
        let step = match selected.proxied && other_ports {
            true => restore(service, &selected),
            false => Step::Apply(Box::new(wanted)),
        };
        return Next::step(step, progress);
    }
    if let Some(step) = autoscale(seen, service, spec) {
        return Next::step(step, progress);
    }
    if selected.proxied {
        if rollout.available == 0 {
            return Next::step(restore(service, &selected), Progress::Failing(rollout));
        }
        return Next::rest(Progress::Inserted(rollout));
    }
    if rollout.complete && seen.target_is_known() {
        let step = switch(service, seen, &selected);
        return Next::step(step, Progress::Inserted(rollout));
    }
    Next::wait(progress)
}

/// What is to be done about the autoscaler.
fn autoscale(seen: &Observed, service: &Value, spec: &ProxyServiceSpec) -> Option<Step> {
    let there = seen.autoscaler.as_ref();
    match autoscaler(service, spec) {
        Some(wanted) => {
            let current = there.is_some_and(|there| is_current(there, &wanted));
            (!current).then(|| Step::Apply(Box::new(wanted)))
        }
        None => seen
            .ours(there)
            .map(|there| Step::Delete(Box::new(there.clone()))),
    }
}

fn withdraw(seen: &Observed, progress: Progress) -> Next {
    let step = |step| Next::step(step, progress.clone());
    let selected = seen.selected().unwrap_or_default();
    if let Some(service) = &seen.service
        && (selected.touched || owns_fields(service))
    {
        return step(restore(service, &selected));
    }
    if let Some(deployment) = seen.ours(seen.deployment.as_ref()) {
        // Requests still go to them as long as an endpoint is one of them.
        let left = seen.endpoints.is_disjoint(&seen.proxies);
        let ending = deployment["metadata"]["deletionTimestamp"].is_string();
        if ending || (seen.service.is_some() && !left) {
            return Next::wait(progress);
        }
        if let Some(autoscaler) = seen.ours(seen.autoscaler.as_ref()) {
            return step(Step::Delete(Box::new(autoscaler.clone())));
        }
        return step(Step::Delete(Box::new(deployment.clone())));
    }
    if !seen.proxies.is_empty() {
        // They need the target to finish what they have begun.
        return Next::wait(progress);
    }
    let wanted = matches!(progress, Progress::Collaborating(_));
    let sidecar_policy = seen.sidecar_policy.as_ref().filter(|_| !wanted).cloned();
    for there in [
        &seen.autoscaler,
        &seen.account,
        &seen.policy,
        &seen.target,
        &sidecar_policy,
    ] {
        if let Some(there) = seen.ours(there.as_ref()) {
            return match there["metadata"]["deletionTimestamp"].is_string() {
                true => Next::wait(progress),
                false => step(Step::Delete(Box::new(there.clone()))),
            };
        }
    }
    match leaving(seen) {
        Some(claim) => step(Step::Release(claim.key.clone())),
        None => Next::rest(match progress {
            Progress::Withdrawing => Progress::Withdrawn,
            other => other,
        }),
    }
}

/// One that is to be deleted and waits for us. Those for many Services wait for all of them.
fn leaving(seen: &Observed) -> Option<&Claim> {
    let mut claims = seen.claims.iter().filter(|claim| !claim.is_wide);
    claims.find(|claim| claim.deleting && claim.held)
}

impl Observed {
    /// Whether the endpoints have been found by the target's selector: where the Service has any of
    /// its own, the target has some.
    fn target_is_known(&self) -> bool {
        !self.target_endpoints.is_empty() || self.endpoints.is_empty()
    }
}

/// Whether fields of a resource count as ours, so that others would be in conflict with us.
fn owns_fields(resource: &Value) -> bool {
    let fields = resource["metadata"]["managedFields"].as_array();
    let mut fields = fields.into_iter().flatten();
    fields.any(|entry| entry["manager"] == FIELD_MANAGER)
}

/// The Service as it was: its own selector, and nothing that we have written. The write itself makes
/// the selector ours; the same once more, without a difference, leaves it to whoever wants it.
fn restore(service: &Value, selected: &Selected) -> Step {
    let mut service = service.clone();
    if !selected.own.is_empty() {
        service["spec"]["selector"] = json!(selected.own);
    }
    if let Some(meta) = service["metadata"].as_object_mut() {
        let annotations = meta.get_mut("annotations").and_then(Value::as_object_mut);
        let empty = annotations.is_some_and(|annotations| {
            annotations.remove(RECORD);
            annotations.is_empty()
        });
        if empty {
            meta.remove("annotations");
        }
        if let Some(fields) = meta.get_mut("managedFields").and_then(Value::as_array_mut) {
            fields.retain(|entry| entry["manager"] != FIELD_MANAGER);
            if fields.is_empty() {
                // An empty list would change nothing (Kubernetes, "Clearing managedFields").
                fields.push(json!({}));
            }
        }
    }
    Step::Restore(Box::new(service))
}

fn switch(service: &Value, seen: &Observed, selected: &Selected) -> Step {
    let record = serde_json::to_string(&selected.own).unwrap_or_default();
    Step::Switch(Box::new(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": seen.name,
            "namespace": seen.namespace,
            "resourceVersion": service["metadata"]["resourceVersion"],
            "annotations": {RECORD: record},
        },
        "spec": {"selector": in_place(&selected.own, &seen.name)},
    })))
}
