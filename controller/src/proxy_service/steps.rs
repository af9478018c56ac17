//! Computes the next step for a Service as a pure function of its observed state.
//!
//! A step is taken only when its preconditions are observed: the selector is switched to the proxies when all of them
//! are available and the target Service has endpoints; proxies are removed when no endpoint of the Service is one of
//! them. If the proxies fail in between, or have to listen on other ports, the Service is switched back to its own
//! endpoints until the proxies are ready. Shared proxies are removed with the last Service of their group; a Service
//! is switched to them when all of them report that they listen on its ports.

use maglor_service_graph::policy_choice::Choice;
use serde_json::{Value, json};

use super::autoscaler::{self, autoscaler};
use super::leaving::{Leaving, leave, leaves_others};
use super::manifests::{self, is_current, same_ports};
use super::observed::{Claim, Observed};
use super::ports::Shared;
use super::progress::Progress;
use super::refusal::{self, Refusal};
use super::selector::{Selected, Selector};
use super::{FIELD_MANAGER, Front, PORTS_RECORD, RECORD, shared, sidecars};
use crate::crd::ProxyServiceSpec;
use crate::index::facts::Key;
use crate::index::facts::service::PROXY_GROUP;

/// A single write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Apply an object of this controller.
    Apply(Box<Value>),
    /// Delete an object of this controller.
    Delete(Box<Value>),
    /// Add the finalizer to a `ProxyService`.
    Hold(Key),
    /// Remove the finalizer from a `ProxyService`.
    Release(Key),
    /// Replace the Service with this one, which has its own selector and no data of this controller, if its version
    /// has not changed.
    Restore(Box<Value>),
    /// Apply the proxies' selector to the Service, if its version has not changed.
    Switch(Box<Value>),
}

/// The next step, and the progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// The step; `None` if there is nothing to do, or nothing before another event.
    pub step: Option<Step>,
    /// The progress.
    pub progress: Progress,
    /// Without a step: whether one will follow when pods or endpoints change.
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

/// Returns the next step.
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
                    false => collaborate(seen, claim, choice),
                }
            }
        },
        Ok(spec) => insert(seen, claim, spec),
        // The previous state stays in force.
        Err(problem) => Next::rest(Progress::Invalid(problem.clone())),
    }
}

/// Returns the next step towards a policy of the callers' sidecars, after the proxies are removed.
fn collaborate(seen: &Observed, claim: &Claim, choice: Choice) -> Next {
    let progress = Progress::Collaborating(choice);
    let Some(service) = &seen.service else {
        return Next::rest(progress);
    };
    if !claim.held {
        return Next::step(Step::Hold(claim.key.clone()), progress);
    }
    let wanted = sidecars::policy(service, choice);
    let there = seen.sidecar_policy.as_ref();
    match there.is_some_and(|there| is_current(there, &wanted)) {
        true => Next::rest(progress),
        false => Next::step(Step::Apply(Box::new(wanted)), progress),
    }
}

/// Returns the recommendation of the decision rule. Without a recommendation, the current state is kept.
fn advised(seen: &Observed, spec: &ProxyServiceSpec) -> Choice {
    if spec.dry_run() {
        return Choice::Local;
    }
    let choice = seen
        .advice
        .map_or_else(|| seen.current(), |advice| advice.choice);
    // The requirements of the recommended mode may no longer be met.
    match choice.is_collaborative() && !(spec.sidecar_policies() && seen.collaborative) {
        true => Choice::Local,
        false => choice,
    }
}

fn insert(seen: &Observed, claim: &Claim, own: &ProxyServiceSpec) -> Next {
    let (Some(service), Some(selected)) = (&seen.service, seen.selected()) else {
        let missing = Refusal::TargetNotFound(seen.name.clone());
        return Next::rest(Progress::Refused(missing));
    };
    let rollout = seen.rollout();
    let directly = Progress::Starting(rollout);
    // An intermediate step, such as another owner of shared proxies, does not change where requests are sent.
    let progress = match selected.proxied && rollout.available > 0 {
        true => Progress::Inserted(rollout),
        false => directly.clone(),
    };
    if !claim.held {
        return Next::step(Step::Hold(claim.key.clone()), progress);
    }
    if let Some(other) = leaving(seen) {
        return Next::step(Step::Release(other.key.clone()), progress);
    }
    if seen.front != Front::of(&seen.name, own) {
        // The other proxies are created after these are removed.
        return withdraw(seen, directly);
    }
    if let Some(policy) = seen.ours(seen.sidecar_policy.as_ref()) {
        // Proxies do not report queue lengths.
        return Next::step(Step::Delete(Box::new(policy.clone())), progress);
    }
    let spec = &seen.in_force(own);
    let mut wanted = Wanted::of(seen, &selected.own_service(service), &selected.own, spec);
    if leads_astray(seen, &selected, &wanted.shared) {
        return Next::step(restore(service, &selected), directly);
    }
    let there = [&seen.target, &seen.policy, &seen.account];
    let made = [Some(wanted.target), Some(wanted.policy), wanted.account];
    for (there, wanted) in there.into_iter().zip(made) {
        let Some(wanted) = wanted else { continue };
        let there = there.as_ref();
        if !there.is_some_and(|there| is_current(there, &wanted)) {
            return Next::step(Step::Apply(Box::new(wanted)), progress);
        }
    }
    let there = seen.deployment.as_ref();
    let replicas = autoscaler::replicas(spec, there);
    // An autoscaler does not scale up from zero.
    let asleep = |there: &Value| replicas.is_some() && there["spec"]["replicas"] == 0;
    if !there.is_some_and(|there| is_current(there, &wanted.deployment) && !asleep(there)) {
        if let Some(replicas) = replicas {
            wanted.deployment["spec"]["replicas"] = json!(replicas);
        }
        let other_ports = !there.is_some_and(|there| same_ports(there, &wanted.deployment));
        return match selected.proxied && other_ports {
            true => Next::step(restore(service, &selected), directly),
            false => Next::step(Step::Apply(Box::new(wanted.deployment)), progress),
        };
    }
    if let Some(step) = autoscale(seen, wanted.autoscaler) {
        return Next::step(step, progress);
    }
    if selected.proxied {
        if rollout.available == 0 {
            return Next::step(restore(service, &selected), Progress::Failing(rollout));
        }
        return Next::rest(Progress::Inserted(rollout));
    }
    if rollout.complete && seen.target_is_known() && seen.listens(&wanted.shared) {
        let step = switch(service, seen, &selected, &wanted.shared);
        return Next::step(step, Progress::Inserted(rollout));
    }
    Next::wait(progress)
}

/// The objects that must exist before and while requests go to proxies.
struct Wanted {
    /// Ports of shared proxies.
    shared: Shared,
    target: Value,
    policy: Value,
    account: Option<Value>,
    deployment: Value,
    autoscaler: Option<Value>,
}

impl Wanted {
    /// Returns the wanted objects for a Service, which has its own selector and ports.
    fn of(seen: &Observed, service: &Value, own: &Selector, spec: &ProxyServiceSpec) -> Self {
        let (shared, settings) = (seen.allotted(service), &seen.settings);
        let owned = seen.owned(service);
        Self {
            target: manifests::target(service, &seen.front, &shared, spec, settings),
            policy: manifests::traffic_policy(service, spec),
            account: manifests::account(&owned, spec, settings),
            deployment: match &seen.group {
                Some(_) => shared::deployment(&owned, spec, settings),
                None => manifests::deployment(&owned, service, own, spec, settings),
            },
            autoscaler: autoscaler(&owned, spec),
            shared,
        }
    }
}

/// Returns whether requests may be sent to ports without a listener: to ports of shared proxies that are not, or no
/// longer, assigned to this Service.
fn leads_astray(seen: &Observed, selected: &Selected, shared: &Shared) -> bool {
    let ended = seen.group.is_some() && seen.ours(seen.target.as_ref()).is_none();
    let moved = ended || selected.ports.shared != *shared;
    selected.mixed || (selected.proxied && seen.group.is_some() && moved)
}

/// Returns the step for the autoscaler; `None` if it needs no change.
fn autoscale(seen: &Observed, wanted: Option<Value>) -> Option<Step> {
    let there = seen.autoscaler.as_ref();
    match wanted {
        Some(wanted) => {
            let current = there.is_some_and(|there| is_current(there, &wanted));
            (!current).then(|| Step::Apply(Box::new(wanted)))
        }
        None => seen
            .made(there)
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
    let ended = match leaves_others(seen) {
        true => leave_group(seen, &progress),
        false => end_proxies(seen, &progress),
    };
    if let Some(next) = ended.or_else(|| remove_rest(seen, &progress)) {
        return next;
    }
    match leaving(seen) {
        Some(claim) => step(Step::Release(claim.key.clone())),
        None => Next::rest(match progress {
            Progress::Withdrawing => Progress::Withdrawn,
            other => other,
        }),
    }
}

/// Removes the proxies once they receive no more requests.
fn end_proxies(seen: &Observed, progress: &Progress) -> Option<Next> {
    let wait = || Some(Next::wait(progress.clone()));
    let delete = |one: &Value| Next::step(Step::Delete(Box::new(one.clone())), progress.clone());
    let Some(deployment) = seen.made(seen.deployment.as_ref()) else {
        // Proxies need the target Service to finish their requests.
        return match seen.proxies.is_empty() {
            true => None,
            false => wait(),
        };
    };
    let ending = deployment["metadata"]["deletionTimestamp"].is_string();
    // Proxies receive requests as long as one of them is an endpoint.
    if ending || seen.sends_to_proxies() {
        return wait();
    }
    Some(match seen.made(seen.autoscaler.as_ref()) {
        Some(autoscaler) => delete(autoscaler),
        None => delete(deployment),
    })
}

/// Removes the Service from a group: the shared proxies stay, and finish their requests for this Service.
fn leave_group(seen: &Observed, progress: &Progress) -> Option<Next> {
    let target = seen.ours(seen.target.as_ref())?;
    match leave(seen, target) {
        Leaving::Apply(target) => {
            let step = Step::Apply(Box::new(target));
            Some(Next::step(step, progress.clone()))
        }
        Leaving::Done => None,
        Leaving::Wait => Some(Next::wait(progress.clone())),
    }
}

/// Removes all other created objects.
fn remove_rest(seen: &Observed, progress: &Progress) -> Option<Next> {
    let wanted = matches!(progress, Progress::Collaborating(_));
    let sidecar_policy = seen.sidecar_policy.as_ref().filter(|_| !wanted);
    let of_proxies = [&seen.autoscaler, &seen.account].map(|one| seen.made(one.as_ref()));
    let shared = leaves_others(seen);
    let of_proxies = of_proxies.into_iter().flatten().filter(|_| !shared);
    let own = [seen.policy.as_ref(), seen.target.as_ref(), sidecar_policy];
    let own = own.into_iter().filter_map(|one| seen.ours(one));
    let there = of_proxies.chain(own).next()?;
    Some(match there["metadata"]["deletionTimestamp"].is_string() {
        true => Next::wait(progress.clone()),
        false => Next::step(Step::Delete(Box::new(there.clone())), progress.clone()),
    })
}

/// Returns a claim that is being deleted and has the finalizer of this controller. A claim without a `targetRef`
/// waits until all its Services are restored, and is handled elsewhere.
fn leaving(seen: &Observed) -> Option<&Claim> {
    let mut claims = seen.claims.iter().filter(|claim| !claim.is_wide);
    claims.find(|claim| claim.deleting && claim.held)
}

impl Observed {
    /// Returns whether the endpoints of the target Service are known: if the Service has any of its own, the target
    /// Service must have some.
    fn target_is_known(&self) -> bool {
        !self.target_endpoints.is_empty() || self.endpoints.is_empty()
    }
}

/// Returns whether this controller's field manager owns fields of an object, so that other managers would conflict
/// with it.
fn owns_fields(resource: &Value) -> bool {
    let fields = resource["metadata"]["managedFields"].as_array();
    let mut fields = fields.into_iter().flatten();
    fields.any(|entry| entry["manager"] == FIELD_MANAGER)
}

/// Returns the step that restores the Service: its own selector and ports, without data of this controller. The write
/// itself makes this controller the manager of these fields; a second, identical write releases them.
fn restore(service: &Value, selected: &Selected) -> Step {
    let mut service = selected.own_service(service);
    if let Some(meta) = service["metadata"].as_object_mut() {
        let annotations = meta.get_mut("annotations").and_then(Value::as_object_mut);
        let empty = annotations.is_some_and(|annotations| {
            for ours in [RECORD, PORTS_RECORD, PROXY_GROUP] {
                annotations.remove(ours);
            }
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

/// Returns the step that switches the Service to the proxies: by its selector, and by its ports if they are shared.
fn switch(service: &Value, seen: &Observed, selected: &Selected, shared: &Shared) -> Step {
    let record = serde_json::to_string(&selected.own).unwrap_or_default();
    let mut switched = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": seen.name,
            "namespace": seen.namespace,
            "resourceVersion": service["metadata"]["resourceVersion"],
            "annotations": {RECORD: record},
        },
        "spec": {"selector": seen.front.in_place(&selected.own)},
    });
    if let Some(group) = seen.front.group() {
        let annotations = &mut switched["metadata"]["annotations"];
        annotations[PORTS_RECORD] = json!(selected.ports.record(shared));
        annotations[PROXY_GROUP] = json!(group);
        let port = |(port, shared): (&u16, &u16)| json!({"port": port, "protocol": "TCP", "targetPort": shared});
        let ports: Vec<Value> = shared.iter().map(port).collect();
        switched["spec"]["ports"] = json!(ports);
    }
    Step::Switch(Box::new(switched))
}
