//! An API server: a watch for each kind.
//!
//! Watches never end: what fails is tried again, later each time. A kind that the server does not know
//! (its definition is not installed) has no resources, and is asked for again.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Config, Event as Watched, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Event;
use crate::index::facts::{Key, Kind, Object};

/// How long a watch rests after its first failure; each further one doubles it.
const REST: Duration = Duration::from_millis(500);
const MOST_REST: Duration = Duration::from_secs(10);

/// How a kind is called in the API.
#[must_use]
pub fn api_resource(kind: Kind) -> ApiResource {
    let (api_version, name, plural) = kind.names();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, name);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Watches all kinds, as long as anybody listens.
pub async fn watch(client: Client, events: mpsc::Sender<Event>) {
    let mut watches = tokio::task::JoinSet::new();
    for kind in Kind::ALL {
        watches.spawn(watch_kind(client.clone(), kind, events.clone()));
    }
    tokio::select! {
        () = events.closed() => {}
        () = async { while watches.join_next().await.is_some() {} } => {}
    }
}

async fn watch_kind(client: Client, kind: Kind, events: mpsc::Sender<Event>) {
    let api: Api<DynamicObject> = Api::all_with(client, &api_resource(kind));
    let mut stream = pin!(watcher(api, Config::default()));
    let mut listed = Vec::new();
    let mut rest = REST;
    let mut known = true;
    while let Some(watched) = stream.next().await {
        let event = match watched {
            Ok(Watched::Init) => {
                listed.clear();
                continue;
            }
            Ok(Watched::InitApply(object)) => match read(kind, object) {
                Event::Apply(object) => {
                    listed.push(*object);
                    continue;
                }
                refused => refused,
            },
            Ok(Watched::InitDone) => {
                (rest, known) = (REST, true);
                Event::Reset(kind, std::mem::take(&mut listed))
            }
            Ok(Watched::Apply(object)) => {
                rest = REST;
                read(kind, object)
            }
            Ok(Watched::Delete(object)) => Event::Delete(kind, key(&object)),
            Err(error) => {
                let first = std::mem::replace(&mut known, !is_unknown(&error));
                let event = (!known && first).then(|| Event::Reset(kind, Vec::new()));
                let (_, name, _) = kind.names();
                if known {
                    tracing::warn!(kind = name, %error, "watch failed, it is tried again");
                } else if first {
                    tracing::info!(kind = name, "the API server does not know this kind");
                }
                if let Some(event) = event
                    && events.send(event).await.is_err()
                {
                    return;
                }
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(MOST_REST);
                continue;
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Whether the API server does not know the kind.
fn is_unknown(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(cause) | WatchFailed(cause) | WatchStartFailed(cause)) = error else {
        return false;
    };
    matches!(cause, kube::Error::Api(status) if status.code == 404)
}

fn key(object: &DynamicObject) -> Key {
    let meta = &object.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    Key::new(namespace, meta.name.as_deref().unwrap_or_default())
}

fn read(kind: Kind, object: DynamicObject) -> Event {
    let what = format!("{} {}", kind.names().1, key(&object));
    let mut metadata = object.metadata;
    // The larger half of many resources, and nothing that is read.
    metadata.managed_fields = None;
    let mut value = match object.data {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    let metadata = serde_json::to_value(metadata).unwrap_or_default();
    value.insert("metadata".to_owned(), metadata);
    match Object::read_as(kind, &Value::Object(value)) {
        Ok(object) => Event::Apply(Box::new(object)),
        Err(error) => Event::Refused {
            what,
            why: error.to_string(),
        },
    }
}
