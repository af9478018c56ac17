//! The operator: plans periodically, starts moves, and takes the next step of each pending move.

mod moves;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use kube::{Api, Resource as _};
use maglor_service_graph::relocate::{Move, Relocation, Round, View};
use tokio::time::Instant;

use super::MOVING;
use super::api::{Server, Workloads};
use super::inputs::{InputError, Inputs, Sources, inputs, params};
use super::pod::{Node, Pod};
use super::status::{self, Done, StatusInput};
use crate::crd::{PlacementMode, PlacementPolicy, PlacementPolicyStatus};
use crate::index::facts::Key;
use crate::metrics::PlacementMetrics;
use crate::reconcile::cache::key;
use crate::reconcile::policies::{self, by_age, nodes, report};
use crate::reconcile::{self, Again, Cache, Reconciler, Watch, Watches};
use crate::wall_clock;
use watched::read;

/// Default interval between plans.
const ROUND_SECONDS: u32 = 60;

/// Options of the operator, which moves pods in the permitted namespaces.
pub(crate) type Options = policies::Options<PlacementMetrics>;

/// The state that the operator keeps for a policy.
struct Governed {
    relocation: Relocation,
    done: Done,
    /// The time of the next plan.
    due: Instant,
    generation: Option<i64>,
    /// Moves of the last round that have not been started.
    queue: Vec<Move>,
    /// Why services were moved back or were not moved, by name.
    why: BTreeMap<String, String>,
    advised: bool,
}

/// A unit of reconciliation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Unit {
    /// A moving pod.
    Pod(Key),
    /// A policy.
    Policy(String),
}

struct Operator {
    options: Options,
    server: Server,
    watches: Watches<Unit>,
    policies: Cache<PlacementPolicy>,
    nodes: Cache<core::Node>,
    /// The moving pods.
    moving: Cache<core::Pod>,
    /// Pods that were released from their ReplicaSets and that the watch does not show as moving yet, each with its
    /// service and the time of its release.
    begun_moves: BTreeMap<Key, (String, Instant)>,
    /// The pods of namespaces with a policy or a moving pod, by namespace.
    pods: BTreeMap<String, Cache<core::Pod>>,
    /// The workloads of namespaces with a moving pod, by namespace.
    workloads: BTreeMap<String, Workloads>,
    /// The states of policies since the beginning of the term, by name and UID.
    governed: BTreeMap<(String, String), Governed>,
    /// Pods whose eviction a PodDisruptionBudget blocks, which is logged once.
    blocked: BTreeSet<String>,
    /// When this process began to receive load reports.
    begun: Instant,
}

/// Runs the operator until the process ends.
pub(crate) async fn run(options: Options) {
    let (term, begun) = (options.term.clone(), Instant::now());
    let begin = |watches| Operator::new(options.clone(), watches, begun);
    reconcile::run(term, begin).await;
}

impl Reconciler for Operator {
    type Unit = Unit;

    const NAME: &'static str = "placement";

    async fn reconcile(&mut self, unit: &Unit) -> Result<Again, kube::Error> {
        let again = match unit {
            Unit::Pod(pod) => self.advance(pod).await,
            Unit::Policy(name) => self.look(name).await,
        };
        self.close_unused();
        again
    }
}

impl Operator {
    fn new(options: Options, watches: Watches<Unit>, begun: Instant) -> Self {
        let client = &options.client;
        let policy = |policy: &PlacementPolicy| vec![Unit::Policy(key(policy).name)];
        let policies = Watch::new(vec![Api::all(client.clone())]);
        // A policy is reconciled when one of its pods has moved.
        let pod = |pod: &core::Pod| {
            let ticket = read(pod).ticket();
            let policy = ticket.map(|ticket| Unit::Policy(ticket.policy));
            [Unit::Pod(key(pod))].into_iter().chain(policy).collect()
        };
        let moving = Watch::new(vec![Api::all(client.clone())]).labels(MOVING);
        Self {
            server: Server::new(client.clone()),
            policies: watches.open(policies, policy, Vec::new),
            nodes: watches.hold(nodes(client), Vec::new),
            moving: watches.open(moving, pod, Vec::new),
            begun_moves: BTreeMap::new(),
            pods: BTreeMap::new(),
            workloads: BTreeMap::new(),
            governed: BTreeMap::new(),
            blocked: BTreeSet::new(),
            options,
            watches,
            begun,
        }
    }

    /// Starts moves of a policy, or makes its next plan when it is due. Returns when the next plan is due.
    async fn look(&mut self, name: &str) -> Result<Again, kube::Error> {
        let all = by_age(&self.policies);
        let known: BTreeSet<_> = all.iter().map(|policy| id(policy)).collect();
        self.governed.retain(|id, _| known.contains(id));
        let Some(at) = all.iter().position(|policy| key(&**policy).name == name) else {
            return Ok(None);
        };
        let policy = &*all[at];
        self.remember(policy);
        if let Some((reason, message)) = self.problem(policy) {
            let generation = policy.metadata.generation;
            let status = status::refused(&self.since(policy), reason, &message, generation);
            self.report(policy, &status).await?;
            return Ok(None);
        }
        let mut taken = BTreeMap::new();
        for older in all[..at].iter().filter(|one| self.problem(one).is_none()) {
            let services = older.status.iter().flat_map(|status| &status.services);
            for service in services.filter(|one| one.state != status::FIXED) {
                let owner = || key(&**older).name;
                taken.entry(service.name.clone()).or_insert_with(owner);
            }
        }
        let settle = self.options.graphs.window();
        let Some(governed) = self.governed.get_mut(&id(policy)) else {
            return Ok(None);
        };
        let now = Instant::now();
        if governed.generation != policy.metadata.generation {
            (governed.generation, governed.due) = (policy.metadata.generation, now);
        }
        // Averages over less than the window T are incomplete.
        governed.due = governed.due.max(self.begun + settle);
        let due = governed.due;
        if due <= now {
            let Some(pods) = self.selected(policy) else {
                return Ok(None);
            };
            let every = policy.spec.round_seconds.unwrap_or(ROUND_SECONDS);
            let due = now + Duration::from_secs(u64::from(every));
            if let Some(governed) = self.governed.get_mut(&id(policy)) {
                governed.due = due;
            }
            self.plan(policy, &pods, &taken).await?;
        } else {
            // Results of moves are published without waiting for the next round.
            self.report(policy, &self.since(policy)).await?;
        }
        self.begin(policy).await?;
        let governed = self.governed.get(&id(policy));
        Ok(governed.map(|governed| governed.due.saturating_duration_since(now)))
    }

    /// Returns why a policy is not in force; `None` if it is.
    fn problem(&self, policy: &PlacementPolicy) -> Option<(&'static str, String)> {
        let apply = policy.spec.mode() == PlacementMode::Apply;
        match policy.spec.check() {
            Err(error) => Some(("Invalid", error.to_string())),
            Ok(()) if apply && !self.options.permitted.covers_all(&policy.spec.namespaces) => Some((
                "NotEnabled",
                "the controller lacks permission to move pods in all these namespaces: install it with `placement.enabled=true`, and with `placement.namespaces` empty or listing them"
                    .to_owned(),
            )),
            Ok(()) => None,
        }
    }

    /// Writes a policy's status if it has changed. Returns whether the status is now up to date.
    async fn report(
        &self,
        policy: &PlacementPolicy,
        status: &PlacementPolicyStatus,
    ) -> Result<bool, kube::Error> {
        let api: Api<PlacementPolicy> = Api::all(self.options.client.clone());
        report(&api, policy, policy.status.as_ref(), status).await
    }

    /// Restores the state of a policy from its status.
    fn remember(&mut self, policy: &PlacementPolicy) {
        let settle = self.options.graphs.window();
        self.governed.entry(id(policy)).or_insert_with(|| {
            let before = policy.status.clone().unwrap_or_default();
            let (records, judged_since, done) = status::records(&before);
            let params = params(&policy.spec, settle);
            Governed {
                relocation: Relocation::restored(params, records, judged_since),
                done,
                due: Instant::now(),
                generation: policy.metadata.generation,
                queue: Vec::new(),
                why: status::reasons(&before),
                advised: false,
            }
        });
    }

    /// Returns the last status of a policy, updated with the results of moves since then.
    fn since(&self, policy: &PlacementPolicy) -> PlacementPolicyStatus {
        let before = policy.status.clone().unwrap_or_default();
        match self.governed.get(&id(policy)) {
            Some(governed) => status::refreshed(&before, governed.done, &governed.why),
            None => before,
        }
    }

    /// Returns whether a policy has pending or queued moves.
    fn is_busy(&self, id: &(String, String)) -> bool {
        let queued = self
            .governed
            .get(id)
            .is_some_and(|one| !one.queue.is_empty());
        let moving = |pod: &Pod| pod.ticket().is_some_and(|ticket| ticket.policy == id.0);
        queued || !self.begun_moves.is_empty() || self.under_way().iter().any(moving)
    }

    /// Runs a planning round.
    async fn plan(
        &mut self,
        policy: &PlacementPolicy,
        pods: &[Pod],
        taken: &BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let Some(inputs) = self.inputs(policy, pods, taken).await else {
            return Ok(());
        };
        let before = self.since(policy);
        let generation = policy.metadata.generation;
        let refused = |reason, why: &str| status::refused(&before, reason, why, generation);
        let (status, round) = match inputs {
            Err(error) => (refused("Invalid", &error.to_string()), None),
            Ok(inputs) if inputs.selected.is_empty() => {
                let why = "no selected pod with a sidecar is running";
                (refused("NoServices", why), None)
            }
            Ok(inputs) => match self.round(policy, inputs).await {
                Some(Ok((status, round))) => (status, Some(round)),
                Some(Err(error)) => (refused("Invalid", &error.to_string()), None),
                None => return Ok(()),
            },
        };
        let reported = self.report(policy, &status).await;
        if !matches!(reported, Ok(true)) {
            // Moves are recorded before they are started. The state of the policy is reset to that of its last
            // status.
            self.governed.remove(&id(policy));
            return reported.map(drop);
        }
        if let Some(round) = round {
            self.announce(policy, &round);
        }
        Ok(())
    }

    /// Returns the inputs; `None` if the data of any replica is missing.
    async fn inputs(
        &self,
        policy: &PlacementPolicy,
        pods: &[Pod],
        taken: &BTreeMap<String, String>,
    ) -> Option<Result<Inputs, InputError>> {
        let Options {
            replicas, graphs, ..
        } = &self.options;
        let snapshot = replicas.whole(graphs).await?;
        let nodes: Vec<Node> = self.nodes.json().iter().map(Node::read).collect();
        Some(inputs(&Sources {
            snapshot: &snapshot,
            topology: &graphs.topology(),
            pods,
            nodes: &nodes,
            spec: &policy.spec,
            taken,
        }))
    }

    /// Evaluates the inputs and applies the result; `None` if the evaluation was interrupted.
    async fn round(&mut self, policy: &PlacementPolicy, inputs: Inputs) -> Option<Judged> {
        let id = id(policy);
        let (busy, apply) = (
            self.is_busy(&id),
            policy.spec.mode() == PlacementMode::Apply,
        );
        let settle = self.options.graphs.window();
        let governed = self.governed.get_mut(&id)?;
        let mut params = params(&policy.spec, settle);
        params.options.routing = inputs.routing;
        governed.relocation.set_params(params);
        let relocation = governed.relocation.clone();
        let looked = tokio::task::spawn_blocking(move || look(relocation, inputs, (busy, apply)));
        let (relocation, inputs, round) = looked.await.ok()?;
        Some(round.map(|round| {
            governed.relocation = relocation;
            (governed.account(policy, &inputs, &round), round)
        }))
    }

    /// Reports the results of a round as events and metrics.
    fn announce(&mut self, policy: &PlacementPolicy, round: &Round) {
        for (service, judgement) in &round.undone {
            self.options.metrics.rolled_back();
            let note = format!(
                "service {service} is moved back to its previous nodes: {}",
                judgement.word()
            );
            self.options
                .events
                .warn(reference(policy), "RolledBack", "Judge", &note);
        }
        let Some(governed) = self.governed.get_mut(&id(policy)) else {
            return;
        };
        let advised = round.reason == maglor_service_graph::relocate::Reason::Advised;
        let recommends = policy.spec.mode() == PlacementMode::Recommend;
        let was = std::mem::replace(&mut governed.advised, advised);
        let new = advised && !was;
        if let (true, true, Some(plan)) = (new, recommends, &round.plan) {
            let note = format!(
                "{} moves would reduce calls between nodes to {:.1} of {:.1} per second",
                plan.moves, plan.cut, round.cut
            );
            self.options
                .events
                .report(reference(policy), "PlacementRecommended", "Plan", &note);
        }
    }
}

impl Governed {
    /// Applies the results of a round, and returns the new status.
    fn account(
        &mut self,
        policy: &PlacementPolicy,
        inputs: &Inputs,
        round: &Round,
    ) -> PlacementPolicyStatus {
        for (service, judgement) in &round.undone {
            self.done.rolled_back = self.done.rolled_back.saturating_add(1);
            self.why
                .insert(service.clone(), judgement.word().to_owned());
        }
        self.queue.extend(round.moves.iter().cloned());
        let input = StatusInput {
            inputs,
            round,
            relocation: &self.relocation,
            mode: policy.spec.mode(),
            done: self.done,
            why: &self.why,
        };
        status::status(&input, policy.metadata.generation)
    }
}

/// The status of a round, and its results.
type Judged = Result<(PlacementPolicyStatus, Round), maglor_service_graph::PartitionError>;

type Looked = (
    Relocation,
    Inputs,
    Result<Round, maglor_service_graph::PartitionError>,
);

/// Computes a round, which may take several seconds.
fn look(mut relocation: Relocation, inputs: Inputs, (busy, apply): (bool, bool)) -> Looked {
    let view = View {
        graph: &inputs.graph,
        nodes: &inputs.nodes,
        present: &inputs.present,
        bars: &inputs.bars,
        measured: &inputs.measured,
        busy,
        apply,
    };
    let round = relocation.round(wall_clock::now(), &view);
    (relocation, inputs, round)
}

fn id(policy: &PlacementPolicy) -> (String, String) {
    let meta = &policy.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (text(&meta.name), text(&meta.uid))
}

fn reference(policy: &PlacementPolicy) -> ObjectReference {
    policy.object_ref(&())
}

fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.key.name.clone()),
        namespace: Some(pod.key.namespace.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
