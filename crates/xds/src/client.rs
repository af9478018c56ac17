//! The client of the protocol: delta ADS with subscriptions by name.
//!
//! A [`Client`] outlives its streams. While a stream is open, [`Client::request`] returns the next message to send, and
//! [`Client::receive`] reads a response, which is then acknowledged or rejected as a whole. A new stream begins with
//! the versions that the client has, so that the server sends only the missed changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use maglor_balance::Rng;

use crate::Kind;
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3 as wire;
use crate::proto::google::rpc::Status;

/// The first delay before an attempt to reconnect, and the maximum delay.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The gRPC status code of an invalid request.
const INVALID_ARGUMENT: i32 = 3;

/// A discovery client; see the module's documentation.
#[derive(Debug)]
pub struct Client {
    node: Node,
    kinds: [Wanted; Kind::COUNT],
    /// Whether the node identity has been sent on the stream.
    introduced: bool,
    failures: u32,
}

/// The subscriptions of one kind.
#[derive(Debug, Default)]
struct Wanted {
    /// The subscribed names, each with the accepted version; `None` if there is none.
    names: BTreeMap<Arc<str>, Option<String>>,
    subscribe: BTreeSet<Arc<str>>,
    unsubscribe: BTreeSet<Arc<str>>,
    answers: VecDeque<Answer>,
    /// Whether a request for this kind has been sent on the stream.
    opened: bool,
}

#[derive(Debug)]
struct Answer {
    nonce: String,
    error: Option<String>,
}

/// A response, which is accepted ([`Client::accept`]) or rejected ([`Client::refuse`]) as a whole.
#[derive(Debug)]
pub struct Update {
    /// The kind of the resources.
    pub kind: Kind,
    /// The subscribed resources that are new or have changed.
    pub resources: Vec<Received>,
    /// The subscribed resources that do not exist, or no longer exist.
    pub removed: Vec<Arc<str>>,
    /// The nonce of the response, which is repeated in the acknowledgement.
    pub(crate) nonce: String,
}

impl Update {
    /// Returns whether the update is empty, because the response contained nothing that is subscribed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.removed.is_empty()
    }
}

/// A received resource.
#[derive(Clone, Debug)]
pub struct Received {
    /// The name by which the resource is subscribed.
    pub name: Arc<str>,
    /// The version of the resource, set by the server.
    pub version: String,
    /// The encoded message, without its type.
    pub body: Bytes,
}

impl Client {
    /// Creates a client with the node identity `node`.
    #[must_use]
    pub fn new(node: Node) -> Self {
        Self {
            node,
            kinds: Default::default(),
            introduced: false,
            failures: 0,
        }
    }

    /// Subscribes to a resource.
    pub fn subscribe(&mut self, kind: Kind, name: &str) {
        let wanted = &mut self.kinds[kind.index()];
        if wanted.names.contains_key(name) {
            return;
        }
        let name: Arc<str> = name.into();
        wanted.unsubscribe.remove(&name);
        wanted.subscribe.insert(Arc::clone(&name));
        wanted.names.insert(name, None);
    }

    /// Unsubscribes from a resource.
    pub fn unsubscribe(&mut self, kind: Kind, name: &str) {
        let wanted = &mut self.kinds[kind.index()];
        let Some((name, _)) = wanted.names.remove_entry(name) else {
            return;
        };
        // If the stream has not sent the subscription yet, there is nothing to revoke.
        if !wanted.subscribe.remove(&name) {
            wanted.unsubscribe.insert(name);
        }
    }

    /// Returns the subscribed names.
    pub fn subscribed(&self, kind: Kind) -> impl Iterator<Item = &Arc<str>> {
        self.kinds[kind.index()].names.keys()
    }

    /// Sets the version of a resource that is known from before, so that the server does not send it again.
    pub fn remember(&mut self, kind: Kind, name: &str, version: &str) {
        if let Some(known) = self.kinds[kind.index()].names.get_mut(name) {
            *known = Some(version.to_owned());
        }
    }

    /// Starts a new stream: all subscriptions are sent again.
    pub fn connected(&mut self) {
        self.introduced = false;
        for wanted in &mut self.kinds {
            wanted.opened = false;
            wanted.answers.clear();
            wanted.unsubscribe.clear();
            wanted.subscribe = wanted.names.keys().cloned().collect();
        }
    }

    /// Ends the stream and returns the delay before the next attempt. Delays double and are random, so that the clients
    /// of a restarted server do not all reconnect at the same time.
    pub fn disconnected(&mut self, rng: &mut Rng) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        doubled.min(LONGEST_PAUSE).mul_f64(0.5 + 0.5 * rng.unit())
    }

    /// Returns the next message to send on the stream; `None` if there is none.
    pub fn request(&mut self) -> Option<wire::DeltaDiscoveryRequest> {
        let due = |kind: &&Kind| {
            let wanted = &self.kinds[kind.index()];
            !wanted.answers.is_empty()
                || !wanted.subscribe.is_empty()
                || !wanted.unsubscribe.is_empty()
        };
        let kind = *Kind::ALL.iter().find(due)?;
        let wanted = &mut self.kinds[kind.index()];
        let names = |set: &mut BTreeSet<Arc<str>>| {
            let all = std::mem::take(set).into_iter();
            all.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        let answer = wanted.answers.pop_front();
        let versions = match wanted.opened {
            true => Default::default(),
            false => wanted.versions(),
        };
        wanted.opened = true;
        let introduced = std::mem::replace(&mut self.introduced, true);
        let (response_nonce, error) =
            answer.map_or_else(Default::default, |answer| (answer.nonce, answer.error));
        Some(wire::DeltaDiscoveryRequest {
            node: (!introduced).then(|| self.node.clone()),
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: names(&mut wanted.subscribe),
            resource_names_unsubscribe: names(&mut wanted.unsubscribe),
            initial_resource_versions: versions,
            response_nonce,
            error_detail: error.map(|message| Status {
                code: INVALID_ARGUMENT,
                message,
            }),
        })
    }

    /// Reads a response; `None` if its kind is not subscribed.
    pub fn receive(&mut self, response: wire::DeltaDiscoveryResponse) -> Option<Update> {
        let kind = Kind::of(&response.type_url)?;
        // A response proves that the server works.
        self.failures = 0;
        let wanted = &self.kinds[kind.index()];
        let known = |name: &str| {
            wanted
                .names
                .get_key_value(name)
                .map(|(name, _)| Arc::clone(name))
        };
        let resources = response.resources.into_iter().filter_map(|resource| {
            Some(Received {
                name: known(&resource.name)?,
                version: resource.version,
                body: resource
                    .resource
                    .map(|any| any.value)
                    .unwrap_or_default()
                    .into(),
            })
        });
        Some(Update {
            kind,
            resources: resources.collect(),
            removed: response
                .removed_resources
                .iter()
                .filter_map(|name| known(name))
                .collect(),
            nonce: response.nonce,
        })
    }

    /// Acknowledges a response that has been applied (ACK); its versions become the accepted ones.
    pub fn accept(&mut self, update: &Update) {
        let wanted = &mut self.kinds[update.kind.index()];
        for resource in &update.resources {
            if let Some(version) = wanted.names.get_mut(&resource.name) {
                *version = Some(resource.version.clone());
            }
        }
        for name in &update.removed {
            if let Some(version) = wanted.names.get_mut(name) {
                *version = None;
            }
        }
        wanted.answer(&update.nonce, None);
    }

    /// Rejects a response (NACK); the last accepted versions stay in use.
    pub fn refuse(&mut self, update: &Update, reason: &str) {
        let wanted = &mut self.kinds[update.kind.index()];
        wanted.answer(&update.nonce, Some(reason.to_owned()));
    }

    /// Corrects an acknowledgement. With a reason, an accepted response could not be applied after all (NACK); without
    /// one, it has been applied since (ACK). Until it is applied, a new stream does not announce its versions.
    pub fn correct(&mut self, kind: Kind, nonce: &str, reason: Option<&str>) {
        let wanted = &mut self.kinds[kind.index()];
        let error = reason.map(str::to_owned);
        if error.is_some() {
            wanted.names.values_mut().for_each(|known| *known = None);
        }
        let mut waiting = wanted.answers.iter_mut().rev();
        match waiting.find(|answer| answer.nonce == nonce) {
            Some(answer) => answer.error = error,
            None => wanted.answer(nonce, error),
        }
    }
}

impl Wanted {
    fn versions(&self) -> std::collections::HashMap<String, String> {
        let known = self.names.iter();
        known
            .filter_map(|(name, version)| Some((name.to_string(), version.clone()?)))
            .collect()
    }

    fn answer(&mut self, nonce: &str, error: Option<String>) {
        self.answers.push_back(Answer {
            nonce: nonce.to_owned(),
            error,
        });
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
