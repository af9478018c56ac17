//! Reads resources from an API server, with one watch for each kind.
//!
//! Watches never end: failures are retried with backoff. Known objects are kept until a complete list omits them. A
//! kind that the server does not serve, because its definition is not installed, has no resources until it is defined.
//! If the kind was served before, its resources are dropped only after some time: a server that has just restarted may
//! not serve every definition yet, and a mesh must not lose its policies in that time.

mod permitted;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event as Watched, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Event, definition};
use crate::api_server;
use crate::app::threads::all_end;
use crate::index::facts::{Key, Kind, Object};
use crate::metrics::on_call::Answered;
use crate::missing_kind;
use crate::scope::{Certificates, Scope};
use permitted::Part;

/// Pause of a watch after its first failure. Each further failure doubles the pause.
const REST: Duration = Duration::from_millis(500);
/// Maximum pause while the API server fails, which is also the maximum delay until changes are noticed afterwards.
const MOST_REST: Duration = Duration::from_secs(4);
/// Maximum pause while the kind is unknown but may still have resources.
const REST_UNKNOWN: Duration = Duration::from_secs(10);
/// Time without a failure after which a watch starts again with the shortest pause.
const WELL: Duration = Duration::from_secs(30);
/// Time for which a kind must be unknown before its known resources are dropped.
const ABANDONED: Duration = Duration::from_secs(60);

/// Returns the API resource of a kind.
#[must_use]
pub fn api_resource(kind: Kind) -> ApiResource {
    let (api_version, name, plural) = kind.names();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, name);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Kinds that only Gateways need. They include Secrets, which some installations do not allow the controller to read.
const OF_GATEWAYS: [Kind; 4] = [
    Kind::Gateway,
    Kind::GatewayClass,
    Kind::ReferenceGrant,
    Kind::Secret,
];

/// Watches all kinds until the receiver of `events` is dropped. Kinds of Gateways are watched only if there are
/// `certificates`, which means that Gateways are served. Secrets are watched only as far as `certificates` allows.
pub async fn watch(
    client: Client,
    events: mpsc::Sender<Event>,
    certificates: Option<Certificates>,
    answered: Answered,
) {
    let mut watches = tokio::task::JoinSet::new();
    let (known_sender, known) = watch::channel(false);
    let definitions = recording_answers(&client, &answered, "CustomResourceDefinition");
    watches.spawn(definition::follow(
        definitions,
        events.clone(),
        known_sender,
    ));
    for kind in Kind::ALL {
        if certificates.is_none() && OF_GATEWAYS.contains(&kind) {
            let _ = events.send(Watch::new(kind).reset()).await;
            continue;
        }
        if let (Kind::Secret, Some(parts)) = (kind, certificates.as_ref().and_then(parts)) {
            if parts.is_empty() {
                let _ = events.send(Watch::new(kind).reset()).await;
                continue;
            }
            let client = recording_answers(&client, &answered, kind.label());
            watches.spawn(permitted::watch(client, kind, parts, events.clone()));
            continue;
        }
        let (watched, mut known) = (
            watch_kind(
                recording_answers(&client, &answered, kind.label()),
                kind,
                events.clone(),
            ),
            known.clone(),
        );
        watches.spawn(async move {
            if kind == Kind::AuthorizationPolicy && known.wait_for(|known| *known).await.is_err() {
                return;
            }
            watched.await;
        });
    }
    tokio::select! {
        () = events.closed() => {}
        () = all_end(&mut watches) => {}
    }
}

/// Returns the certificates that may be read; `None` if all may.
fn parts(certificates: &Certificates) -> Option<BTreeSet<Part>> {
    match certificates {
        Certificates::All(Scope::In(namespaces)) => {
            Some(namespaces.iter().cloned().map(Part::Namespace).collect())
        }
        Certificates::All(Scope::Everywhere | Scope::Off) => None,
        Certificates::Named(names) => Some(names.iter().cloned().map(Part::Object).collect()),
    }
}

/// Returns a client for one kind that records when it is served.
fn recording_answers(client: &Client, answered: &Answered, kind: &'static str) -> Client {
    drop(answered.begin(kind));
    let answered = answered.clone();
    api_server::noting_answers(client, move || answered.begin(kind))
}

/// Returns the watch configuration of a kind.
fn config(kind: Kind) -> watcher::Config {
    match kind {
        Kind::Secret => watcher::Config::default().fields("type=kubernetes.io/tls"),
        _ => watcher::Config::default(),
    }
}

async fn watch_kind(client: Client, kind: Kind, events: mpsc::Sender<Event>) {
    let resource = api_resource(kind);
    let definition = format!("{}.{}", resource.plural, resource.group);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut stream = pin!(watcher(api, config(kind)));
    let mut watch = Watch::new(kind);
    while let Some(watched) = stream.next().await {
        let Step {
            events: produced,
            rest,
        } = watch.take(watched, Instant::now());
        for event in produced {
            if events.send(event).await.is_err() {
                return;
            }
        }
        match rest {
            Some(_) if watch.known == Known::Absent => {
                missing_kind::wait(client.clone(), &definition).await;
            }
            Some(rest) => tokio::time::sleep(rest).await,
            None => {}
        }
    }
}

/// The state of the watch of a kind.
struct Watch {
    kind: Kind,
    /// The part of the current list that was received so far.
    objects: Vec<Object>,
    unread: Vec<Key>,
    known: Known,
    rest: Duration,
    failed: Option<Instant>,
}

/// The state of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Known {
    /// The kind was not listed yet.
    Nothing,
    /// The resources of the kind are known.
    Resources,
    /// The resources are known, but the API server has not known the kind since this time.
    Doubted(Instant),
    /// The API server does not serve the kind.
    Absent,
}

/// The result of a watch event.
#[derive(Debug, Default)]
struct Step {
    events: Vec<Event>,
    /// Pause before the next request to the API server; `None` for no pause.
    rest: Option<Duration>,
}

impl From<Event> for Step {
    fn from(event: Event) -> Self {
        Self {
            events: vec![event],
            rest: None,
        }
    }
}

impl Watch {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            objects: Vec::new(),
            unread: Vec::new(),
            known: Known::Nothing,
            rest: REST,
            failed: None,
        }
    }

    fn take(
        &mut self,
        watched: Result<Watched<DynamicObject>, watcher::Error>,
        now: Instant,
    ) -> Step {
        match watched {
            Ok(Watched::Init) => {
                self.objects.clear();
                self.unread.clear();
                Step::default()
            }
            Ok(Watched::InitApply(object)) => {
                let key = key(&object);
                match read(self.kind, object) {
                    Event::Apply(object) => {
                        self.objects.push(*object);
                        Step::default()
                    }
                    refused => {
                        self.unread.push(key);
                        refused.into()
                    }
                }
            }
            Ok(Watched::InitDone) => {
                self.well();
                self.reset().into()
            }
            Ok(Watched::Apply(object)) => {
                self.well();
                read(self.kind, object).into()
            }
            Ok(Watched::Delete(object)) => {
                self.well();
                Event::Delete(self.kind, key(&object)).into()
            }
            Err(error) => self.fail(&error, now),
        }
    }

    fn well(&mut self) {
        self.rest = REST;
        self.known = Known::Resources;
    }

    /// Returns the listed resources; empty if the kind is unknown.
    fn reset(&mut self) -> Event {
        Event::Reset {
            kind: self.kind,
            objects: std::mem::take(&mut self.objects),
            unread: std::mem::take(&mut self.unread),
        }
    }

    fn fail(&mut self, error: &watcher::Error, now: Instant) -> Step {
        let failed = self.failed.replace(now);
        if failed.is_some_and(|before| now.duration_since(before) > WELL) {
            self.rest = REST;
        }
        let unknown = api_server::failed_with(error, 404);
        let most = if unknown { REST_UNKNOWN } else { MOST_REST };
        let rest = self.rest.min(most);
        self.rest = (rest * 2).min(most);
        let events = match unknown {
            true => self.doubt(now),
            false => {
                let (_, kind, _) = self.kind.names();
                tracing::warn!(kind, %error, "watch failed; retrying");
                if let Known::Doubted(_) = self.known {
                    self.known = Known::Resources;
                }
                None
            }
        };
        Step {
            events: events.into_iter().collect(),
            rest: Some(rest),
        }
    }

    /// Handles a kind that is unknown to the API server. If this is the first response for the kind, it is
    /// conclusive: a starting server responds with 503 until it has all definitions (since Kubernetes 1.23).
    fn doubt(&mut self, now: Instant) -> Option<Event> {
        let (_, kind, _) = self.kind.names();
        match self.known {
            Known::Absent => return None,
            Known::Resources => {
                tracing::warn!(kind, "CRD removed; keeping cached objects");
                self.known = Known::Doubted(now);
                return None;
            }
            Known::Doubted(since) if now.duration_since(since) < ABANDONED => return None,
            Known::Doubted(_) | Known::Nothing => {}
        }
        tracing::info!(
            kind,
            "CRD not installed; resources of this kind are not read"
        );
        self.known = Known::Absent;
        self.objects.clear();
        self.unread.clear();
        Some(self.reset())
    }
}

fn key(object: &DynamicObject) -> Key {
    let meta = &object.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    Key::new(namespace, meta.name.as_deref().unwrap_or_default())
}

fn read(kind: Kind, object: DynamicObject) -> Event {
    let what = format!("{} {}", kind.names().1, key(&object));
    let mut metadata = object.metadata;
    // These are the larger half of many resources, and are never read.
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn failure(code: u16) -> watcher::Error {
        let status = Status {
            code,
            ..Status::default()
        };
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    fn policy(name: &str) -> DynamicObject {
        let json = json!({
            "apiVersion": "maglor.dev/v1alpha1", "kind": "MeshConfig",
            "metadata": {"name": name, "resourceVersion": "1"}, "spec": {"mtls": "strict"},
        });
        serde_json::from_value(json).unwrap()
    }

    /// Returns the existing resources if the step reports a complete list.
    fn listed(step: &Step) -> Option<Vec<&str>> {
        step.events.iter().find_map(|event| match event {
            Event::Reset {
                objects, unread, ..
            } => {
                let keys = objects.iter().map(|object| &object.key).chain(unread);
                Some(keys.map(|key| key.name.as_str()).collect())
            }
            _ => None,
        })
    }

    fn list(watch: &mut Watch, names: &[&str], now: Instant) -> Step {
        let step = watch.take(Ok(Watched::Init), now);
        assert!(listed(&step).is_none());
        for name in names {
            let step = watch.take(Ok(Watched::InitApply(policy(name))), now);
            assert!(listed(&step).is_none(), "incomplete list");
        }
        watch.take(Ok(Watched::InitDone), now)
    }

    #[test]
    fn what_is_known_stays_while_the_api_server_fails() {
        let mut watch = Watch::new(Kind::MeshConfig);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let step = list(&mut watch, &["default"], start);
        assert_eq!(listed(&step), Some(vec!["default"]));
        // Half a list is received, and then there is no response.
        watch.take(Ok(Watched::Init), at(1));
        for code in [500, 503, 404, 429, 410] {
            let step = watch.take(Err(failure(code)), at(1));
            assert!(step.events.is_empty(), "{code}");
            assert!(step.rest.is_some(), "{code}");
        }
        // The server does not serve the definition at first, and serves it later.
        for second in 2..61 {
            let step = watch.take(Err(failure(404)), at(second));
            assert!(step.events.is_empty(), "{second}");
        }
        let step = list(&mut watch, &["default"], at(61));
        assert_eq!(listed(&step), Some(vec!["default"]));
        assert_eq!(listed(&list(&mut watch, &[], at(62))), Some(vec![]));
    }

    #[test]
    fn a_kind_that_stays_unknown_has_no_resources() {
        let mut watch = Watch::new(Kind::MeshConfig);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watch.take(Err(failure(503)), start).events.is_empty());
        let step = watch.take(Err(failure(404)), start);
        assert_eq!(listed(&step), Some(vec![]), "nothing was known");
        assert!(watch.take(Err(failure(404)), at(1)).events.is_empty());
        list(&mut watch, &["default"], at(2));
        assert!(watch.take(Err(failure(404)), at(3)).events.is_empty());
        // Another failure says nothing about the kind, so the time starts anew.
        assert!(watch.take(Err(failure(500)), at(4)).events.is_empty());
        assert!(watch.take(Err(failure(404)), at(60)).events.is_empty());
        assert!(watch.take(Err(failure(404)), at(119)).events.is_empty());
        let step = watch.take(Err(failure(404)), at(120));
        assert_eq!(listed(&step), Some(vec![]), "it is gone");
    }

    #[test]
    fn a_resource_that_cannot_be_read_is_not_gone() {
        let mut watch = Watch::new(Kind::EndpointSlice);
        let now = Instant::now();
        watch.take(Ok(Watched::Init), now);
        let mut odd = policy("odd");
        odd.data = json!({"endpoints": "none"});
        let step = watch.take(Ok(Watched::InitApply(odd)), now);
        assert!(matches!(&step.events[..], [Event::Refused { .. }]));
        let step = watch.take(Ok(Watched::InitDone), now);
        assert_eq!(listed(&step), Some(vec!["odd"]));
    }

    #[test]
    fn rests_grow_and_begin_again() {
        let mut watch = Watch::new(Kind::Pod);
        let start = Instant::now();
        let mut rest = |code, seconds| {
            let now = start + Duration::from_secs(seconds);
            watch.take(Err(failure(code)), now).rest.unwrap()
        };
        let rests: Vec<_> = (0..6).map(|second| rest(500, second)).collect();
        assert_eq!(rests[..2], [REST, REST * 2]);
        assert_eq!(rests[5], MOST_REST);
        assert_eq!(rest(500, 60), REST, "it was well in between");
    }
}
