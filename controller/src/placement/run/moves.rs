//! Starts moves, and takes the next step of each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use maglor_service_graph::relocate::Move;
use tokio::time::Instant;

use super::watched::read;
use super::{Governed, Operator, id, pod_reference, reference};
use crate::crd::{PlacementMode, PlacementPolicy};
use crate::index::facts::Key;
use crate::placement::api::Written;
use crate::placement::fits::fixed;
use crate::placement::moving::{self, Step, Ticket};
use crate::placement::pod::Pod;
use crate::reconcile::Again;
use crate::wall_clock;

/// Default timeout for a replacement pod to become ready, in seconds.
const READY_SECONDS: u32 = 180;
/// Pause before an eviction that a PodDisruptionBudget blocks is retried.
const BLOCKED: Duration = Duration::from_secs(2);
/// Maximum time until the watch shows a pod as moving.
const SHOWN: Duration = Duration::from_secs(30);

impl Operator {
    /// Takes the next step of a moving pod, regardless of its policy's state: pending moves are completed even if
    /// moves are no longer allowed, so that no pod stays outside its ReplicaSet. Returns when the move times out.
    pub(super) async fn advance(&mut self, of: &Key) -> Result<Again, kube::Error> {
        let under_way = self.under_way();
        self.options.metrics.moving(under_way.len());
        self.blocked
            .retain(|uid| under_way.iter().any(|pod| pod.uid == *uid));
        self.begun_moves.remove(of);
        let Some(pod) = under_way.into_iter().find(|pod| pod.key == *of) else {
            return Ok(None);
        };
        let Some(ticket) = pod.ticket() else {
            tracing::warn!(pod = %pod.key, "placement: pod has the label of a moving pod, but no valid move annotation; ignored");
            return Ok(None);
        };
        let Some(known) = self.objects(&of.namespace) else {
            return Ok(None);
        };
        let now = Timestamp::now().as_second();
        let seen = known.seen(&pod, &ticket);
        if seen.is_none_or(|seen| moving::next(&seen, &ticket, now) == Step::Wait) {
            let left = u64::try_from(ticket.deadline - now).unwrap_or(0);
            return Ok((left > 0).then(|| Duration::from_secs(left)));
        }
        let blocked = self.step(&pod, &ticket).await? == Written::Blocked;
        if let Some(policy) = self.policy(&ticket) {
            // Results are published at once.
            self.report(&policy, &self.since(&policy)).await?;
        }
        Ok(blocked.then_some(BLOCKED))
    }

    /// Takes the next step of a pod. Watches of several kinds may be outdated to different degrees, so the step is
    /// computed again from the current objects.
    async fn step(&mut self, pod: &Pod, ticket: &Ticket) -> Result<Written, kube::Error> {
        let current = self.server.objects(&pod.key.namespace).await?;
        let Some(seen) = current
            .seen(pod, ticket)
            .filter(|seen| seen.pod.is_moving())
        else {
            return Ok(Written::Stale);
        };
        let step = moving::next(&seen, ticket, Timestamp::now().as_second());
        tracing::debug!(pod = %pod.key, ?step, "placement: applying step");
        if let Some(policy) = self.policy(ticket) {
            // The results of steps are added to the stored counters.
            self.remember(&policy);
        }
        let written = self.server.take(&seen, ticket, &step).await?;
        match (&step, written) {
            (Step::Evict, Written::Done) => self.moved(pod, ticket),
            (Step::Evict, Written::Blocked) => self.held_up(pod, ticket),
            (Step::GiveBack(why), Written::Done) => self.abandoned(pod, ticket, why),
            _ => {}
        }
        Ok(written)
    }

    /// Returns a move's policy; `None` if it no longer exists.
    fn policy(&self, ticket: &Ticket) -> Option<Arc<PlacementPolicy>> {
        self.policies.get(&Key::new("", &ticket.policy))
    }

    /// Returns the state of a move's policy; `None` if the policy no longer exists.
    fn policy_of(&mut self, ticket: &Ticket) -> Option<&mut Governed> {
        let mut all = self.governed.iter_mut();
        let found = all.find(|((name, _), _)| *name == ticket.policy);
        found.map(|(_, governed)| governed)
    }

    fn moved(&mut self, pod: &Pod, ticket: &Ticket) {
        self.options.metrics.done();
        let (service, to) = (&ticket.service, &ticket.to);
        tracing::info!(pod = %pod.key, service, to, "placement: pod moved");
        if let Some(governed) = self.policy_of(ticket) {
            governed.done.moves = governed.done.moves.saturating_add(1);
            governed.why.remove(service);
        }
    }

    fn held_up(&mut self, pod: &Pod, ticket: &Ticket) {
        let why = "a PodDisruptionBudget blocks the eviction of the old pod".to_owned();
        if self.blocked.insert(pod.uid.clone()) {
            let about = pod_reference(pod);
            self.options
                .events
                .warn(about, "MoveBlocked", "Evict", &why);
        }
        if let Some(governed) = self.policy_of(ticket) {
            governed.why.insert(ticket.service.clone(), why);
        }
    }

    fn abandoned(&mut self, pod: &Pod, ticket: &Ticket, why: &str) {
        self.options.metrics.abandoned();
        let (service, to) = (&ticket.service, &ticket.to);
        tracing::warn!(pod = %pod.key, service, to, why, "placement: move abandoned");
        let about = pod_reference(pod);
        self.options.events.warn(about, "MoveGivenUp", "Move", why);
        if let Some(governed) = self.policy_of(ticket) {
            governed.done.failed = governed.done.failed.saturating_add(1);
            let said = format!("move abandoned: {why}");
            governed.why.insert(service.clone(), said);
            governed.relocation.failed(service, wall_clock::now());
            governed.queue.retain(|one| one.service != *service);
        }
    }

    /// Starts the moves of the last round, one at a time for each service.
    pub(super) async fn begin(&mut self, policy: &PlacementPolicy) -> Result<(), kube::Error> {
        // A pod that the watch does not show by then has ended in the meantime.
        self.begun_moves.retain(|_, (_, at)| at.elapsed() < SHOWN);
        let under_way = self.under_way();
        let busy: BTreeSet<String> = {
            let tickets = under_way.iter().filter_map(Pod::ticket);
            let begun = self
                .begun_moves
                .values()
                .map(|(service, _)| service.clone());
            tickets.map(|ticket| ticket.service).chain(begun).collect()
        };
        let id = id(policy);
        let Some(governed) = self.governed.get_mut(&id) else {
            return Ok(());
        };
        if policy.spec.mode() != PlacementMode::Apply {
            governed.queue.clear();
        }
        let mut begun = BTreeSet::new();
        let (now, later): (Vec<Move>, Vec<Move>) = std::mem::take(&mut governed.queue)
            .into_iter()
            .partition(|one| !busy.contains(&one.service) && begun.insert(one.service.clone()));
        governed.queue = later;
        for one in now {
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
                        "placement: move abandoned"
                    );
                    governed.why.insert(one.service.clone(), why.to_owned());
                    governed.queue.retain(|other| other.service != one.service);
                    governed.relocation.failed(&one.service, wall_clock::now());
                }
            }
        }
        Ok(())
    }

    /// Starts a move; returns the reason if this is not possible.
    async fn begin_one(
        &mut self,
        policy: &PlacementPolicy,
        one: &Move,
    ) -> Result<Option<&'static str>, kube::Error> {
        let Some((namespace, _)) = one.service.split_once('/') else {
            return Ok(Some("no namespace"));
        };
        let topology = self.options.graphs.topology();
        let Some(pods) = self.pods_of(namespace) else {
            return Ok(Some("the pods of the namespace are unknown"));
        };
        let pods: Vec<Pod> = pods.all().iter().map(|pod| read(pod)).collect();
        let of_service = |pod: &&Pod| topology.pods.get(&pod.key) == Some(&one.service);
        let there = |pod: &&Pod| pod.node.as_ref() == Some(&one.from) && pod.ready && !pod.ends;
        let movable = |pod: &&Pod| !pod.is_moving() && fixed(pod).is_none();
        let found = pods.iter().filter(of_service).filter(there).find(movable);
        let Some(pod) = found else {
            return Ok(Some("no pod on that node is ready and movable"));
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
            returned: false,
        };
        match self.server.begin(pod, &ticket).await? {
            Written::Done => {
                self.options.metrics.begun();
                let begun = (one.service.clone(), Instant::now());
                self.begun_moves.insert(pod.key.clone(), begun);
                let note = format!(
                    "moving a pod of {} from {} to {}",
                    one.service, one.from, one.to
                );
                self.options
                    .events
                    .report(reference(policy), "PodMoving", "Move", &note);
                Ok(None)
            }
            Written::Blocked | Written::Stale => Ok(Some("the pod has changed")),
        }
    }
}
