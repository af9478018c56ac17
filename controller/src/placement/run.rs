//! The operator: makes a plan now and then, begins moves, and takes the next step of each that is under way. Only
//! whoever holds the Lease writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use maglor_mcg::relocate::{Move, Relocation, Round, View};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::api::{Server, Written};
use super::fits::fixed;
use super::moving::{self, Step, Ticket};
use super::pod::Pod;
use super::scene::{Given, Scene, params, scene};
use super::status::{self, Done, Told};
use crate::crd::{PlacementMode, PlacementPolicy, PlacementPolicyStatus};
use crate::events::Events;
use crate::graph::parts::Part;
use crate::graph::replicas::Replicas;
use crate::graph::{Graphs, Snapshot};
use crate::lease::Term;
use crate::metrics::PlacementMetrics;

/// How often it is looked whether anything is to be done.
const TICK: Duration = Duration::from_secs(2);
/// Where nobody wants anything, and nothing is under way.
const IDLE: Duration = Duration::from_secs(10);
/// A pod that is made is ready after so many seconds where nobody says otherwise.
const READY_SECONDS: u32 = 180;
const ROUND_SECONDS: u32 = 60;

/// What the operator has, and may do.
pub(crate) struct Options {
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) events: Events,
    pub(crate) metrics: PlacementMetrics,
    /// Pods may be moved: whoever installed the controller has given it the right to.
    pub(crate) moves: bool,
}

/// A policy that is being carried out.
struct Governed {
    relocation: Relocation,
    done: Done,
    /// When the next plan is due.
    due: Instant,
    /// Moves of the last round that have not begun.
    queue: Vec<Move>,
    /// Why services went back, or were not moved.
    why: BTreeMap<String, String>,
    advised: bool,
}

struct Operator {
    options: Options,
    server: Server,
    /// By name and id, since the beginning of the term.
    governed: BTreeMap<(String, String), Governed>,
    /// Pods that are on their way: how many of which policy.
    under_way: Vec<Pod>,
    /// Evictions that a PodDisruptionBudget holds up, which are said once.
    blocked: BTreeSet<String>,
}

/// Runs as long as the process does.
pub(crate) async fn run(options: Options) {
    let server = Server::new(options.replicas.client.clone());
    let mut operator = Operator {
        options,
        server,
        governed: BTreeMap::new(),
        under_way: Vec::new(),
        blocked: BTreeSet::new(),
    };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut led = None;
    let mut rests = Instant::now();
    loop {
        tick.tick().await;
        let term = *operator.options.term.borrow();
        if !term.holds(Instant::now()) {
            led = None;
            continue;
        }
        if led.replace(term.number()) != Some(term.number()) {
            operator.governed.clear();
            rests = Instant::now();
        }
        if Instant::now() < rests {
            continue;
        }
        match operator.look().await {
            Ok(true) => {}
            Ok(false) => rests = Instant::now() + IDLE,
            Err(error) => tracing::warn!(%error, "placement: tried again"),
        }
    }
}

impl Operator {
    fn writes(&self) -> bool {
        self.options.term.borrow().holds(Instant::now())
    }

    /// Takes all steps that can be taken now; whether there is anything to look at soon.
    async fn look(&mut self) -> Result<bool, kube::Error> {
        self.advance().await?;
        let policies = self.server.policies().await?;
        let known: BTreeSet<_> = policies.iter().map(id).collect();
        self.governed.retain(|id, _| known.contains(id));
        let mut taken = BTreeMap::new();
        for policy in &policies {
            if let Err(error) = self.attend(policy, &mut taken).await {
                tracing::warn!(policy = id(policy).0, %error, "placement: tried again");
            }
        }
        Ok(!policies.is_empty() || !self.under_way.is_empty())
    }

    /// Takes the next step of each pod that is on its way, whatever has become of its policy.
    async fn advance(&mut self) -> Result<(), kube::Error> {
        // Nothing of ours is under way where nothing may be.
        if !self.options.moves {
            return Ok(());
        }
        let mut under_way = self.server.moving().await?;
        under_way.retain(|pod| !pod.ends);
        self.options.metrics.moving(under_way.len());
        self.blocked
            .retain(|uid| under_way.iter().any(|pod| pod.uid == *uid));
        for pod in &under_way {
            let Some(ticket) = pod.ticket() else {
                tracing::warn!(pod = %pod.key, "placement: it has our label, and no ticket that can be read");
                continue;
            };
            if let Err(error) = self.step(pod, &ticket).await {
                tracing::warn!(pod = %pod.key, %error, "placement: tried again");
            }
        }
        self.under_way = under_way;
        Ok(())
    }

    async fn step(&mut self, pod: &Pod, ticket: &Ticket) -> Result<(), kube::Error> {
        let seen = self.server.observe(pod.clone(), ticket).await?;
        let step = moving::next(&seen, ticket, Timestamp::now().as_second());
        if step == Step::Wait || !self.writes() {
            return Ok(());
        }
        tracing::debug!(pod = %pod.key, ?step, "placement");
        let written = self.server.take(&seen, ticket, &step).await?;
        let mut governed = self
            .governed
            .iter_mut()
            .filter(|((name, _), _)| *name == ticket.policy);
        let governed = governed.next().map(|(_, governed)| governed);
        match (&step, written) {
            (Step::Evict, Written::Done) => {
                self.options.metrics.done();
                tracing::info!(pod = %pod.key, service = ticket.service, to = ticket.to, "placement: moved");
                if let Some(governed) = governed {
                    governed.done.moves = governed.done.moves.saturating_add(1);
                    governed.why.remove(&ticket.service);
                }
            }
            (Step::Evict, Written::Blocked) => {
                let why = "a PodDisruptionBudget does not let the old pod go yet".to_owned();
                if self.blocked.insert(pod.uid.clone()) {
                    self.options
                        .events
                        .warn(pod_reference(pod), "MoveBlocked", "Evict", &why);
                }
                if let Some(governed) = governed {
                    governed.why.insert(ticket.service.clone(), why);
                }
            }
            (Step::GiveBack(why), Written::Done) => {
                self.options.metrics.given_up();
                tracing::warn!(pod = %pod.key, service = ticket.service, to = ticket.to, why, "placement: not moved");
                self.options
                    .events
                    .warn(pod_reference(pod), "MoveGivenUp", "Move", why);
                if let Some(governed) = governed {
                    governed.done.failed = governed.done.failed.saturating_add(1);
                    governed.why.insert(
                        ticket.service.clone(),
                        format!("a move was given up: {why}"),
                    );
                    governed.relocation.failed(&ticket.service, status::now());
                    governed.queue.retain(|one| one.service != ticket.service);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins moves of a policy, or makes its next plan where it is time.
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
            Ok(()) if apply && !self.options.moves => Some((
                "NotEnabled",
                "the controller may not move pods: install it with `placement.enabled=true`"
                    .to_owned(),
            )),
            Ok(()) => None,
        };
        if let Some((reason, message)) = problem {
            if self.writes() {
                let status = status::refused(&before, reason, &message, generation);
                self.server.tell(policy, &status).await?;
            }
            return Ok(());
        }
        let settle = self.options.graphs.window();
        let governed = self.governed.entry(id.clone()).or_insert_with(|| {
            let (records, judged_since, done) = status::records(&before);
            Governed {
                relocation: Relocation::restored(
                    params(&policy.spec, settle),
                    records,
                    judged_since,
                ),
                done,
                due: Instant::now(),
                queue: Vec::new(),
                why: BTreeMap::new(),
                advised: false,
            }
        });
        for service in before.services.iter().filter(|one| one.state != "Fixed") {
            taken
                .entry(service.name.clone())
                .or_insert_with(|| id.0.clone());
        }
        if governed.due <= Instant::now() {
            let every = policy.spec.round_seconds.unwrap_or(ROUND_SECONDS);
            governed.due = Instant::now() + Duration::from_secs(u64::from(every));
            return self.plan(policy, taken).await;
        }
        self.begin(policy).await
    }

    /// Whether moves of a policy are under way, or about to be.
    fn is_busy(&self, id: &(String, String)) -> bool {
        let queued = self
            .governed
            .get(id)
            .is_some_and(|one| !one.queue.is_empty());
        let moving = |pod: &Pod| pod.ticket().is_some_and(|ticket| ticket.policy == id.0);
        queued || self.under_way.iter().any(moving)
    }

    /// A round.
    async fn plan(
        &mut self,
        policy: &PlacementPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let id = id(policy);
        let Some(snapshot) = self.snapshot().await? else {
            return Ok(());
        };
        let mut pods = Vec::new();
        for namespace in &policy.spec.namespaces {
            pods.extend(self.server.pods_of(namespace).await?);
        }
        let nodes = self.server.nodes().await?;
        let others = taken.iter().filter(|(_, owner)| **owner != id.0);
        let topology = self.options.graphs.topology();
        let given = Given {
            snapshot: &snapshot,
            topology: &topology,
            pods: &pods,
            nodes: &nodes,
            spec: &policy.spec,
            taken: &others
                .map(|(name, owner)| (name.clone(), owner.clone()))
                .collect(),
        };
        let before = policy.status.clone().unwrap_or_default();
        let generation = policy.metadata.generation;
        let (busy, apply) = (
            self.is_busy(&id),
            policy.spec.mode() == PlacementMode::Apply,
        );
        let Some(governed) = self.governed.get_mut(&id) else {
            return Ok(());
        };
        let settle = self.options.graphs.window();
        governed.relocation.set_params(params(&policy.spec, settle));
        let (status, round) = match scene(&given) {
            Err(error) => (
                status::refused(&before, "Invalid", &error.to_string(), generation),
                None,
            ),
            Ok(scene) if scene.graph.services().is_empty() => {
                let message = "no pod of the mesh runs in these namespaces";
                (
                    status::refused(&before, "NoServices", message, generation),
                    None,
                )
            }
            Ok(scene) => {
                let relocation = governed.relocation.clone();
                let looked =
                    tokio::task::spawn_blocking(move || look(relocation, scene, (busy, apply)));
                // It does not panic; if it does, this round has not been.
                let Ok((relocation, scene, round)) = looked.await else {
                    return Ok(());
                };
                match round {
                    Err(error) => (
                        status::refused(&before, "Invalid", &error.to_string(), generation),
                        None,
                    ),
                    Ok(round) => {
                        governed.relocation = relocation;
                        (governed.account(policy, &scene, &round), Some(round))
                    }
                }
            }
        };
        if !self.writes() {
            return Ok(());
        }
        self.server.tell(policy, &status).await?;
        if let Some(round) = round {
            self.announce(policy, &round);
        }
        Ok(())
    }

    /// What all replicas have heard; none while one does not say it.
    async fn snapshot(&self) -> Result<Option<Snapshot>, kube::Error> {
        let others = self
            .options
            .replicas
            .ask::<Vec<Part>>("/graph?parts")
            .await?;
        if others.missing > 0 {
            tracing::debug!(
                missing = others.missing,
                "placement: what other replicas have heard is not known"
            );
            return Ok(None);
        }
        let mut all = others.all;
        all.push(self.options.graphs.parts());
        Ok(Some(self.options.graphs.snapshot().with_parts(&all)))
    }

    /// Begins the moves of the last round, of each Deployment one after the other.
    async fn begin(&mut self, policy: &PlacementPolicy) -> Result<(), kube::Error> {
        let id = id(policy);
        let Some(governed) = self.governed.get_mut(&id) else {
            return Ok(());
        };
        if policy.spec.mode() != PlacementMode::Apply {
            governed.queue.clear();
        }
        let busy: BTreeSet<String> = {
            let tickets = self.under_way.iter().filter_map(Pod::ticket);
            tickets.map(|ticket| ticket.service).collect()
        };
        let mut begun = BTreeSet::new();
        let (now, later): (Vec<Move>, Vec<Move>) = std::mem::take(&mut governed.queue)
            .into_iter()
            .partition(|one| !busy.contains(&one.service) && begun.insert(one.service.clone()));
        governed.queue = later;
        for one in now {
            if !self.writes() {
                return Ok(());
            }
            let why = self.begin_one(policy, &one).await?;
            let Some(governed) = self.governed.get_mut(&id) else {
                continue;
            };
            match why {
                None => drop(governed.why.remove(&one.service)),
                Some(why) => {
                    tracing::info!(
                        service = one.service,
                        from = one.from,
                        why,
                        "placement: not moved"
                    );
                    governed.why.insert(one.service.clone(), why.to_owned());
                    governed.relocation.failed(&one.service, status::now());
                }
            }
        }
        Ok(())
    }

    /// Begins a move; why not, if not.
    async fn begin_one(
        &mut self,
        policy: &PlacementPolicy,
        one: &Move,
    ) -> Result<Option<&'static str>, kube::Error> {
        let Some((namespace, _)) = one.service.split_once('/') else {
            return Ok(Some("it is of no namespace"));
        };
        let topology = self.options.graphs.topology();
        let pods = self.server.pods_of(namespace).await?;
        let of_service = |pod: &&Pod| topology.pods.get(&pod.key) == Some(&one.service);
        let there = |pod: &&Pod| pod.node.as_ref() == Some(&one.from) && pod.ready && !pod.ends;
        let movable = |pod: &&Pod| !pod.is_moving() && fixed(pod).is_none();
        let found = pods.iter().filter(of_service).filter(there).find(movable);
        let Some(pod) = found else {
            return Ok(Some("none of its pods on that node is ready and may move"));
        };
        let (Some((hash, _)), Some(set)) = (pod.deployment(), pod.replica_set()) else {
            return Ok(Some("only pods of Deployments move"));
        };
        let siblings = self.server.siblings(namespace, set, hash).await?;
        let others = siblings.iter().filter(|other| other.uid != pod.uid);
        let ready = policy.spec.ready_seconds.unwrap_or(READY_SECONDS);
        let ticket = Ticket {
            policy: id(policy).0,
            service: one.service.clone(),
            to: one.to.clone(),
            replica_set: set.to_owned(),
            hash: hash.to_owned(),
            others: others.map(|other| other.key.name.clone()).collect(),
            deadline: Timestamp::now().as_second() + i64::from(ready),
        };
        if !self.writes() {
            return Ok(None);
        }
        match self.server.begin(pod, &ticket).await? {
            Written::Done => {
                self.options.metrics.begun();
                let note = format!(
                    "a pod of {} moves from {} to {}",
                    one.service, one.from, one.to
                );
                self.options
                    .events
                    .tell(reference(policy), "PodMoving", "Move", &note);
                Ok(None)
            }
            Written::Blocked | Written::Stale => Ok(Some("the pod has changed meanwhile")),
        }
    }

    /// What people want to hear of a round.
    fn announce(&mut self, policy: &PlacementPolicy, round: &Round) {
        for (service, judgement) in &round.undone {
            self.options.metrics.rolled_back();
            let note = format!("{service} goes back where it was: {}", judgement.word());
            self.options
                .events
                .warn(reference(policy), "RolledBack", "Judge", &note);
        }
        let Some(governed) = self.governed.get_mut(&id(policy)) else {
            return;
        };
        let advised = round.reason == maglor_mcg::relocate::Reason::Advised;
        let recommends = policy.spec.mode() == PlacementMode::Recommend;
        let new = advised && !std::mem::replace(&mut governed.advised, advised);
        if let (true, true, Some(plan)) = (new, recommends, &round.plan) {
            let note = format!(
                "{} moves would leave {:.1} of {:.1} calls a second between nodes",
                plan.moves, plan.cut, round.cut
            );
            self.options
                .events
                .tell(reference(policy), "PlacementRecommended", "Plan", &note);
        }
    }
}

impl Governed {
    /// Takes over what a round has come to, and says it.
    fn account(
        &mut self,
        policy: &PlacementPolicy,
        scene: &Scene,
        round: &Round,
    ) -> PlacementPolicyStatus {
        for (service, judgement) in &round.undone {
            self.done.rolled_back = self.done.rolled_back.saturating_add(1);
            self.why
                .insert(service.clone(), judgement.word().to_owned());
        }
        self.queue.extend(round.moves.iter().cloned());
        let told = Told {
            scene,
            round,
            relocation: &self.relocation,
            mode: policy.spec.mode(),
            done: self.done,
            why: &self.why,
        };
        status::status(&told, policy.metadata.generation)
    }
}

type Looked = (Relocation, Scene, Result<Round, maglor_mcg::PartitionError>);

/// A round, which may take seconds.
fn look(mut relocation: Relocation, scene: Scene, (busy, apply): (bool, bool)) -> Looked {
    let view = View {
        graph: &scene.graph,
        nodes: &scene.nodes,
        present: &scene.present,
        bars: &scene.bars,
        measured: &scene.measured,
        busy,
        apply,
    };
    let round = relocation.round(status::now(), &view);
    (relocation, scene, round)
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
