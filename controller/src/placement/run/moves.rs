//! Begins moves, and takes the next step of each.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use maglor_service_graph::relocate::Move;

use super::{Governed, Operator, id, pod_reference, reference};
use crate::crd::{PlacementMode, PlacementPolicy};
use crate::epoch;
use crate::operate::Operator as _;
use crate::placement::api::Written;
use crate::placement::fits::fixed;
use crate::placement::moving::{self, Step, Ticket};
use crate::placement::pod::Pod;

/// Default timeout for a created pod to become ready, in seconds.
const READY_SECONDS: u32 = 180;

impl Operator {
    /// Takes the next step of each moving pod, independent of its policy's state.
    pub(super) async fn advance(&mut self) -> Result<(), kube::Error> {
        // Also if moves are not allowed any more: pending moves are completed, so that no pod stays outside its
        // ReplicaSet.
        let mut under_way = self.server.moving().await?;
        under_way.retain(|pod| !pod.ends);
        self.options.metrics.moving(under_way.len());
        self.blocked
            .retain(|uid| under_way.iter().any(|pod| pod.uid == *uid));
        for pod in &under_way {
            let Some(ticket) = pod.ticket() else {
                tracing::warn!(pod = %pod.key, "pod has the placement label, but no valid ticket");
                continue;
            };
            if let Err(error) = self.step(pod, &ticket).await {
                tracing::warn!(pod = %pod.key, %error, "placement: reconciliation failed; retrying");
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
        tracing::debug!(pod = %pod.key, ?step, "placement: applying step");
        let written = self.server.take(&seen, ticket, &step).await?;
        match (&step, written) {
            (Step::Evict, Written::Done) => self.moved(pod, ticket),
            (Step::Evict, Written::Blocked) => self.held_up(pod, ticket),
            (Step::GiveBack(why), Written::Done) => self.abandoned(pod, ticket, why),
            _ => {}
        }
        Ok(())
    }

    /// Returns the state of a move's policy, if it still exists.
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
            governed.relocation.failed(service, epoch::now());
            governed.queue.retain(|one| one.service != *service);
        }
    }

    /// Begins the moves of the last round, one at a time for each service.
    pub(super) async fn begin(&mut self, policy: &PlacementPolicy) -> Result<(), kube::Error> {
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
                        "placement: move abandoned"
                    );
                    governed.why.insert(one.service.clone(), why.to_owned());
                    governed.queue.retain(|other| other.service != one.service);
                    governed.relocation.failed(&one.service, epoch::now());
                }
            }
        }
        Ok(())
    }

    /// Begins a move; returns the reason if it is not possible.
    async fn begin_one(
        &mut self,
        policy: &PlacementPolicy,
        one: &Move,
    ) -> Result<Option<&'static str>, kube::Error> {
        let Some((namespace, _)) = one.service.split_once('/') else {
            return Ok(Some("no namespace"));
        };
        let topology = self.options.graphs.topology();
        let pods = self.server.pods_of(namespace).await?;
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
        if !self.writes() {
            return Ok(None);
        }
        match self.server.begin(pod, &ticket).await? {
            Written::Done => {
                self.options.metrics.begun();
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
