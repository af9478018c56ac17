//! The operator: periodically compares observations with settings, and makes changes that are worthwhile. A change is
//! recorded before it is made, so that a new leader evaluates it after a crash.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{Api, Resource as _, ResourceExt as _};
use maglor_balance::Time;
use maglor_service_graph::advise::{Advice, Advisor};
use maglor_service_graph::tune::{Rollout, Round, Seen, Tuning, View};

use super::api::{Objects, Server};
use super::inputs::{Inputs, Sources, advice_params, inputs, params};
use super::status::{self, Done, StatusInput};
use super::traffic::{Policies, advised};
use crate::crd::{TuningMode, TuningPolicy};
use crate::index::facts::Key;
use crate::metrics::TuningMetrics;
use crate::placement::pod::{self, Pod};
use crate::reconcile::cache::key;
use crate::reconcile::policies::{self, by_age, nodes};
use crate::reconcile::{self, Again, Cache, Reconciler, Watch, Watches};
use crate::wall_clock;

/// Default interval of the evaluation.
const ROUND_SECONDS: u32 = 30;

/// Options of the operator, which changes Deployments in the permitted namespaces.
pub(crate) type Options = policies::Options<TuningMetrics>;

/// The state that the operator keeps for a policy.
struct Governed {
    /// The policy's UID, and whether it is applied. The state is reset when either changes.
    identity: (Option<String>, bool),
    generation: Option<i64>,
    advisor: Advisor,
    tuning: Tuning,
    done: Done,
    /// The time of the next round.
    due: Time,
    /// The services that the policy selects.
    subjects: BTreeSet<String>,
    /// Whether the event for a recommendation was emitted.
    recommended: bool,
}

/// The inputs of a round, and its recommendations.
struct Stage<'a> {
    policy: &'a TuningPolicy,
    inputs: Inputs,
    policies: Policies,
    advice: BTreeMap<String, Advice>,
}

struct Operator {
    options: Options,
    server: Server,
    watches: Watches<Key>,
    policies: Cache<TuningPolicy>,
    nodes: Cache<Node>,
    /// The objects of each namespace with a policy.
    objects: BTreeMap<String, Objects>,
    /// The state of each policy since the beginning of the term.
    governed: BTreeMap<Key, Governed>,
    /// When this process began to receive load reports.
    begun: Time,
}

/// Runs the operator until the process ends.
pub(crate) async fn run(options: Options) {
    let (term, begun) = (options.term.clone(), wall_clock::now());
    let begin = |watches| Operator::new(options.clone(), watches, begun);
    reconcile::run(term, begin).await;
}

impl Reconciler for Operator {
    type Unit = Key;

    const NAME: &'static str = "tuning";

    async fn reconcile(&mut self, policy: &Key) -> Result<Again, kube::Error> {
        self.look(wall_clock::now(), policy).await
    }
}

impl Operator {
    fn new(options: Options, watches: Watches<Key>, begun: Time) -> Self {
        let client = &options.client;
        let policies = Watch::new(vec![Api::all(client.clone())]);
        let policies = watches.open(policies, |policy| vec![key(policy)], Vec::new);
        Self {
            nodes: watches.hold(nodes(client), Vec::new),
            server: Server::new(client.clone()),
            options,
            watches,
            policies,
            objects: BTreeMap::new(),
            governed: BTreeMap::new(),
            begun,
        }
    }

    /// Runs a round of a policy if one is due, after the rounds of older policies, which take precedence. Returns
    /// when the policy's next round is due.
    async fn look(&mut self, now: Time, id: &Key) -> Result<Again, kube::Error> {
        let all = by_age(&self.policies);
        let Some(at) = all.iter().position(|policy| key(&**policy) == *id) else {
            self.governed.remove(id);
            let used = |of: &String| {
                all.iter()
                    .any(|one| one.metadata.namespace.as_ref() == Some(of))
            };
            self.objects.retain(|namespace, _| used(namespace));
            return Ok(None);
        };
        let older: Vec<_> = all[..at]
            .iter()
            .filter(|one| one.metadata.namespace == all[at].metadata.namespace)
            .collect();
        let mut taken = BTreeMap::new();
        for policy in older {
            let other = key(&**policy);
            if self.problem(policy).is_some() {
                continue;
            }
            if !self.governed.contains_key(&other)
                && let Err(error) = self.attend(now, policy, &taken).await
            {
                tracing::warn!(policy = %other, %error, "tuning: reconciliation failed; retrying");
            }
            let governed = self.governed.get(&other).into_iter();
            for name in governed.flat_map(|one| &one.subjects) {
                taken
                    .entry(name.clone())
                    .or_insert_with(|| other.name.clone());
            }
        }
        self.attend(now, &all[at], &taken).await
    }

    /// Runs a round of a policy if one is due. `taken` are the services of older policies.
    async fn attend(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<Again, kube::Error> {
        let id = &key(policy);
        if let Some((reason, message)) = self.problem(policy) {
            let before = policy.status.clone().unwrap_or_default();
            let status = status::refused(&before, reason, &message, policy.metadata.generation);
            self.server.report(policy, &status).await?;
            return Ok(None);
        }
        if !self.is_complete(&id.namespace) {
            return Ok(None);
        }
        let settle = self.options.graphs.window();
        let identity = (policy.uid(), policy.spec.mode() == TuningMode::Apply);
        if self
            .governed
            .get(id)
            .is_some_and(|one| one.identity != identity)
        {
            self.governed.remove(id);
        }
        let governed = self.governed.entry(id.clone());
        let governed =
            governed.or_insert_with(|| Governed::restored(policy, identity, settle, now));
        if governed.generation != policy.metadata.generation {
            (governed.generation, governed.due) = (policy.metadata.generation, now);
        }
        // Averages over less than the window T are incomplete.
        governed.due = governed.due.max(self.begun + settle);
        if governed.due <= now {
            let every = policy.spec.round_seconds.unwrap_or(ROUND_SECONDS);
            governed.due = now + Duration::from_secs(u64::from(every));
            self.round(now, policy, taken).await?;
        }
        let governed = self.governed.get(id);
        Ok(governed.map(|governed| governed.due.saturating_since(now)))
    }

    /// Returns why a policy is not in force; `None` if it is.
    fn problem(&self, policy: &TuningPolicy) -> Option<(&'static str, String)> {
        let namespace = policy.namespace().unwrap_or_default();
        let apply = policy.spec.mode() == TuningMode::Apply;
        match policy.spec.check() {
            Err(error) => Some(("Invalid", error.to_string())),
            Ok(()) if apply && !self.options.permitted.covers(&namespace) => Some((
                "NotEnabled",
                "the controller lacks permission to change Deployments here: install it with `tuning.enabled=true`, and with `tuning.namespaces` empty or listing this one"
                    .to_owned(),
            )),
            Ok(()) => None,
        }
    }

    /// Returns whether the objects of a namespace are known, and starts to watch them if necessary.
    fn is_complete(&mut self, namespace: &str) -> bool {
        let (client, policies) = (&self.options.client, &self.policies);
        let (watches, nodes) = (&self.watches, &self.nodes);
        let objects = self.objects.entry(namespace.to_owned());
        let objects = objects.or_insert_with(|| {
            let (policies, of) = (policies.clone(), namespace.to_owned());
            let listed = move || {
                let beside = policies.filter(|one| one.metadata.namespace.as_ref() == Some(&of));
                beside.iter().map(|policy| key(&**policy)).collect()
            };
            let may_apply = self.options.permitted.covers(namespace);
            Objects::open(client, watches, namespace, may_apply, listed)
        });
        objects.is_complete() && nodes.is_complete()
    }

    /// Runs a round of a policy.
    async fn round(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let Some((inputs, policies)) = self.inputs(policy, taken).await else {
            return Ok(());
        };
        let Some(governed) = self.governed.get_mut(&key(policy)) else {
            return Ok(());
        };
        let before = policy.status.clone().unwrap_or_default();
        let generation = policy.metadata.generation;
        let Some(advice) = governed.advise(now, policy, &inputs).await else {
            return Ok(());
        };
        let settle = self.options.graphs.window();
        governed.tuning.set_params(params(&policy.spec, settle));
        let round = governed.look(now, policy, (&inputs, &policies, &advice));
        let stage = Stage {
            policy,
            inputs,
            policies,
            advice,
        };
        // Rollbacks are made before the status is written: after a crash, the next leader evaluates such a change
        // again. Changes are recorded in the status before they are made, so that a new leader evaluates them.
        self.take_back(&stage, &round).await;
        let Some(governed) = self.governed.get(&key(policy)) else {
            return Ok(());
        };
        let input = StatusInput {
            now,
            inputs: &stage.inputs,
            advice: &stage.advice,
            policies: &stage.policies,
            round: &round,
            records: governed.tuning.records(),
            mode: policy.spec.mode(),
            done: governed.done,
        };
        let status = match stage.inputs.subjects.is_empty() {
            true => {
                let why = "no selected pod with a sidecar is running";
                status::refused(&before, "NoServices", why, generation)
            }
            false => status::status(&input, generation),
        };
        let reported = self.server.report(policy, &status).await;
        if !matches!(reported, Ok(true)) {
            self.miss(&stage, &round);
            return reported.map(drop);
        }
        self.recommend(policy, &round);
        self.carry_out(&stage, &round).await
    }

    /// Returns the inputs; `None` if the data of any replica is missing.
    async fn inputs(
        &self,
        policy: &TuningPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Option<(Inputs, Policies)> {
        let Options {
            replicas, graphs, ..
        } = &self.options;
        let namespace = policy.namespace().unwrap_or_default();
        // Only services with sidecars are tuned.
        if graphs.topology().is_meshed(&namespace) {
            graphs.refresh_usage().await;
        }
        let snapshot = replicas.whole(graphs).await?;
        let objects = self.objects.get(&namespace)?;
        let policies = Policies::read(&objects.traffic.json(), policy);
        let pods: Vec<Pod> = objects.pods.json().iter().map(Pod::read).collect();
        let nodes: Vec<pod::Node> = self.nodes.json().iter().map(pod::Node::read).collect();
        let inputs = inputs(&Sources {
            namespace: &namespace,
            snapshot: &snapshot,
            topology: &graphs.topology(),
            pods: &pods,
            nodes: &nodes,
            deployments: &objects.deployments.json(),
            horizontal: &objects.horizontal.json(),
            vertical: &objects.vertical.json(),
            policies: &policies,
            spec: &policy.spec,
            taken,
        });
        Some((inputs, policies))
    }

    /// Emits an event once when there is a recommendation.
    fn recommend(&mut self, policy: &TuningPolicy, round: &Round) {
        let Some(governed) = self.governed.get_mut(&key(policy)) else {
            return;
        };
        let some = !round.waiting.is_empty();
        let was = std::mem::replace(&mut governed.recommended, some);
        if some && !was && policy.spec.mode() == TuningMode::Recommend {
            let count = round.waiting.len();
            let note = format!("{count} service(s) have recommendations; see the status");
            self.options
                .events
                .report(reference(policy), "TuningRecommended", "Advise", &note);
        }
    }
}

impl Governed {
    /// Restores the state of a policy from its status.
    fn restored(
        policy: &TuningPolicy,
        identity: (Option<String>, bool),
        settle: Duration,
        now: Time,
    ) -> Self {
        let before = policy.status.clone().unwrap_or_default();
        let params = params(&policy.spec, settle);
        let (records, done) = status::records(&before, &params);
        // Changes are evaluated or rolled back only while the policy is applied.
        let records = if identity.1 { records } else { BTreeMap::new() };
        Self {
            identity,
            generation: policy.metadata.generation,
            advisor: Advisor::new(advice_params(&policy.spec)),
            tuning: Tuning::restored(params, records),
            done,
            due: now,
            subjects: BTreeSet::new(),
            recommended: false,
        }
    }

    /// Returns the recommendations, by name; `None` if the computation was aborted.
    async fn advise(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        inputs: &Inputs,
    ) -> Option<BTreeMap<String, Advice>> {
        let mut advisor = std::mem::take(&mut self.advisor);
        advisor.set_params(advice_params(&policy.spec));
        let observed = inputs.observed.clone();
        // For thousands of services, the computation takes some time.
        let advised = tokio::task::spawn_blocking(move || {
            advisor.observe(now, &observed);
            let advice = advisor.advise();
            (advisor, advice)
        });
        let (advisor, advice) = advised.await.ok()?;
        self.advisor = advisor;
        self.subjects = inputs.subjects.keys().cloned().collect();
        let own = advice.into_iter();
        let own = own.filter(|one| inputs.subjects.contains_key(&one.service));
        let complete = |mut one: Advice| {
            if let Some(subject) = inputs.subjects.get(&one.service) {
                subject.complete(&mut one);
            }
            (one.service.clone(), one)
        };
        Some(own.map(complete).collect())
    }

    fn look(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        (inputs, policies, advice): (&Inputs, &Policies, &BTreeMap<String, Advice>),
    ) -> Round {
        let seen = inputs.subjects.iter().map(|(name, subject)| {
            let advice = advice.get(name);
            let traffic = advice.and_then(|one| one.traffic.as_ref());
            let service = subject.service.as_ref();
            let differs = service.zip(traffic).is_some_and(|(service, traffic)| {
                let wanted = advised(&service.namespace, &service.name, traffic);
                let own = policies.own.get(&service.name);
                own.is_none_or(|own| own.spec != wanted)
            });
            Seen {
                name,
                present: subject.present,
                advice,
                traffic_differs: differs,
                shares_differ: advice.and_then(|one| subject.shares_differ(one, &policy.spec)),
                rollout: match &subject.workload {
                    Some(workload) => workload.rollout,
                    None => Rollout::COMPLETE,
                },
                health: subject.health,
                held: subject.hold.held,
                rooms: subject.rooms.clone(),
            }
        });
        let seen: Vec<Seen<'_>> = seen.collect();
        let view = View {
            services: &seen,
            calls: &inputs.calls,
            apply: policy.spec.mode() == TuningMode::Apply,
        };
        let round = self.tuning.round(now, &view);
        let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
        let done = &mut self.done;
        done.changes = done.changes.saturating_add(count(round.begun.len()));
        done.taken_back = done.taken_back.saturating_add(count(round.undone.len()));
        round
    }
}

fn reference(policy: &TuningPolicy) -> ObjectReference {
    policy.object_ref(&())
}

#[cfg(test)]
mod tests;
