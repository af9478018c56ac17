//! Computes the next step of a moving pod from its observed state. No state is kept between steps.
//!
//! ```text
//! begin ──► wait ──► the new pod is ready where it is wanted ─────────► evict ──► gone
//!             └────► it is elsewhere, or not ready in time ──► mark it ──► give back ──► rolled back ──► clear
//! ```

use serde_json::{Value, json};

use super::pod::{Pod, ReplicaSet};
pub use super::ticket::{CHEAPEST, Ticket};
use super::{DELETION_COST, HASH, MOVING};

/// Suffix that makes a template hash one that no ReplicaSet has.
const APART: &str = "-moving";

/// The observed state of a moving pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The pod.
    pub pod: Pod,
    /// The pod's ReplicaSet; `None` if it was deleted.
    pub set: Option<ReplicaSet>,
    /// The pod's Deployment, without counting this pod; `None` if it was deleted.
    pub deployment: Option<Deployment>,
    /// The current pods of the ReplicaSet, except terminating ones.
    pub siblings: Vec<Pod>,
}

/// A Deployment with the pods of all its ReplicaSets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deployment {
    /// The wanted number of pods.
    pub replicas: u32,
    /// The number of ready pods, except those that their ReplicaSets are about to remove.
    pub ready: u32,
    /// Whether a rollout is in progress, so that several ReplicaSets have pods.
    pub rolling: bool,
}

/// The next step of a move.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Remove the ticket, because the pod belongs to its ReplicaSet again.
    Clear,
    /// Evict the pod, because its replacement is ready or none is needed.
    Evict,
    /// Return the pod to its ReplicaSet, which will then have one pod too many, for this reason.
    GiveBack(&'static str),
    /// Mark the replacement as the first pod to be removed.
    Mark(Box<Pod>),
    /// Wait for the replacement to become ready.
    Wait,
}

/// Returns the patch that removes a pod from its ReplicaSet.
#[must_use]
pub fn begin(ticket: &Ticket) -> Value {
    let text = serde_json::to_string(ticket).unwrap_or_default();
    json!({"metadata": {
        "labels": {HASH: format!("{}{APART}", ticket.hash), MOVING: "true"},
        "annotations": {MOVING: text},
    }})
}

/// Returns the patch that reverts [`begin`].
#[must_use]
pub fn revert(ticket: &Ticket) -> Value {
    let ticket = Ticket {
        returned: true,
        ..ticket.clone()
    };
    let text = serde_json::to_string(&ticket).unwrap_or_default();
    json!({"metadata": {
        "labels": {HASH: ticket.hash},
        "annotations": {MOVING: text},
    }})
}

/// Returns the patch that removes all traces of the move.
#[must_use]
pub fn clear() -> Value {
    json!({"metadata": {
        "labels": {MOVING: null},
        "annotations": {MOVING: null},
    }})
}

/// Returns the patch that marks a pod as the first to be removed.
#[must_use]
pub fn mark() -> Value {
    json!({"metadata": {
        "annotations": {DELETION_COST: CHEAPEST},
    }})
}

/// Returns the next step. `now` is in seconds since the Unix epoch.
#[must_use]
pub fn next(seen: &Seen, ticket: &Ticket, now: i64) -> Step {
    let pod = &seen.pod;
    let owned = pod.replica_set().is_some();
    if ticket.returned && owned {
        return Step::Clear;
    }
    // The Deployment does not count this pod and would not replace it. Therefore, in any state of a rollout, the pod
    // is removed only if no replica is missing without it.
    let spare = seen.deployment.is_none_or(|one| one.ready >= one.replicas);
    let Some(set) = seen.set.filter(|set| set.replicas > 0) else {
        // All pods of the ReplicaSet are gone, so the move is obsolete.
        return if spare { Step::Evict } else { Step::Wait };
    };
    // Until the ReplicaSet has released the pod, `siblings` may still change. A returned pod is adopted again because
    // of the ReplicaSet's selector.
    if owned || ticket.returned {
        return Step::Wait;
    }
    let new = |one: &&Pod| !ticket.others.contains(&one.key.name);
    let successors: Vec<&Pod> = seen.siblings.iter().filter(new).collect();
    let there = |one: &&Pod| one.ready && one.node.as_ref() == Some(&ticket.to);
    let elsewhere = |one: &&&Pod| one.node.as_ref().is_some_and(|node| *node != ticket.to);
    let arrived = successors.iter().any(there);
    let ready = seen.siblings.iter().filter(|one| one.ready).count();
    // The ReplicaSet was scaled down in the meantime.
    let fewer = successors.is_empty() && ready >= set.replicas as usize;
    if spare && (arrived || fewer) {
        return Step::Evict;
    }
    // A ReplicaSet that has or will have one pod too many would remove a ready pod if this pod were returned.
    let rolling = seen.deployment.is_some_and(|one| one.rolling);
    if fewer || rolling || seen.siblings.len() > set.replicas as usize {
        return Step::Wait;
    }
    if let (false, Some(one)) = (arrived, successors.iter().find(elsewhere)) {
        return back(one, "its replacement runs on another node");
    }
    if now < ticket.deadline {
        return Step::Wait;
    }
    let late = "its replacement was not ready in time";
    let first = successors.first();
    first.map_or(Step::GiveBack(late), |one| back(one, late))
}

/// Marks the replacement before the pod is returned, because otherwise the ReplicaSet might remove another pod.
fn back(successor: &Pod, why: &'static str) -> Step {
    match successor.is_cheapest() {
        true => Step::GiveBack(why),
        false => Step::Mark(Box::new(successor.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            to: "n2".to_owned(),
            hash: "5d4".to_owned(),
            replica_set: "web-5d4".to_owned(),
            others: vec!["b".to_owned()],
            deadline: 100,
            ..Ticket::default()
        }
    }

    fn pod(name: &str, node: Option<&str>, ready: bool) -> Pod {
        let mut pod = Pod {
            node: node.map(str::to_owned),
            ready,
            owner: Some(("ReplicaSet".to_owned(), "web-5d4".to_owned())),
            ..Pod::default()
        };
        pod.key.name = name.to_owned();
        pod
    }

    fn seen(siblings: Vec<Pod>) -> Seen {
        let mut old = pod("a", Some("n1"), true);
        old.owner = None;
        Seen {
            pod: old,
            set: Some(ReplicaSet { replicas: 2 }),
            deployment: Some(Deployment {
                replicas: 2,
                ready: siblings.iter().filter(|one| one.ready).count() as u32,
                rolling: false,
            }),
            siblings,
        }
    }

    #[test]
    fn the_old_pod_goes_when_the_new_one_is_ready_there() {
        let b = pod("b", Some("n2"), true);
        let next = |siblings: Vec<Pod>, now| next(&seen(siblings), &ticket(), now);
        assert_eq!(
            next(vec![b.clone()], 50),
            Step::Wait,
            "no replacement created yet"
        );
        let unscheduled = vec![b.clone(), pod("c", None, false)];
        assert_eq!(next(unscheduled, 50), Step::Wait);
        assert_eq!(
            next(vec![b.clone(), pod("c", Some("n2"), false)], 50),
            Step::Wait
        );
        assert_eq!(
            next(vec![b.clone(), pod("c", Some("n2"), true)], 500),
            Step::Evict
        );
        let mut kept = seen(vec![b.clone(), pod("c", Some("n2"), true)]);
        kept.pod.owner = b.owner;
        assert_eq!(
            super::next(&kept, &ticket(), 500),
            Step::Wait,
            "eviction blocked"
        );
    }

    #[test]
    fn it_is_reverted_if_the_replacement_fails() {
        let b = pod("b", Some("n2"), true);
        let next = |siblings: Vec<Pod>, now| next(&seen(siblings), &ticket(), now);
        let mut elsewhere = pod("c", Some("n1"), false);
        assert_eq!(
            next(vec![b.clone(), elsewhere.clone()], 50),
            Step::Mark(Box::new(elsewhere.clone()))
        );
        elsewhere
            .annotations
            .insert(DELETION_COST.to_owned(), CHEAPEST.to_owned());
        let marked = next(vec![b.clone(), elsewhere], 50);
        assert_eq!(
            marked,
            Step::GiveBack("its replacement runs on another node")
        );
        let late = pod("c", Some("n2"), false);
        assert_eq!(
            next(vec![b.clone(), late.clone()], 100),
            Step::Mark(Box::new(late))
        );
        let none = next(vec![b], 100);
        assert_eq!(
            none,
            Step::GiveBack("its replacement was not ready in time")
        );
    }

    #[test]
    fn what_happens_to_the_deployment_meanwhile() {
        let mut gone = seen(Vec::new());
        gone.set = None;
        assert_eq!(next(&gone, &ticket(), 0), Step::Wait, "it is missed");
        gone.deployment = None;
        assert_eq!(next(&gone, &ticket(), 0), Step::Evict);
        gone.set = Some(ReplicaSet { replicas: 0 });
        assert_eq!(next(&gone, &ticket(), 0), Step::Evict, "another version");
        let mut fewer = seen(vec![pod("b", Some("n2"), true)]);
        fewer.set = Some(ReplicaSet { replicas: 1 });
        assert_eq!(
            next(&fewer, &ticket(), 0),
            Step::Wait,
            "a rollout is in progress"
        );
        fewer.deployment = Some(Deployment {
            replicas: 1,
            ready: 1,
            rolling: false,
        });
        assert_eq!(next(&fewer, &ticket(), 0), Step::Evict, "scaled down");
    }

    #[test]
    fn reverting_a_started_move_restores_the_state() {
        let mut pod = pod("a", Some("n1"), true);
        let begun = begin(&ticket());
        assert_eq!(begun["metadata"]["labels"][HASH], "5d4-moving");
        let text = begun["metadata"]["annotations"][MOVING]
            .as_str()
            .unwrap()
            .to_owned();
        pod.labels.insert(MOVING.to_owned(), "true".to_owned());
        pod.annotations.insert(MOVING.to_owned(), text);
        assert_eq!(pod.ticket(), Some(ticket()));
        let back = revert(&ticket());
        assert_eq!(back["metadata"]["labels"], json!({HASH: "5d4"}));
        // The ticket is kept until the ReplicaSet has adopted the pod, which would otherwise be orphaned if the
        // leader ended now.
        let text = back["metadata"]["annotations"][MOVING]
            .as_str()
            .unwrap()
            .to_owned();
        pod.annotations.insert(MOVING.to_owned(), text);
        let returned = pod.ticket().unwrap();
        let mut back = Seen {
            set: Some(ReplicaSet { replicas: 2 }),
            ..Seen::default()
        };
        assert_eq!(next(&back, &returned, 500), Step::Wait);
        back.set = None;
        assert_eq!(next(&back, &returned, 500), Step::Evict);
        back.pod = pod;
        assert_eq!(next(&back, &returned, 500), Step::Clear);
        let cleared = clear();
        assert_eq!(cleared["metadata"]["labels"], json!({MOVING: null}));
    }
}
