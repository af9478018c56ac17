//! Writes the statuses of resources while this replica holds the Lease.
//!
//! A status that is already up to date is not written. A condition keeps its transition time as long as its status is
//! unchanged. Statuses of the mesh's own kinds are written by server-side apply. The status of a route is a list
//! shared with other controllers, so it is replaced. Both writes are conditional on the version that was read
//! ([`crate::conditional_writes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use crate::conditional_writes::FIELD_MANAGER;
use crate::conditional_writes::{Manager, Precondition};
use crate::crd::{GROUP, VERSION};
use crate::index::facts::gateway::GATEWAY_CONTROLLER;
use crate::index::facts::{Key, Kind};
use crate::index::{CONTROLLER, Status, Wanted};
use crate::lease::Term;
use crate::source::kubernetes::api_resource;

/// Pause after a failure. Each further failure doubles the pause.
const REST: Duration = Duration::from_secs(1);
const MOST_REST: Duration = Duration::from_secs(60);
/// Delay during which changes of one resource are merged into one write.
const SETTLE: Duration = Duration::from_millis(20);

/// The desired statuses, and the keys of those that are not written yet.
#[derive(Default)]
struct Queue {
    all: BTreeMap<Id, Status>,
    open: BTreeSet<Id>,
    /// Statuses that were rejected at the last attempt, which is logged once.
    refused: BTreeSet<Id>,
}

type Id = (Kind, Key);

/// Writes statuses until the sender is dropped.
pub async fn write(
    client: Client,
    mut wanted: mpsc::UnboundedReceiver<Wanted>,
    mut term: watch::Receiver<Term>,
) {
    let mut queue = Queue::default();
    let mut term_seen = None;
    let mut rest = REST;
    loop {
        tokio::select! {
            one = wanted.recv() => {
                let Some(one) = one else { return };
                queue.put(one);
            }
            changed = term.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(rest), if !queue.open.is_empty() => {}
        }
        tokio::time::sleep(SETTLE).await;
        while let Ok(one) = wanted.try_recv() {
            queue.put(one);
        }
        let now = *term.borrow_and_update();
        if now.holds(Instant::now()) && term_seen.replace(now.number()) != Some(now.number()) {
            // The previous leader may not have written all statuses.
            queue.open.extend(queue.all.keys().cloned());
        }
        rest = match queue.write(&client, &term).await {
            true => REST,
            false => (rest * 2).min(MOST_REST),
        };
    }
}

impl Queue {
    fn put(&mut self, (kind, key, status): Wanted) {
        let id = (kind, key);
        match status {
            Some(status) => {
                self.open.insert(id.clone());
                self.all.insert(id, status);
            }
            // A new leader must not overwrite another controller's status with an outdated one.
            None => {
                self.open.remove(&id);
                self.all.remove(&id);
                self.refused.remove(&id);
            }
        }
    }

    /// Writes all pending statuses while this replica may write; a rejected one does not delay others. Returns
    /// whether none was rejected.
    async fn write(&mut self, client: &Client, term: &watch::Receiver<Term>) -> bool {
        let mut again = BTreeSet::new();
        while term.borrow().holds(Instant::now()) {
            let Some(id) = self.open.pop_first() else {
                break;
            };
            let Some(status) = self.all.get(&id) else {
                continue;
            };
            match write_one(client, id.0, &id.1, status).await {
                Ok(Written::Gone) => {
                    self.refused.remove(&id);
                    self.all.remove(&id);
                }
                Ok(Written::There) => {
                    self.refused.remove(&id);
                }
                Ok(Written::Changed) => drop(again.insert(id)),
                Err(error) => {
                    let kind = id.0.names().1;
                    if self.refused.insert(id.clone()) {
                        tracing::warn!(kind, name = %id.1, %error, "cannot write status; retrying");
                    }
                    again.insert(id);
                }
            }
        }
        let whole = again.is_empty();
        self.open.append(&mut again);
        whole
    }
}

enum Written {
    /// The object changed between two requests and is checked again.
    Changed,
    /// The object no longer exists.
    Gone,
    /// The status was already up to date.
    There,
}

async fn write_one(
    client: &Client,
    kind: Kind,
    key: &Key,
    status: &Status,
) -> Result<Written, kube::Error> {
    let resource = api_resource(kind);
    let api: Api<DynamicObject> = match kind.is_namespaced() {
        true => Api::namespaced_with(client.clone(), &key.namespace, &resource),
        false => Api::all_with(client.clone(), &resource),
    };
    let Some(current) = api.get_opt(&key.name).await? else {
        return Ok(Written::Gone);
    };
    // With a resolution of one second, as other controllers write times.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    let now = now.to_string();
    let before = current.data.get("status").cloned().unwrap_or(Value::Null);
    let next = merged(&before, status, &now);
    if before == next {
        return Ok(Written::There);
    }
    let (api_version, name, _) = kind.names();
    let patch = json!({
        "apiVersion": api_version,
        "kind": name,
        "metadata": {"name": key.name},
        "status": next,
    });
    let (by, seen) = (Manager(FIELD_MANAGER), Precondition::of(&current.metadata));
    let written = match status {
        Status::Kept(..) | Status::Policy(_) | Status::Whole(_) => {
            by.apply_status(&api, &key.name, patch, &seen).await
        }
        Status::Route(_) => by.merge_status(&api, &key.name, patch, &seen).await,
    };
    match written {
        // The object was deleted in the meantime, or its kind has no status subresource.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Written::Gone),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Changed),
        other => other.map(|_| Written::There),
    }
}

/// Returns the status to write. Entries of other controllers are kept, as are the times of unchanged conditions.
fn merged(before: &Value, status: &Status, now: &str) -> Value {
    let mut wanted = status.to_json();
    match status {
        Status::Kept(..) | Status::Policy(_) => {
            keep_times(&before["conditions"], &mut wanted["conditions"], now);
        }
        Status::Whole(_) => {
            keep_times(&before["conditions"], &mut wanted["conditions"], now);
            let none = Vec::new();
            let before = before["listeners"].as_array().unwrap_or(&none);
            let listeners = wanted.get_mut("listeners").and_then(Value::as_array_mut);
            for listener in listeners.into_iter().flatten() {
                let old = before.iter().find(|one| one["name"] == listener["name"]);
                let old = old.map(|one| one["conditions"].clone());
                keep_times(&old.unwrap_or_default(), &mut listener["conditions"], now);
            }
        }
        Status::Route(_) => {
            let none = Vec::new();
            let parents = before["parents"].as_array().unwrap_or(&none);
            let (mine, others): (Vec<&Value>, Vec<&Value>) = parents.iter().partition(|parent| {
                let name = &parent["controllerName"];
                name == CONTROLLER || name == GATEWAY_CONTROLLER
            });
            let mut next: Vec<Value> = others.into_iter().cloned().collect();
            if let Value::Array(list) = wanted["parents"].take() {
                for mut parent in list {
                    let same = |one: &&&Value| one["parentRef"] == parent["parentRef"];
                    let old = mine.iter().find(same).map(|one| one["conditions"].clone());
                    keep_times(&old.unwrap_or_default(), &mut parent["conditions"], now);
                    next.push(parent);
                }
            }
            wanted["parents"] = Value::Array(next);
        }
    }
    wanted
}

/// Returns the patch that sets the status of a resource of the mesh; `None` if it equals `before`.
pub(crate) fn patch_of(kind: &str, name: &str, before: &Value, mut status: Value) -> Option<Value> {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    if let Some(conditions) = status.get_mut("conditions") {
        keep_times(&before["conditions"], conditions, &now.to_string());
    }
    (*before != status).then(|| {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": kind,
            "metadata": {"name": name},
            "status": status,
        })
    })
}

/// Sets the transition time of each condition.
fn keep_times(before: &Value, wanted: &mut Value, now: &str) {
    let none = Vec::new();
    let before = before.as_array().unwrap_or(&none);
    for condition in wanted.as_array_mut().into_iter().flatten() {
        let old = before.iter().find(|one| one["type"] == condition["type"]);
        let old = old.filter(|one| one["status"] == condition["status"]);
        let time = old.and_then(|one| one["lastTransitionTime"].as_str());
        condition["lastTransitionTime"] = json!(time.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::Condition;
    use crate::index::facts::route::Parent;
    use crate::index::{ParentRef, ParentStatus};

    fn condition(holds: bool) -> Condition {
        Condition::new("Accepted", holds, "Accepted", "why", Some(2))
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_is_the_same() {
        let status = |holds| Status::Policy(vec![condition(holds)]);
        let first = merged(&Value::Null, &status(true), "t1");
        assert_eq!(first["conditions"][0]["lastTransitionTime"], "t1");
        let again = merged(&first, &status(true), "t2");
        assert_eq!(again, first, "nothing to write");
        let changed = merged(&first, &status(false), "t3");
        assert_eq!(changed["conditions"][0]["lastTransitionTime"], "t3");
    }

    /// The status of another controller is not overwritten.
    #[test]
    fn foreign_statuses_are_forgotten() {
        let id = || (Kind::Gateway, Key::new("n", "web"));
        let mut queue = Queue::default();
        queue.put((id().0, id().1, Some(Status::Whole(json!({})))));
        assert_eq!((queue.all.len(), queue.open.len()), (1, 1));
        queue.put((id().0, id().1, None));
        assert_eq!((queue.all.len(), queue.open.len()), (0, 0));
        // A route without entries of this controller keeps those of others.
        let theirs = json!({"controllerName": "example.com/other", "parentRef": {"name": "g"}});
        let ours = json!({"controllerName": CONTROLLER, "parentRef": {"name": "gone"}});
        let before = json!({"parents": [theirs, ours]});
        let next = merged(&before, &Status::Route(Vec::new()), "t1");
        assert_eq!(next, json!({"parents": [theirs]}));
    }

    #[test]
    fn other_controllers_keep_what_is_theirs() {
        let parent = ParentStatus {
            parent: ParentRef::Service(Parent {
                key: Key::new("n", "web"),
                names_namespace: false,
                port: Some(80),
                section: None,
            }),
            conditions: vec![condition(true)],
        };
        let status = Status::Route(vec![parent]);
        let theirs =
            json!({"controllerName": "example.com/other", "parentRef": {"name": "gateway"}});
        let stale = json!({"controllerName": CONTROLLER, "parentRef": {"name": "gone"}});
        let next = merged(&json!({"parents": [theirs, stale]}), &status, "t1");
        let parents = next["parents"].as_array().unwrap();
        assert_eq!(parents.len(), 2);
        assert_eq!(parents[0], theirs);
        assert_eq!(parents[1]["parentRef"]["port"], 80);
        assert_eq!(merged(&next, &status, "t2"), next, "nothing to write");
    }
}
