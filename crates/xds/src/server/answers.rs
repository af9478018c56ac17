//! A client's acknowledgements and rejections of responses, for one kind of resources.

use std::collections::VecDeque;
use std::sync::Arc;

use maglor_balance::Time;

use super::change::ChangeId;
use crate::Kind;

/// The maximum number of unacknowledged responses of a client that are tracked; older ones are dropped.
const UNANSWERED: usize = 64;
/// The maximum number of rejected responses that are remembered.
const REFUSED: usize = 16;

/// A rejected response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nack {
    /// The kind of the resources.
    pub kind: Kind,
    /// The reason that the client gave.
    pub reason: Arc<str>,
    /// The last change in the response.
    pub change: ChangeId,
    /// When the client rejected the response.
    pub at: Time,
}

/// A response that was sent.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) nonce: String,
    pub(super) at: Time,
    pub(super) changes: Vec<ChangeId>,
    /// The names of the resources in the response, in order; empty = all that the client requests.
    pub(super) names: Vec<Arc<str>>,
}

impl Sent {
    /// Returns whether the response contains a resource that may have been the reason for the rejection of another
    /// response. Only the client's message contains which resource that was.
    fn replaces(&self, names: &[Arc<str>]) -> bool {
        let holds = |name: &Arc<str>| self.names.binary_search(name).is_ok();
        self.names.is_empty() || names.is_empty() || names.iter().any(holds)
    }
}

/// The responses of one kind; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The responses that are neither acknowledged nor rejected.
    open: VecDeque<Sent>,
    /// The last response that was answered, and whether it was rejected, since the client may correct its answer later.
    last: Option<(Sent, bool)>,
    /// The rejections that no later response has superseded, each with the names of its resources.
    refused: Vec<(Nack, Vec<Arc<str>>)>,
}

impl Answers {
    /// Records a response that was sent.
    pub(super) fn sent(&mut self, sent: Sent) {
        if self.open.len() >= UNANSWERED {
            self.open.pop_front();
        }
        self.open.push_back(sent);
    }

    /// Returns the response with this nonce if it is answered now, or differently than before.
    pub(super) fn take(&mut self, nonce: &str, refused: bool) -> Option<Sent> {
        if let Some(at) = self.open.iter().position(|sent| sent.nonce == nonce) {
            return self.open.drain(..=at).next_back();
        }
        let otherwise =
            |(last, before): &mut (Sent, bool)| *before != refused && last.nonce == nonce;
        self.last.take_if(otherwise).map(|(last, _)| last)
    }

    /// Records the outcome of a response, which supersedes earlier rejections of the resources in it.
    pub(super) fn note(&mut self, sent: Sent, nack: Option<Nack>) {
        self.refused.retain(|(_, names)| !sent.replaces(names));
        let refused = nack.is_some();
        if let Some(nack) = nack {
            if self.refused.len() >= REFUSED {
                self.refused.remove(0);
            }
            self.refused.push((nack, sent.names.clone()));
        }
        self.last = Some((sent, refused));
    }

    /// Drops the rejections of resources that are no longer subscribed.
    pub(super) fn forget(&mut self, wanted: impl Fn(&str) -> bool) {
        self.refused
            .retain(|(_, names)| names.is_empty() || names.iter().any(|name| wanted(name)));
    }

    /// Returns whether a state-of-the-world request answers a response older than the last one.
    pub(super) fn is_stale(&self, nonce: &str) -> bool {
        let answered = self.last.as_ref().map(|(last, _)| last);
        let last = self.open.back().or(answered);
        !nonce.is_empty() && last.is_some_and(|last| last.nonce != nonce)
    }

    /// Returns the time since which a response has been unanswered; `None` if all are answered.
    pub(super) fn open_since(&self) -> Option<Time> {
        self.open.front().map(|sent| sent.at)
    }

    /// Returns the rejections that no later response has superseded.
    pub(super) fn nacks(&self) -> impl Iterator<Item = &Nack> {
        self.refused.iter().map(|(nack, _)| nack)
    }

    /// Returns whether all responses are answered, and none with this resource was rejected.
    pub(super) fn has_taken(&self, name: &str) -> bool {
        let refused = |(_, names): &(Nack, Vec<Arc<str>>)| {
            names.is_empty() || names.iter().any(|one| **one == *name)
        };
        self.open.is_empty() && !self.refused.iter().any(refused)
    }
}
