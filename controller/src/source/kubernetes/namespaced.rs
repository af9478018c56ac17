//! Watches a kind in some namespaces: one watch for each, joined into one list.
//!
//! The first list is complete once every namespace was listed. A namespace that the API server rejects (its
//! RoleBinding was deleted, or it does not exist) counts as empty if it was not listed before; otherwise its known
//! resources stay.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream::SelectAll;
use kube::runtime::watcher::{self, Error, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Event, Step, Watch, api_resource, config};
use crate::index::facts::{Key, Kind, Object};

/// Watches a kind in these namespaces until the receiver of `events` is dropped.
pub(super) async fn watch(
    client: Client,
    kind: Kind,
    namespaces: BTreeSet<String>,
    events: mpsc::Sender<Event>,
) {
    let mut streams = SelectAll::new();
    for namespace in &namespaces {
        let api = Api::<kube::api::DynamicObject>::namespaced_with(
            client.clone(),
            namespace,
            &api_resource(kind),
        );
        let mut watch = Watch::new(kind);
        let name = namespace.clone();
        let steps = watcher(api, config(kind)).then(move |watched| {
            let refused = matches!(&watched, Err(error) if is_refused(error));
            let step = watch.take(watched, Instant::now());
            let name = name.clone();
            async move {
                if let Some(rest) = step.rest {
                    sleep(rest).await;
                }
                (name, step, refused)
            }
        });
        streams.push(Box::pin(steps));
    }
    let mut joined = Joined::new(kind, namespaces);
    while let Some((namespace, Step { events: said, .. }, refused)) = streams.next().await {
        let said = match refused {
            true => joined.refused(&namespace),
            false => said
                .into_iter()
                .flat_map(|event| joined.take(&namespace, event))
                .collect(),
        };
        for event in said {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// Returns whether the API server forbids the watch.
fn is_refused(error: &Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(cause) | WatchFailed(cause) | WatchStartFailed(cause)) = error else {
        return false;
    };
    matches!(cause, kube::Error::Api(status) if status.code == 403)
}

/// The joined state of the namespaces.
struct Joined {
    kind: Kind,
    /// Namespaces that were not listed yet.
    missing: BTreeSet<String>,
    /// The first lists, collected until the last of them is complete.
    first: (Vec<Object>, Vec<Key>),
    /// The known resources of each namespace.
    known: BTreeMap<String, BTreeSet<Key>>,
}

impl Joined {
    fn new(kind: Kind, namespaces: BTreeSet<String>) -> Self {
        Self {
            kind,
            missing: namespaces,
            first: (Vec::new(), Vec::new()),
            known: BTreeMap::new(),
        }
    }

    /// Handles a namespace that may not be read: if it was not listed before, it counts as empty.
    fn refused(&mut self, namespace: &str) -> Vec<Event> {
        self.listed(namespace, Vec::new(), Vec::new(), true)
    }

    fn take(&mut self, namespace: &str, event: Event) -> Vec<Event> {
        match event {
            Event::Reset {
                objects, unread, ..
            } => self.listed(namespace, objects, unread, false),
            Event::Apply(object) => {
                let known = self.known.entry(namespace.to_owned()).or_default();
                known.insert(object.key.clone());
                vec![Event::Apply(object)]
            }
            Event::Delete(kind, key) => {
                if let Some(known) = self.known.get_mut(namespace) {
                    known.remove(&key);
                }
                vec![Event::Delete(kind, key)]
            }
            other => vec![other],
        }
    }

    /// Handles a complete list of one namespace.
    fn listed(
        &mut self,
        namespace: &str,
        objects: Vec<Object>,
        unread: Vec<Key>,
        refused: bool,
    ) -> Vec<Event> {
        let first = self.missing.remove(namespace);
        if refused && !first {
            return Vec::new();
        }
        let keys = objects.iter().map(|object| &object.key).chain(&unread);
        let keys: BTreeSet<Key> = keys.cloned().collect();
        let before = self.known.insert(namespace.to_owned(), keys.clone());
        if first {
            self.first.0.extend(objects);
            self.first.1.extend(unread);
            if !self.missing.is_empty() {
                return Vec::new();
            }
            let (objects, unread) = std::mem::take(&mut self.first);
            return vec![Event::Reset {
                kind: self.kind,
                objects,
                unread,
            }];
        }
        let gone = before.unwrap_or_default();
        let gone = gone.difference(&keys).cloned().collect::<Vec<_>>();
        let deleted = gone.into_iter().map(|key| Event::Delete(self.kind, key));
        let applied = objects.into_iter().map(|one| Event::Apply(Box::new(one)));
        deleted.chain(applied).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(namespace: &str, name: &str) -> Object {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": namespace},
            "data": {"tls.crt": "", "tls.key": ""},
        });
        Object::read(&secret).unwrap()
    }

    fn list(namespace: &str, names: &[&str]) -> Event {
        Event::Reset {
            kind: Kind::Secret,
            objects: names.iter().map(|name| secret(namespace, name)).collect(),
            unread: Vec::new(),
        }
    }

    fn shown(events: &[Event]) -> Vec<String> {
        let show = |event: &Event| match event {
            Event::Reset { objects, .. } => {
                let names = objects.iter().map(|one| one.key.to_string());
                format!("list {}", names.collect::<Vec<_>>().join(" "))
            }
            Event::Apply(object) => format!("apply {}", object.key),
            Event::Delete(_, key) => format!("delete {key}"),
            _ => "other".to_owned(),
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn namespaces_are_one_list() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut joined = Joined::new(Kind::Secret, names.into());
        assert!(joined.take("a", list("a", &["one", "two"])).is_empty());
        assert!(joined.refused("b").is_empty(), "c was not listed yet");
        let first = joined.take("c", list("c", &["three"]));
        assert_eq!(shown(&first), ["list a/one a/two c/three"]);
        // Lists of one namespace change nothing of the others.
        let again = joined.take("a", list("a", &["two", "four"]));
        assert_eq!(
            shown(&again),
            ["delete a/one", "apply a/two", "apply a/four"]
        );
        // What may not be read any more holds, and what may be read now is there.
        assert!(joined.refused("a").is_empty());
        assert_eq!(
            shown(&joined.take("b", list("b", &["five"]))),
            ["apply b/five"]
        );
        let gone = joined.take("b", Event::Delete(Kind::Secret, Key::new("b", "five")));
        assert_eq!(shown(&gone), ["delete b/five"]);
        assert!(joined.take("b", list("b", &[])).is_empty());
    }
}
