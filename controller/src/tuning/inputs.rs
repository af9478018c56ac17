//! Assembles the inputs of tuning: the live graph with usage, the current settings, and the settings that other
//! controllers manage.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maglor_service_graph::advise::{
    self, Advice, ContainerUse, EdgeUse, Health, Room, ServiceUse, SplitUse, TrialParams,
    VersionUse,
};
use maglor_service_graph::tune::{self, Settings};
use serde_json::Value;

use super::containers::{Own, Share, differ, share};
use super::owners::{Hold, hold};
use super::traffic::Policies;
use super::workload::{self, Workload, injected};
use crate::crd::{TuningPart, TuningPolicySpec};
use crate::graph::{Container, Snapshot, Split};
use crate::index::facts::Key;
use crate::index::topology::Topology;
use crate::placement::fits::may_run;
use crate::placement::pod::{Node, Pod};

/// The sources of the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The communication graph of all replicas.
    pub snapshot: &'a Snapshot,
    /// The mapping of pods to services.
    pub topology: &'a Topology,
    /// The pods of the namespace.
    pub pods: &'a [Pod],
    /// The nodes.
    pub nodes: &'a [Node],
    /// The Deployments of the namespace.
    pub deployments: &'a [Value],
    /// The HorizontalPodAutoscalers of the namespace.
    pub horizontal: &'a [Value],
    /// The VerticalPodAutoscalers of the namespace.
    pub vertical: &'a [Value],
    /// The `TrafficPolicy`s of the namespace.
    pub policies: &'a Policies,
    /// The specification of the policy.
    pub spec: &'a TuningPolicySpec,
    /// Services that older policies select, each with the name of the policy.
    pub taken: &'a BTreeMap<String, String>,
}

/// A service that the policy selects.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Deployment of the service; `None` if it has none.
    pub workload: Option<Workload>,
    /// CPU (thousandths of a core) and memory (MiB) that the injected containers of its pods request.
    pub injected: (u64, u64),
    /// The Service that callers use; `None` if there is none.
    pub service: Option<Key>,
    /// The settings that must not be changed, and why.
    pub hold: Hold,
    /// The current settings.
    pub present: Settings,
    /// The CPU limit of a pod, in thousandths of a core; `None` unless all of its own containers have one.
    pub cpu_limit_millis: Option<u64>,
    /// Latencies and failures.
    pub health: Health,
    /// The remaining capacity of each node that accepts the service's pods.
    pub rooms: Vec<Room>,
}

impl Subject {
    fn containers(&self) -> &[workload::Container] {
        let workload = self.workload.as_ref();
        workload.map_or(&[], |one| one.containers.as_slice())
    }

    fn own(&self, advice: &Advice) -> Own {
        Own::of(self.containers(), &advice.containers, self.hold.held)
    }

    /// Sets the pod's requests in an advice from the requests of its containers, if these are known.
    pub fn complete(&self, advice: &mut Advice) {
        self.own(advice).put(self.injected, advice);
    }

    /// Returns the new requests of the containers that change, for a total of the pod in thousandths of a core and in
    /// MiB.
    #[must_use]
    pub fn shares(&self, advice: &Advice, whole: (u64, u64)) -> Vec<Share> {
        share(self.containers(), self.injected, whole, &self.own(advice))
    }

    /// Returns why the requests of the containers change; `None` if they do not.
    #[must_use]
    pub fn shares_differ(&self, advice: &Advice, spec: &TuningPolicySpec) -> Option<String> {
        differ(self.containers(), &self.own(advice), margin(spec))
    }
}

/// The inputs of a round.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The selected services, by name.
    pub subjects: BTreeMap<String, Subject>,
    /// All services and calls, which are the input of the recommendations.
    pub observed: advise::Snapshot,
    /// Pairs of caller and called service, by name.
    pub calls: Vec<(String, String)>,
}

/// Returns the parameters of recommendations according to a policy.
#[must_use]
pub fn advice_params(spec: &TuningPolicySpec) -> advise::Params {
    let time = |seconds: Option<u32>, default: u32| seconds_of(seconds.unwrap_or(default));
    let limits = spec.thresholds.clone().unwrap_or_default();
    let scaling = spec.scaling.clone().unwrap_or_default();
    let mut params = advise::Params::default();
    let milliseconds = limits.latency_milliseconds.unwrap_or(500);
    params.thresholds = advise::Thresholds {
        latency: Duration::from_millis(milliseconds.into()),
        error_rate: f64::from(limits.error_percent.unwrap_or(1)) / 100.0,
        requests: f64::from(limits.requests.unwrap_or(50)),
        within: time(limits.within_seconds, 30),
    };
    let percent = scaling.cpu_percent.unwrap_or(70);
    params.scaling.utilization = (percent > 0).then(|| f64::from(percent) / 100.0);
    params.scaling.band.patience = time(scaling.patience_seconds, 300);
    params.scaling.least = scaling.min_replicas.unwrap_or(1);
    params.scaling.most = scaling.max_replicas.unwrap_or(10);
    params.scaling.slow_start = time(scaling.slow_start_seconds, 30);
    params
}

/// Returns the parameters of changes and their evaluation. `settle` is the window of the graph's averages (T).
#[must_use]
pub fn params(spec: &TuningPolicySpec, settle: Duration) -> tune::Params {
    let time = |seconds: Option<u32>, default: u32| seconds_of(seconds.unwrap_or(default));
    let part = |percent: Option<u32>, default: u32| f64::from(percent.unwrap_or(default)) / 100.0;
    let guard = spec.guard.clone().unwrap_or_default();
    tune::Params {
        margin: margin(spec),
        changes: spec.changes_per_round.unwrap_or(2) as usize,
        observe: time(spec.observe_seconds, 600),
        cool_down: time(spec.cooldown_seconds, 600),
        ready: time(spec.ready_seconds, 180),
        trial: TrialParams {
            settle,
            // At least one evaluation.
            length: time(guard.seconds, 600).max(settle),
            latency: part(guard.latency_percent, 50),
            failures: part(guard.failure_percent, 1),
            ..TrialParams::default()
        },
    }
}

/// Returns the relative difference of requests (0 to 1) that is ignored.
fn margin(spec: &TuningPolicySpec) -> f64 {
    f64::from(spec.margin_percent.unwrap_or(10)) / 100.0
}

fn seconds_of(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns the inputs of a round from the watched objects and the graph.
#[must_use]
pub fn inputs(sources: &Sources<'_>) -> Inputs {
    let deployments: BTreeMap<String, Workload> = {
        let read = sources.deployments.iter().filter_map(Workload::read);
        read.map(|one| (one.key.name.clone(), one)).collect()
    };
    let left = left(sources);
    let mut subjects = BTreeMap::new();
    for (name, pods) in services(sources) {
        if let Some(subject) = subject(sources, name, &pods, &deployments, &left) {
            subjects.insert(name.to_owned(), subject);
        }
    }
    let calls = sources.snapshot.edges.iter();
    let calls = calls
        .map(|edge| (edge.from.clone(), edge.to.clone()))
        .collect();
    Inputs {
        observed: observed(sources, &subjects, &left),
        subjects,
        calls,
    }
}

/// Returns the services of the namespace that have sidecars, with their pods.
fn services<'a>(sources: &Sources<'a>) -> BTreeMap<&'a str, Vec<&'a Pod>> {
    let mut services: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in sources
        .pods
        .iter()
        .filter(|pod| !pod.ends && !pod.is_moving())
    {
        let Some(name) = sources.topology.pods.get(&pod.key) else {
            continue;
        };
        let vertex = sources.topology.vertices.get(name);
        if vertex.is_some_and(|vertex| vertex.meshed) {
            services.entry(name).or_default().push(pod);
        }
    }
    services
}

fn subject(
    sources: &Sources<'_>,
    name: &str,
    pods: &[&Pod],
    deployments: &BTreeMap<String, Workload>,
    left: &BTreeMap<&str, Room>,
) -> Option<Subject> {
    let selector = sources.spec.selector.as_ref();
    if !pods
        .iter()
        .all(|pod| selector.is_none_or(|one| one.selects(&pod.labels)))
    {
        return None;
    }
    let owners: BTreeSet<Option<&str>> = pods
        .iter()
        .map(|pod| pod.deployment().map(|(_, name)| name))
        .collect();
    let mut owners = owners.into_iter();
    let workload = match (owners.next(), owners.next()) {
        (Some(Some(only)), None) => deployments.get(only).cloned(),
        _ => None,
    };
    let mut hold = match &workload {
        Some(workload) => hold(workload, sources.horizontal, sources.vertical),
        None => {
            let mut hold = Hold::default();
            hold.workload("its pods belong to more than one Deployment".to_owned());
            hold
        }
    };
    let service = service_of(sources, name);
    leave(sources, name, service.as_ref(), &mut hold);
    let containers = workload
        .as_ref()
        .map_or(&[][..], |one| one.containers.as_slice());
    let injected = pods
        .first()
        .map_or((0, 0), |pod| injected(&pod.spec, containers));
    let sum = |of: fn(&workload::Container) -> u64| containers.iter().map(of).sum::<u64>();
    let present = Settings {
        replicas: workload.as_ref().map_or(0, |one| one.replicas),
        cpu_millis: sum(|one| one.cpu_millis) + injected.0,
        memory_mib: sum(|one| one.memory_mib) + injected.1,
    };
    let takes = |node: &&Node| pods.first().is_none_or(|pod| may_run(pod, node));
    let nodes = sources.nodes.iter().filter(takes);
    Some(Subject {
        rooms: nodes
            .filter_map(|node| left.get(&*node.name).copied())
            .collect(),
        cpu_limit_millis: cpu_limit(containers, injected),
        health: health(sources.snapshot, name),
        workload,
        injected,
        service,
        hold,
        present,
    })
}

/// Returns the CPU limit of a pod. Injected containers usually have no limit, so formally the pod has none. However,
/// it cannot use more than the limits of its own containers and about the requests of the injected ones.
fn cpu_limit(own: &[workload::Container], injected: (u64, u64)) -> Option<u64> {
    let limits = own.iter().map(|one| one.cpu_limit_millis);
    let sum = limits.sum::<Option<u64>>()?;
    (!own.is_empty()).then(|| sum.saturating_add(injected.0))
}

/// Returns the Service that a vertex is named after; `None` if there is none.
fn service_of(sources: &Sources<'_>, name: &str) -> Option<Key> {
    let (namespace, service) = name.split_once('/')?;
    let key = Key::new(namespace, service);
    let vertex = sources.topology.services.get(&key)?;
    (vertex == name).then_some(key)
}

/// Adds the settings that the policy excludes or may not change.
fn leave(sources: &Sources<'_>, name: &str, service: Option<&Key>, hold: &mut Hold) {
    if let Some(policy) = sources.taken.get(name) {
        hold.workload(format!("the older TuningPolicy {policy} selects it"));
        hold.held.traffic = true;
    }
    match service {
        None => hold.traffic("there is no Service with its name".to_owned()),
        Some(service) => {
            let own = super::traffic::name(&service.name);
            if sources.policies.taken.contains(&own) {
                hold.traffic(format!(
                    "the TrafficPolicy {own} was created by another writer"
                ));
            }
            if let Some(editor) = sources.policies.edited.get(&service.name) {
                hold.traffic(format!("{editor} has changed the TrafficPolicy {own}"));
            }
        }
    }
    let sets = |part| sources.spec.sets(part);
    hold.held.replicas |= !sets(TuningPart::Replicas);
    hold.held.cpu |= !sets(TuningPart::Requests);
    hold.held.memory |= !sets(TuningPart::Requests);
    hold.held.traffic |= !sets(TuningPart::Traffic);
}

/// Returns the capacity of nodes that remains for the services of the mesh. The requests of other pods are already
/// subtracted.
fn left<'a>(sources: &Sources<'a>) -> BTreeMap<&'a str, Room> {
    let rooms = sources.topology.nodes.iter();
    let mut left: BTreeMap<&str, Room> = rooms
        .map(|(name, room)| {
            let room = Room {
                cpu_millis: room.left.cpu_millis.unwrap_or(0),
                memory_mib: room.left.memory_mib.unwrap_or(0),
            };
            (&**name, room)
        })
        .collect();
    for vertex in sources.topology.vertices.values().filter(|one| one.meshed) {
        for (node, count) in &vertex.nodes {
            let Some(room) = left.get_mut(&**node) else {
                continue;
            };
            let less = |have: u64, each: Option<u64>| {
                have.saturating_sub(each.unwrap_or(0).saturating_mul((*count).into()))
            };
            room.cpu_millis = less(room.cpu_millis, vertex.requests.cpu_millis);
            room.memory_mib = less(room.memory_mib, vertex.requests.memory_mib);
        }
    }
    left
}

fn observed(
    sources: &Sources<'_>,
    subjects: &BTreeMap<String, Subject>,
    left: &BTreeMap<&str, Room>,
) -> advise::Snapshot {
    let services = sources.snapshot.services.iter().map(|one| {
        let subject = subjects.get(&one.name);
        // The wanted number is used, because there are more replicas during a rollout.
        let wanted = subject
            .map(|one| one.present.replicas)
            .filter(|count| *count > 0)
            .unwrap_or(one.replicas);
        let part = part(one.replicas, wanted);
        ServiceUse {
            name: one.name.clone(),
            replicas: wanted,
            cpu_millis: one.cpu_millis,
            memory_mib: one.memory_mib,
            cpu_limit_millis: one
                .cpu_limit_millis
                .or(subject.and_then(|one| one.cpu_limit_millis)),
            memory_limit_mib: one.memory_limit_mib,
            cpu_used_millis: one.cpu_used_millis.map(|used| used * part),
            memory_used_mib: one.memory_used_mib,
            containers: one
                .containers
                .iter()
                .map(|one| container(one, part))
                .collect(),
            pending: one.pending,
            rps: Some(one.rps),
            autoscaled: subject.is_some_and(|one| one.hold.autoscaled),
        }
    });
    let edges = sources.snapshot.edges.iter().map(|edge| EdgeUse {
        from: edge.from.clone(),
        to: edge.to.clone(),
        rps: edge.rps,
        latency_ms: edge.latency_ms,
        in_flight: edge.in_flight,
        failures: edge.failures,
        ..EdgeUse::default()
    });
    let room = left.values().fold(Room::default(), |sum, room| Room {
        cpu_millis: sum.cpu_millis.saturating_add(room.cpu_millis),
        memory_mib: sum.memory_mib.saturating_add(room.memory_mib),
    });
    advise::Snapshot {
        services: services.collect(),
        edges: edges.collect(),
        splits: sources.snapshot.splits.iter().map(split).collect(),
        room: Some(room),
    }
}

fn split(split: &Split) -> SplitUse {
    let versions = split.versions.iter().map(|one| VersionUse {
        name: one.name.clone(),
        subset: one.subset,
        weight: one.weight,
        replicas: one.replicas,
        rps: one.rps,
        latency_ms: one.latency_ms,
        failures: one.failures,
    });
    SplitUse {
        service: split.service.clone(),
        port: split.port,
        versions: versions.collect(),
    }
}

/// Returns the factor by which a replica's usage changes when the load of `there` replicas is spread over `wanted`
/// replicas.
///
/// The usage is not scaled up for fewer replicas: while pods are replaced, the usage of the old pods is still
/// reported for some time although the replacements are ready.
fn part(there: u32, wanted: u32) -> f64 {
    (f64::from(there) / f64::from(wanted.max(1))).min(1.0)
}

fn container(one: &Container, part: f64) -> ContainerUse {
    ContainerUse {
        name: one.name.clone(),
        cpu_used_millis: one.cpu_used_millis * part,
        memory_used_mib: one.memory_used_mib,
    }
}

/// Returns the latencies and failures of a service's incoming calls, over the window of the averages.
fn health(snapshot: &Snapshot, name: &str) -> Health {
    let window = snapshot.window_seconds as f64;
    let into = snapshot.edges.iter().filter(|edge| edge.to == name);
    let mut health = Health::default();
    for edge in into {
        let calls = edge.rps * window;
        let all = health.calls + calls;
        if all > 0.0 {
            health.latency_ms += (edge.latency_ms - health.latency_ms) * calls / all;
        }
        health.calls = all;
        health.failures += edge.failures * window;
    }
    health
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_does_not_grow_while_pods_are_replaced() {
        assert_eq!((part(1, 2), part(3, 3), part(6, 3)), (0.5, 1.0, 1.0));
    }

    #[test]
    fn a_pod_uses_what_its_own_containers_may_and_what_is_injected() {
        let container = |cpu_limit_millis| workload::Container {
            cpu_limit_millis,
            ..workload::Container::default()
        };
        let two = [container(Some(100)), container(Some(50))];
        assert_eq!(cpu_limit(&two, (10, 16)), Some(160));
        let one_has_none = [container(Some(100)), container(None)];
        assert_eq!(cpu_limit(&one_has_none, (10, 16)), None);
        assert_eq!(cpu_limit(&[], (10, 16)), None);
    }
}
