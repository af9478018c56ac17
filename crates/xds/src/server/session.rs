//! The stream of one client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::Time;
use prost_types::Any;

use super::answers::{Answers, Nack, Sent};
use super::cache::{Cache, Current};
use super::change::ChangeId;
use super::subscriptions::{ALL, Subscriptions, UNSAID};
use crate::Kind;
use crate::proto::envoy::service::discovery::v3 as wire;
use crate::proto::google::rpc::Status;

/// The approximate maximum size of a delta response, in bytes of resources; gRPC accepts messages of up to 4 MiB.
const RESPONSE: usize = 1 << 20;

/// Maps a name that a client requests to the name of the resource in the cache, which is usually the same; `None` if
/// the client may not see the resource.
pub type Scope = Arc<dyn Fn(Kind, &str) -> Option<Arc<str>> + Send + Sync>;

/// The protocol variant of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Responses contain the changes (`DeltaAggregatedResources`).
    Delta,
    /// Responses contain all resources of a kind (`StreamAggregatedResources`).
    StateOfTheWorld,
}

/// The state of one stream; see the module's documentation.
pub struct Session {
    protocol: Protocol,
    node: Arc<str>,
    scope: Scope,
    kinds: [Subscriptions; Kind::COUNT],
    answers: [Answers; Kind::COUNT],
    /// The last change that has been processed.
    seen: ChangeId,
    nonces: u64,
    /// The ages of answered changes; see [`Session::take_delays`].
    delays: Vec<Duration>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("node", &self.node)
            .field("protocol", &self.protocol)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// The unsent changes of one kind.
#[derive(Default)]
struct News {
    updated: Vec<(Arc<str>, Current)>,
    removed: Vec<Arc<str>>,
    changes: Vec<ChangeId>,
}

impl Session {
    /// Creates the session of the client with the node ID `node`; `scope` decides which resources the client may see.
    #[must_use]
    pub fn new(protocol: Protocol, node: &str, scope: Scope) -> Self {
        Self {
            protocol,
            node: node.into(),
            scope,
            kinds: Default::default(),
            answers: Default::default(),
            seen: ChangeId::default(),
            nonces: 0,
            delays: Vec::new(),
        }
    }

    /// Returns the node ID of the client.
    #[must_use]
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Returns the protocol variant of the stream.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the client's rejections that no later response has superseded.
    pub fn nacks(&self) -> impl Iterator<Item = &Nack> {
        self.answers.iter().flat_map(Answers::nacks)
    }

    /// Returns, for each change that was answered since the last call, its age when it was acknowledged or rejected.
    /// Resources that the client got for the first time are not counted.
    pub fn take_delays(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.delays)
    }

    /// Returns the time since which the client has left a response unanswered; `None` if it has answered all of them.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Time> {
        self.answers.iter().filter_map(Answers::open_since).min()
    }

    /// Returns the number of resources of a kind that the client requests by name.
    #[must_use]
    pub fn subscribed(&self, kind: Kind) -> usize {
        self.kinds[kind.index()].names.len()
    }

    /// Returns the approximate memory, in bytes, of the names that the client requests.
    #[must_use]
    pub fn named(&self) -> usize {
        self.kinds.iter().map(|kind| kind.size).sum()
    }

    /// Returns whether the client requests a resource by its name.
    #[must_use]
    pub fn asks_for(&self, kind: Kind, name: &str) -> bool {
        self.kinds[kind.index()].names.contains(name)
    }

    /// Returns whether the client has acknowledged the present version of a resource.
    #[must_use]
    pub fn holds(&self, cache: &Cache, kind: Kind, name: &str) -> bool {
        let current = (self.scope)(kind, name).and_then(|key| cache.get(kind, &key).cloned());
        let has = self.kinds[kind.index()].has.get(name);
        let same = has.is_some_and(|has| *has == current.map(|current| current.version));
        same && self.answers[kind.index()].has_taken(name)
    }

    /// Re-evaluates the names of a kind that the client requests, because they may map to other resources now.
    pub fn look_again(&mut self, kind: Kind) {
        self.kinds[kind.index()].look_at_all = true;
    }

    /// Processes a delta request. Types that are not distributed are ignored.
    pub fn receive_delta(
        &mut self,
        cache: &mut Cache,
        request: &wire::DeltaDiscoveryRequest,
        now: Time,
    ) -> Option<Nack> {
        let kind = Kind::of(&request.type_url)?;
        let (nonce, error) = (&request.response_nonce, request.error_detail.as_ref());
        let nack = self.answered(cache, kind, nonce, error, now);
        let subscriptions = &mut self.kinds[kind.index()];
        let names = &request.resource_names_subscribe;
        let silent = names.is_empty() && request.resource_names_unsubscribe.is_empty();
        if silent && !subscriptions.asked && kind.is_whole() && nonce.is_empty() {
            subscriptions.subscribe(ALL);
        }
        names.iter().for_each(|name| subscriptions.subscribe(name));
        for name in &request.resource_names_unsubscribe {
            if subscriptions.unsubscribe(name) && subscriptions.all {
                subscriptions.report_again(name);
            }
        }
        for (name, version) in &request.initial_resource_versions {
            let name: Arc<str> = name.as_str().into();
            if subscriptions.wants(&name) {
                subscriptions.look.insert(Arc::clone(&name));
                let version = Some(version.as_str().into());
                subscriptions.has.insert(name, version);
            }
        }
        self.answers[kind.index()].forget(|name| subscriptions.wants(name));
        nack
    }

    /// Processes a state-of-the-world request. A request that answers a response older than the last one is ignored.
    pub fn receive_whole(
        &mut self,
        cache: &mut Cache,
        request: &wire::DiscoveryRequest,
        now: Time,
    ) -> Option<Nack> {
        let kind = Kind::of(&request.type_url)?;
        let nonce = &request.response_nonce;
        if self.answers[kind.index()].is_stale(nonce) {
            return None;
        }
        let error = request.error_detail.as_ref();
        let nack = self.answered(cache, kind, nonce, error, now);
        let subscriptions = &mut self.kinds[kind.index()];
        let names = &request.resource_names;
        subscriptions.named |= !names.is_empty();
        // An empty list means all resources until the first request with names; afterwards it means
        // none.
        if !subscriptions.named && kind.is_whole() {
            if !subscriptions.all {
                subscriptions.subscribe(ALL);
            }
            return nack;
        }
        if subscriptions.all && !names.iter().any(|name| name == ALL) {
            subscriptions.unsubscribe(ALL);
        }
        let known: Vec<_> = subscriptions.names.iter().cloned().collect();
        for name in known
            .iter()
            .filter(|known| !names.iter().any(|n| **n == ***known))
        {
            subscriptions.unsubscribe(name);
        }
        for name in names {
            let already = subscriptions.names.contains(name.as_str());
            if !(already || name == ALL && subscriptions.all) {
                subscriptions.subscribe(name);
            }
        }
        nack
    }

    /// Processes a client's acknowledgement or rejection of a response.
    fn answered(
        &mut self,
        cache: &mut Cache,
        kind: Kind,
        nonce: &str,
        error: Option<&Status>,
        now: Time,
    ) -> Option<Nack> {
        let index = kind.index();
        let found = self.answers[index].take(nonce, error.is_some())?;
        let outcome = match error {
            None => Ok(()),
            Some(status) => Err(Arc::from(status.message.as_str())),
        };
        for change in &found.changes {
            let receipts = cache.receipts_mut();
            let delay = receipts.answered(*change, &self.node, now, &outcome);
            self.delays.extend(delay);
        }
        let nack = outcome.err().map(|reason| Nack {
            kind,
            reason,
            change: found.changes.iter().max().copied().unwrap_or(self.seen),
            at: now,
        });
        self.answers[index].note(found, nack.clone());
        nack
    }

    /// Returns the delta responses that are due. It must be called after each request and each change.
    pub fn poll_delta(
        &mut self,
        cache: &mut Cache,
        now: Time,
    ) -> Vec<wire::DeltaDiscoveryResponse> {
        if self.is_current(cache) {
            return Vec::new();
        }
        let mut news = self.news(cache);
        let mut responses = Vec::new();
        for kind in Kind::ALL {
            let News {
                updated, changes, ..
            } = &mut news[kind.index()];
            if updated.is_empty() {
                continue;
            }
            let mut parts = parts(std::mem::take(updated)).into_iter().peekable();
            while let Some(part) = parts.next() {
                // Receipts wait for the last part.
                let changes = match parts.peek() {
                    Some(_) => Vec::new(),
                    None => std::mem::take(changes),
                };
                let names = part.iter().map(|(name, _)| Arc::clone(name)).collect();
                let nonce = self.sent(cache, kind, (changes, names), now);
                responses.push(delta(kind, nonce, part, self.seen));
            }
        }
        // Referring resources are removed first.
        for kind in Kind::ALL.into_iter().rev() {
            let News {
                removed, changes, ..
            } = std::mem::take(&mut news[kind.index()]);
            if removed.is_empty() {
                continue;
            }
            let removed_resources = removed.iter().map(ToString::to_string).collect();
            let nonce = self.sent(cache, kind, (changes, removed), now);
            responses.push(wire::DeltaDiscoveryResponse {
                removed_resources,
                ..delta(kind, nonce, Vec::new(), self.seen)
            });
        }
        responses
    }

    /// Returns the state-of-the-world responses that are due. It must be called after each request and each change.
    pub fn poll_whole(&mut self, cache: &mut Cache, now: Time) -> Vec<wire::DiscoveryResponse> {
        let fresh = Kind::ALL.map(|kind| self.kinds[kind.index()].is_due());
        let mut news = self.news(cache);
        let due = |kind: Kind, news: &News| {
            let changed = !news.updated.is_empty() || !news.removed.is_empty();
            // For these kinds an empty response is meaningful; the others cannot express absence.
            changed && (kind.is_whole() || !news.updated.is_empty())
                || kind.is_whole() && fresh[kind.index()]
        };
        let (first, last): (Vec<_>, Vec<_>) = Kind::ALL
            .into_iter()
            .filter(|kind| due(*kind, &news[kind.index()]))
            .partition(|kind| !news[kind.index()].updated.is_empty());
        let order = first.into_iter().chain(last.into_iter().rev());
        order
            .map(|kind| {
                let changes = std::mem::take(&mut news[kind.index()].changes);
                let nonce = self.sent(cache, kind, (changes, Vec::new()), now);
                wire::DiscoveryResponse {
                    version_info: self.seen.0.to_string(),
                    resources: self.whole(cache, kind),
                    type_url: kind.type_url().to_owned(),
                    nonce,
                }
            })
            .collect()
    }

    /// Returns all resources of a kind that the client requests and may see.
    fn whole(&self, cache: &Cache, kind: Kind) -> Vec<Any> {
        let subscriptions = &self.kinds[kind.index()];
        let mut names: Vec<_> = match subscriptions.all {
            true => cache.names(kind).collect(),
            false => subscriptions.names.iter().collect(),
        };
        names.sort_unstable();
        names
            .into_iter()
            .filter_map(|name| cache.get(kind, &(self.scope)(kind, name)?))
            .map(|current| Any {
                type_url: kind.type_url().to_owned(),
                value: current.body.to_vec(),
            })
            .collect()
    }

    /// Returns whether there is neither a change nor a request that has not been processed.
    fn is_current(&self, cache: &Cache) -> bool {
        self.seen == cache.last_change() && !self.kinds.iter().any(Subscriptions::is_due)
    }

    /// Returns the changes that have not been sent to the client yet, by kind, and marks them as sent.
    fn news(&mut self, cache: &Cache) -> [News; Kind::COUNT] {
        match cache.since(self.seen) {
            Some(changes) => {
                for (kind, name) in changes {
                    let subscriptions = &mut self.kinds[kind.index()];
                    if subscriptions.wants(name) {
                        subscriptions.look.insert(Arc::clone(name));
                    }
                    let others = subscriptions.served_as.get(name);
                    subscriptions
                        .look
                        .extend(others.into_iter().flatten().cloned());
                }
            }
            None => self
                .kinds
                .iter_mut()
                .for_each(|kind| kind.look_at_all = true),
        }
        self.seen = cache.last_change();
        Kind::ALL.map(|kind| {
            let subscriptions = &mut self.kinds[kind.index()];
            news(kind, subscriptions, cache, &self.scope)
        })
    }

    /// Records a response with its changes and resources; returns the nonce of the response.
    fn sent(
        &mut self,
        cache: &mut Cache,
        kind: Kind,
        (changes, names): (Vec<ChangeId>, Vec<Arc<str>>),
        now: Time,
    ) -> String {
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        for change in &changes {
            cache.receipts_mut().sent(*change, &self.node, now);
        }
        self.answers[kind.index()].sent(Sent {
            nonce: nonce.clone(),
            at: now,
            changes,
            names,
        });
        nonce
    }

    /// Ends the session, so that its acknowledgements are no longer expected.
    pub fn end(&self, cache: &mut Cache) {
        cache.receipts_mut().left(&self.node);
    }
}

fn news(kind: Kind, subscriptions: &mut Subscriptions, cache: &Cache, scope: &Scope) -> News {
    let mut look = std::mem::take(&mut subscriptions.look);
    if std::mem::take(&mut subscriptions.look_at_all) {
        look.extend(subscriptions.names.iter().cloned());
        look.extend(subscriptions.has.keys().cloned());
        if subscriptions.all {
            look.extend(cache.names(kind).cloned());
        }
    }
    let mut news = News::default();
    look.retain(|name| subscriptions.wants(name));
    for name in look {
        let key = scope(kind, &name);
        let current = key.as_ref().and_then(|key| cache.get(kind, key));
        if let Some(key) = key.as_ref().filter(|key| **key != name) {
            let served_as = subscriptions.served_as.entry(Arc::clone(key));
            served_as.or_default().insert(Arc::clone(&name));
        }
        let had = subscriptions.has.get(&name).cloned();
        let said = |had: &Option<Arc<str>>| had.as_deref() != Some(UNSAID);
        let is_change = had.as_ref().is_some_and(said);
        match (current, &had) {
            (Some(current), Some(Some(version))) if *version == current.version => continue,
            (None, Some(None)) => continue,
            // It is not subscribed, and the client does not have it.
            (None, None) if !subscriptions.names.contains(&name) => continue,
            (Some(current), _) => {
                // A resource that a client gets for the first time is not a change for it.
                news.changes.extend(is_change.then_some(current.changed));
                let version = Some(Arc::clone(&current.version));
                subscriptions.has.insert(Arc::clone(&name), version);
                news.updated.push((name, current.clone()));
            }
            (None, _) => {
                if is_change {
                    news.changes
                        .extend(cache.changed(kind, key.as_ref().unwrap_or(&name)));
                }
                match subscriptions.names.contains(&name) {
                    true => drop(subscriptions.has.insert(Arc::clone(&name), None)),
                    false => drop(subscriptions.has.remove(&name)),
                }
                news.removed.push(name);
            }
        }
    }
    news
}

/// Splits resources into parts of about [`RESPONSE`] bytes each.
fn parts(all: Vec<(Arc<str>, Current)>) -> Vec<Vec<(Arc<str>, Current)>> {
    let (mut parts, mut size) = (vec![Vec::new()], 0);
    for (name, current) in all {
        let length = current.body.len();
        if size > 0 && size + length > RESPONSE {
            parts.push(Vec::new());
            size = 0;
        }
        size += length;
        if let Some(part) = parts.last_mut() {
            part.push((name, current));
        }
    }
    parts
}

fn delta(
    kind: Kind,
    nonce: String,
    resources: Vec<(Arc<str>, Current)>,
    seen: ChangeId,
) -> wire::DeltaDiscoveryResponse {
    let resource = |(name, current): (Arc<str>, Current)| wire::Resource {
        version: current.version.to_string(),
        name: name.to_string(),
        resource: Some(Any {
            type_url: kind.type_url().to_owned(),
            value: current.body.to_vec(),
        }),
    };
    wire::DeltaDiscoveryResponse {
        system_version_info: seen.0.to_string(),
        resources: resources.into_iter().map(resource).collect(),
        type_url: kind.type_url().to_owned(),
        nonce,
        removed_resources: Vec::new(),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
