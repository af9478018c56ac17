//! The next step for a Service: a pure function of its observed state.
//!
//! A step is taken only when what it relies on is seen to be there: the selector goes over to the
//! proxies when all of them are available and the target has endpoints; proxies are taken away when no
//! endpoint of the Service is one of them. Should they fail meanwhile, or have to listen on other
//! ports, the Service goes back to its own endpoints until they are ready. Proxies that a group shares
//! go with the last Service of it; to these it goes over when all of them have said that they listen for it.

use maglor_service_graph::rule::Choice;
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

fn insert(seen: &Observed, claim: &Claim, own: &ProxyServiceSpec) -> Next {
    let (Some(service), Some(selected)) = (&seen.service, seen.selected()) else {
        let missing = Refusal::TargetNotFound(seen.name.clone());
        return Next::rest(Progress::Refused(missing));
    };
    let rollout = seen.rollout();
    let directly = Progress::Starting(rollout);
    // A step on the way, such as another owner of shared proxies, changes nothing of where requests go.
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
        // Other proxies come when these have gone.
        return withdraw(seen, directly);
    }
    if let Some(policy) = seen.ours(seen.sidecar_policy.as_ref()) {
        // Proxies do not report queues.
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
    // Without proxies none would be started.
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

/// What is to be there before requests go to proxies, and with them.
struct Wanted {
    /// The ports of shared proxies.
    shared: Shared,
    target: Value,
    policy: Value,
    account: Option<Value>,
    deployment: Value,
    autoscaler: Option<Value>,
}

impl Wanted {
    /// For a Service, which is given with its own selector and ports.
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

/// Whether requests are sent to ports that have, or may soon have, no listener: to shared proxies at ports that are
/// not, or no longer, for this Service.
fn leads_astray(seen: &Observed, selected: &Selected, shared: &Shared) -> bool {
    let ended = seen.group.is_some() && seen.ours(seen.target.as_ref()).is_none();
    let moved = ended || selected.ports.shared != *shared;
    selected.mixed || (selected.proxied && seen.group.is_some() && moved)
}

/// What is to be done about the autoscaler.
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

/// Proxies are removed when they get no more requests.
fn end_proxies(seen: &Observed, progress: &Progress) -> Option<Next> {
    let wait = || Some(Next::wait(progress.clone()));
    let delete = |one: &Value| Next::step(Step::Delete(Box::new(one.clone())), progress.clone());
    let Some(deployment) = seen.made(seen.deployment.as_ref()) else {
        // They need the target to finish what they have begun.
        return match seen.proxies.is_empty() {
            true => None,
            false => wait(),
        };
    };
    let ending = deployment["metadata"]["deletionTimestamp"].is_string();
    // Requests still go to them as long as an endpoint is one of them.
    if ending || seen.sends_to_proxies() {
        return wait();
    }
    Some(match seen.made(seen.autoscaler.as_ref()) {
        Some(autoscaler) => delete(autoscaler),
        None => delete(deployment),
    })
}

/// Shared proxies stay, and finish what they have begun for this Service.
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

/// All else that was made.
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

/// The Service as it was: its own selector and ports, and nothing that we have written. The write itself makes
/// these ours; the same once more, without a difference, releases them.
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

/// The Service leads to the proxies: by its selector, and by its ports where they are shared.
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
