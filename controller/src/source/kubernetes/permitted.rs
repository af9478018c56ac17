//! The part of a kind that the controller may read: a watch for each namespace or name, joined into one list.
//!
//! The first list is complete once every part was listed. A part that the API server refuses, because its RoleBinding
//! or its namespace does not exist, has no resources until it is allowed. If its resources were known before, they
//! are kept.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream::SelectAll;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Event, Step, Watch, api_resource, config};
use crate::api_server;
use crate::index::facts::{Key, Kind, Object};
use crate::scope::SecretName;

/// A part of a kind that has its own watch.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Part {
    /// All objects of a namespace.
    Namespace(String),
    /// One object. An RBAC rule with `resourceNames` permits a watch with a field selector for this object.
    Object(SecretName),
}

impl Part {
    fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::Object(object) => &object.namespace,
        }
    }

    fn config(&self, kind: Kind) -> watcher::Config {
        match self {
            Self::Namespace(_) => config(kind),
            Self::Object(object) => {
                let config = config(kind);
                let name = format!("metadata.name={}", object.name);
                let fields = match &config.field_selector {
                    Some(others) => format!("{name},{others}"),
                    None => name,
                };
                config.fields(&fields)
            }
        }
    }
}

/// Watches these parts of a kind until the receiver of `events` is dropped.
pub(super) async fn watch(
    client: Client,
    kind: Kind,
    parts: BTreeSet<Part>,
    events: mpsc::Sender<Event>,
) {
    let mut streams = SelectAll::new();
    for part in &parts {
        let resource = api_resource(kind);
        let api =
            Api::<DynamicObject>::namespaced_with(client.clone(), part.namespace(), &resource);
        let mut watch = Watch::new(kind);
        let own = part.clone();
        let steps = watcher(api, part.config(kind)).then(move |watched| {
            let refused = matches!(&watched, Err(error) if api_server::failed_with(error, 403));
            let step = watch.take(watched, Instant::now());
            let part = own.clone();
            async move {
                if let Some(rest) = step.rest {
                    sleep(rest).await;
                }
                (part, step, refused)
            }
        });
        streams.push(Box::pin(steps));
    }
    let mut joined = Joined::new(kind, parts);
    while let Some((
        part,
        Step {
            events: produced, ..
        },
        refused,
    )) = streams.next().await
    {
        let produced = match refused {
            true => joined.refused(&part),
            false => produced
                .into_iter()
                .flat_map(|event| joined.take(&part, event))
                .collect(),
        };
        for event in produced {
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// The joined state of the parts.
struct Joined {
    kind: Kind,
    /// Parts that were not listed yet.
    missing: BTreeSet<Part>,
    /// The first lists, which are collected until the last of them is complete.
    first: (Vec<Object>, Vec<Key>),
    /// Objects of each part.
    known: BTreeMap<Part, BTreeSet<Key>>,
}

impl Joined {
    fn new(kind: Kind, parts: BTreeSet<Part>) -> Self {
        Self {
            kind,
            missing: parts,
            first: (Vec::new(), Vec::new()),
            known: BTreeMap::new(),
        }
    }

    /// Handles a part that may not be read. If it was not listed before, it counts as empty.
    fn refused(&mut self, part: &Part) -> Vec<Event> {
        self.listed(part, Vec::new(), Vec::new(), true)
    }

    fn take(&mut self, part: &Part, event: Event) -> Vec<Event> {
        match event {
            Event::Reset {
                objects, unread, ..
            } => self.listed(part, objects, unread, false),
            Event::Apply(object) => {
                let known = self.known.entry(part.clone()).or_default();
                known.insert(object.key.clone());
                vec![Event::Apply(object)]
            }
            Event::Delete(kind, key) => {
                if let Some(known) = self.known.get_mut(part) {
                    known.remove(&key);
                }
                vec![Event::Delete(kind, key)]
            }
            other => vec![other],
        }
    }

    /// Handles a complete list of one part.
    fn listed(
        &mut self,
        part: &Part,
        objects: Vec<Object>,
        unread: Vec<Key>,
        refused: bool,
    ) -> Vec<Event> {
        let first = self.missing.remove(part);
        if refused && !first {
            return Vec::new();
        }
        let keys = objects.iter().map(|object| &object.key).chain(&unread);
        let keys: BTreeSet<Key> = keys.cloned().collect();
        let before = self.known.insert(part.clone(), keys.clone());
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
        let [a, b, c] = ["a", "b", "c"].map(|name| Part::Namespace(name.to_owned()));
        let parts = [&a, &b, &c].map(Part::clone);
        let mut joined = Joined::new(Kind::Secret, parts.into());
        assert!(joined.take(&a, list("a", &["one", "two"])).is_empty());
        assert!(joined.refused(&b).is_empty(), "c was not listed yet");
        let first = joined.take(&c, list("c", &["three"]));
        assert_eq!(shown(&first), ["list a/one a/two c/three"]);
        // A list of one namespace does not change the others.
        let again = joined.take(&a, list("a", &["two", "four"]));
        assert_eq!(
            shown(&again),
            ["delete a/one", "apply a/two", "apply a/four"]
        );
        // Objects that may not be read any more are kept, and objects that may be read now are added.
        assert!(joined.refused(&a).is_empty());
        assert_eq!(
            shown(&joined.take(&b, list("b", &["five"]))),
            ["apply b/five"]
        );
        let gone = joined.take(&b, Event::Delete(Kind::Secret, Key::new("b", "five")));
        assert_eq!(shown(&gone), ["delete b/five"]);
        assert!(joined.take(&b, list("b", &[])).is_empty());
    }

    #[test]
    fn an_object_is_selected_by_its_name() {
        let part = Part::Object("edge/shop-example".parse().unwrap());
        let selector = part.config(Kind::Secret).field_selector;
        let expected = "metadata.name=shop-example,type=kubernetes.io/tls";
        assert_eq!(selector.as_deref(), Some(expected));
        assert_eq!(part.namespace(), "edge");
    }
}
