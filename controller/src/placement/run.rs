//! The operator: makes a plan periodically, begins moves, and takes the next step of each pending move. Only the
//! leader writes.

mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use maglor_service_graph::relocate::{Move, Relocation, Round, View};
use tokio::sync::watch;
use tokio::time::Instant;

use super::api::Server;
use super::inputs::{InputError, Inputs, Sources, inputs, params};
use super::pod::Pod;
use super::status::{self, Done, StatusInput};
use crate::crd::{PlacementMode, PlacementPolicy, PlacementPolicyStatus};
use crate::epoch;
use crate::events::Events;
use crate::graph::Graphs;
use crate::graph::replicas::Replicas;
use crate::lease::Term;
use crate::metrics::PlacementMetrics;
use crate::operate::{self, Operator as _};
use crate::scope::Scope;

/// Default interval between plans.
const ROUND_SECONDS: u32 = 60;

/// The dependencies and permissions of the operator.
pub(crate) struct Options {
    /// The client. Requests are not retried: the operator observes again first.
    pub(crate) client: kube::Client,
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) events: Events,
    pub(crate) metrics: PlacementMetrics,
    /// The namespaces where pods may be moved, as permitted at installation.
    pub(crate) moves: Scope,
}

/// The state of a policy.
struct Governed {
    relocation: Relocation,
    done: Done,
    /// The time of the next plan.
    due: Instant,
    /// Moves of the last round that have not begun.
    queue: Vec<Move>,
    /// Why services were moved back, or were not moved, by name.
    why: BTreeMap<String, String>,
    advised: bool,
}

struct Operator {
    options: Options,
    server: Server,
    /// By name and UID, since the begin of the term.
    governed: BTreeMap<(String, String), Governed>,
    /// The moving pods.
    under_way: Vec<Pod>,
    /// Pods whose eviction is blocked by a PodDisruptionBudget; logged once.
    blocked: BTreeSet<String>,
    /// When this process began to receive reports.
    begun: Instant,
}

/// Runs as long as the process does.
pub(crate) async fn run(options: Options) {
    let server = Server::new(options.client.clone());
    let operator = Operator {
        options,
        server,
        governed: BTreeMap::new(),
        under_way: Vec::new(),
        blocked: BTreeSet::new(),
        begun: Instant::now(),
    };
    operate::run(operator).await;
}

impl operate::Operator for Operator {
    const NAME: &'static str = "placement";

    fn term(&self) -> &watch::Receiver<Term> {
        &self.options.term
    }

    fn begin_term(&mut self) {
        self.governed.clear();
    }

    async fn look(&mut self) -> Result<bool, kube::Error> {
        let policies = self.server.policies().await?;
        let known: BTreeSet<_> = policies.iter().map(id).collect();
        self.governed.retain(|id, _| known.contains(id));
        // Before any step: the results of steps are added to the stored counters.
        policies.iter().for_each(|policy| self.remember(policy));
        self.advance().await?;
        let mut taken = BTreeMap::new();
        for policy in &policies {
            if let Err(error) = self.attend(policy, &mut taken).await {
                tracing::warn!(policy = id(policy).0, %error, "placement: reconciliation failed; retrying");
            }
        }
        Ok(!policies.is_empty() || !self.under_way.is_empty())
    }
}

impl Operator {
    /// Begins moves of a policy, or makes its next plan when it is due.
    async fn attend(
        &mut self,
        policy: &PlacementPolicy,
        taken: &mut BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let id = id(policy);
        let before = policy.status.clone().unwrap_or_default();
        let generation = policy.metadata.generation;
        let apply = policy.spec.mode() == PlacementMode::Apply;
        let problem = match policy.spec.check() {
            Err(error) => Some(("Invalid", error.to_string())),
            Ok(()) if apply && !self.options.moves.covers_all(&policy.spec.namespaces) => Some((
                "NotEnabled",
                "the controller lacks permission to move pods in all these namespaces: install it with `placement.enabled=true`, and with `placement.namespaces` empty or listing them"
                    .to_owned(),
            )),
            Ok(()) => None,
        };
        if let Some((reason, message)) = problem {
            if self.writes() {
                let said = self.since(policy);
                let status = status::refused(&said, reason, &message, generation);
                self.server.report(policy, &status).await?;
            }
            return Ok(());
        }
        for service in before
            .services
            .iter()
            .filter(|one| one.state != status::FIXED)
        {
            taken
                .entry(service.name.clone())
                .or_insert_with(|| id.0.clone());
        }
        let Some(governed) = self.governed.get_mut(&id) else {
            return Ok(());
        };
        // Averages over less than T are incomplete.
        let known = self.begun.elapsed() >= self.options.graphs.window();
        if known && governed.due <= Instant::now() {
            let every = policy.spec.round_seconds.unwrap_or(ROUND_SECONDS);
            governed.due = Instant::now() + Duration::from_secs(u64::from(every));
            return self.plan(policy, taken).await;
        }
        if self.writes() {
            // Results of moves are published without waiting for the next round.
            self.server.report(policy, &self.since(policy)).await?;
        }
        self.begin(policy).await
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
                queue: Vec::new(),
                why: status::reasons(&before),
                advised: false,
            }
        });
    }

    /// Returns the last status of a policy, updated with the results of moves since.
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
        queued || self.under_way.iter().any(moving)
    }

    /// Runs a round.
    async fn plan(
        &mut self,
        policy: &PlacementPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let Some(inputs) = self.inputs(policy, taken).await? else {
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
        if !self.writes() {
            return Ok(());
        }
        self.server.report(policy, &status).await?;
        if let Some(round) = round {
            self.announce(policy, &round);
        }
        Ok(())
    }

    /// Returns the inputs; `None` while the data of a replica is missing.
    async fn inputs(
        &self,
        policy: &PlacementPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<Option<Result<Inputs, InputError>>, kube::Error> {
        let known = self.options.replicas.whole(&self.options.graphs).await?;
        let Some(snapshot) = known else {
            return Ok(None);
        };
        let mut pods = Vec::new();
        for namespace in &policy.spec.namespaces {
            pods.extend(self.server.pods_of(namespace).await?);
        }
        let nodes = self.server.nodes().await?;
        let own = id(policy).0;
        let others = taken.iter().filter(|(_, owner)| **owner != own);
        let topology = self.options.graphs.topology();
        Ok(Some(inputs(&Sources {
            snapshot: &snapshot,
            topology: &topology,
            pods: &pods,
            nodes: &nodes,
            spec: &policy.spec,
            taken: &others
                .map(|(name, owner)| (name.clone(), owner.clone()))
                .collect(),
        })))
    }

    /// Evaluates the inputs, and applies the result; `None` if it was interrupted.
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
            let note = format!("{service} is moved back: {}", judgement.word());
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

/// The status of a round, and the round.
type Judged = Result<(PlacementPolicyStatus, Round), maglor_service_graph::PartitionError>;

type Looked = (
    Relocation,
    Inputs,
    Result<Round, maglor_service_graph::PartitionError>,
);

/// Computes a round, which may take seconds.
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
    let round = relocation.round(epoch::now(), &view);
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
