//! The operator: periodically compares observations with settings, and makes changes that are worthwhile. Only the
//! leader writes. A change is recorded before it is made, so that a new leader evaluates it after a crash.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use maglor_balance::Time;
use maglor_service_graph::advise::{Advice, Advisor};
use maglor_service_graph::tune::{Rollout, Round, Seen, Tuning, View};
use tokio::sync::watch;

use super::api::{Kind, Server};
use super::inputs::{Inputs, Sources, advice_params, inputs, params};
use super::status::{self, Done, StatusInput};
use super::traffic::{Policies, advised};
use crate::crd::{TuningMode, TuningPolicy};
use crate::epoch;
use crate::events::Events;
use crate::graph::Graphs;
use crate::graph::replicas::Replicas;
use crate::lease::Term;
use crate::metrics::TuningMetrics;
use crate::operate::{self, Operator as _};
use crate::placement::api::Server as Pods;
use crate::scope::Scope;

/// Default interval of the evaluation.
const ROUND_SECONDS: u32 = 30;

/// The dependencies and permissions of the operator.
pub(crate) struct Options {
    /// The client. Requests are not retried: the operator observes again first.
    pub(crate) client: kube::Client,
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) events: Events,
    pub(crate) metrics: TuningMetrics,
    /// The namespaces where Deployments may be changed, as permitted at installation.
    pub(crate) tunes: Scope,
}

/// Namespace, name and UID of a policy, and whether it is applied: a change of that resets its state.
type Id = (String, String, String, bool);

/// The state of a policy.
struct Governed {
    advisor: Advisor,
    tuning: Tuning,
    done: Done,
    /// The time of the next round.
    due: Time,
    /// Its services.
    subjects: BTreeSet<String>,
    /// Whether the event for a recommendation was sent.
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
    pods: Pods,
    /// By policy, since the begin of the term.
    governed: BTreeMap<Id, Governed>,
    /// When this process began to receive reports.
    begun: Time,
}

/// Runs as long as the process does.
pub(crate) async fn run(options: Options) {
    operate::run(Operator::new(options, epoch::now())).await;
}

impl operate::Operator for Operator {
    const NAME: &'static str = "tuning";

    fn term(&self) -> &watch::Receiver<Term> {
        &self.options.term
    }

    fn begin_term(&mut self) {
        self.governed.clear();
    }

    async fn look(&mut self) -> Result<bool, kube::Error> {
        self.look_at(epoch::now()).await
    }
}

impl Operator {
    fn new(options: Options, now: Time) -> Self {
        Self {
            server: Server::new(options.client.clone()),
            pods: Pods::new(options.client.clone()),
            options,
            governed: BTreeMap::new(),
            begun: now,
        }
    }

    /// Handles all policies; returns whether there are any.
    async fn look_at(&mut self, now: Time) -> Result<bool, kube::Error> {
        let policies = self.server.policies().await?;
        let known: BTreeSet<Id> = policies.iter().map(id).collect();
        self.governed.retain(|id, _| known.contains(id));
        let mut taken = BTreeMap::new();
        for policy in &policies {
            if let Err(error) = self.attend(now, policy, &mut taken).await {
                let (namespace, name, ..) = id(policy);
                tracing::warn!(namespace, policy = name, %error, "tuning: reconciliation failed; retrying");
            }
        }
        Ok(!policies.is_empty())
    }

    /// Runs a round of a policy, if one is due.
    async fn attend(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        taken: &mut BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let id = id(policy);
        let before = policy.status.clone().unwrap_or_default();
        let problem = match policy.spec.check() {
            Err(error) => Some(("Invalid", error.to_string())),
            Ok(()) if id.3 && !self.options.tunes.covers(&id.0) => Some((
                "NotEnabled",
                "the controller lacks permission to change Deployments here: install it with `tuning.enabled=true`, and with `tuning.namespaces` empty or listing this one"
                    .to_owned(),
            )),
            Ok(()) => None,
        };
        if let Some((reason, message)) = problem {
            if self.writes() {
                let generation = policy.metadata.generation;
                let status = status::refused(&before, reason, &message, generation);
                self.server.report(policy, &status).await?;
            }
            return Ok(());
        }
        let settle = self.options.graphs.window();
        let governed = self.governed.entry(id.clone()).or_insert_with(|| {
            let params = params(&policy.spec, settle);
            let (records, done) = status::records(&before, &params);
            // Changes are evaluated or rolled back only while the policy is applied.
            let records = if id.3 { records } else { BTreeMap::new() };
            Governed {
                advisor: Advisor::new(advice_params(&policy.spec)),
                tuning: Tuning::restored(params, records),
                done,
                due: now,
                subjects: BTreeSet::new(),
                recommended: false,
            }
        });
        // Averages over less than T are incomplete.
        let known = now.saturating_since(self.begun) >= settle;
        if known && governed.due <= now {
            let every = policy.spec.round_seconds.unwrap_or(ROUND_SECONDS);
            governed.due = now + Duration::from_secs(u64::from(every));
            self.round(now, policy, taken).await?;
        }
        if let Some(governed) = self.governed.get(&id) {
            for name in &governed.subjects {
                taken.entry(name.clone()).or_insert_with(|| id.1.clone());
            }
        }
        Ok(())
    }

    /// Runs a round.
    async fn round(
        &mut self,
        now: Time,
        policy: &TuningPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<(), kube::Error> {
        let Some((inputs, policies)) = self.inputs(policy, taken).await? else {
            return Ok(());
        };
        let Some(governed) = self.governed.get_mut(&id(policy)) else {
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
        // Rollbacks come before the status: after a crash the next leader evaluates the change once more. Changes are
        // recorded in the status before they are made, so that a new leader evaluates them.
        self.take_back(&stage, &round).await;
        let Some(governed) = self.governed.get(&id(policy)) else {
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
        if !self.writes() {
            return Ok(());
        }
        self.server.report(policy, &status).await?;
        self.recommend(policy, &round);
        self.carry_out(&stage, &round).await
    }

    /// Returns the inputs; `None` while the data of a replica is missing.
    async fn inputs(
        &self,
        policy: &TuningPolicy,
        taken: &BTreeMap<String, String>,
    ) -> Result<Option<(Inputs, Policies)>, kube::Error> {
        let known = self.options.replicas.whole(&self.options.graphs).await?;
        let Some(snapshot) = known else {
            return Ok(None);
        };
        let (namespace, own, ..) = id(policy);
        let list = |kind| self.server.list(kind, &namespace);
        let found = list(Kind::TrafficPolicy).await?;
        let policies = Policies::read(&found, policy);
        let others = taken.iter().filter(|(_, owner)| **owner != own);
        let inputs = inputs(&Sources {
            namespace: &namespace,
            snapshot: &snapshot,
            topology: &self.options.graphs.topology(),
            pods: &self.pods.pods_of(&namespace).await?,
            nodes: &self.pods.nodes().await?,
            deployments: &list(Kind::Deployment).await?,
            horizontal: &list(Kind::HorizontalPodAutoscaler).await?,
            vertical: &list(Kind::VerticalPodAutoscaler).await?,
            policies: &policies,
            spec: &policy.spec,
            taken: &others
                .map(|(name, owner)| (name.clone(), owner.clone()))
                .collect(),
        });
        Ok(Some((inputs, policies)))
    }

    /// Sends an event once when there is a recommendation.
    fn recommend(&mut self, policy: &TuningPolicy, round: &Round) {
        let Some(governed) = self.governed.get_mut(&id(policy)) else {
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
        // The computation takes a while for thousands of services.
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

fn id(policy: &TuningPolicy) -> Id {
    let meta = &policy.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let apply = policy.spec.mode() == TuningMode::Apply;
    (
        text(&meta.namespace),
        text(&meta.name),
        text(&meta.uid),
        apply,
    )
}

fn reference(policy: &TuningPolicy) -> ObjectReference {
    policy.object_ref(&())
}

#[cfg(test)]
mod tests;
