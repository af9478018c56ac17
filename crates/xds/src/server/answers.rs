//! A client's acknowledgements and rejections of responses, for one kind.

use std::collections::VecDeque;
use std::sync::Arc;

use maglor_balance::Time;

use super::cache::ChangeId;
use crate::Kind;

/// Maximum unacknowledged responses of a client; older ones are not tracked.
const UNANSWERED: usize = 64;
/// Responses whose refusal is remembered.
const REFUSED: usize = 16;

/// A response that a client refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nack {
    /// What the response held.
    pub kind: Kind,
    /// What the client said.
    pub reason: Arc<str>,
    /// The last change in it.
    pub change: ChangeId,
    /// When it was refused.
    pub at: Time,
}

/// A response.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) nonce: String,
    pub(super) at: Time,
    pub(super) changes: Vec<ChangeId>,
    /// The resources in it, in order; none: everything that the client wants.
    pub(super) names: Vec<Arc<str>>,
}

impl Sent {
    /// Whether it holds what another response may have been refused for. Which of its resources that was is only
    /// in the client's words.
    fn replaces(&self, names: &[Arc<str>]) -> bool {
        let holds = |name: &Arc<str>| self.names.binary_search(name).is_ok();
        self.names.is_empty() || names.is_empty() || names.iter().any(holds)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Those without an answer.
    open: VecDeque<Sent>,
    /// The last that was answered, and whether it was refused: whether it is in force may turn out later.
    last: Option<(Sent, bool)>,
    /// What was refused and has not come better since, with its resources.
    refused: Vec<(Nack, Vec<Arc<str>>)>,
}

impl Answers {
    /// Notes a response.
    pub(super) fn sent(&mut self, sent: Sent) {
        if self.open.len() >= UNANSWERED {
            self.open.pop_front();
        }
        self.open.push_back(sent);
    }

    /// The response of a nonce that is answered now, or otherwise than it was before.
    pub(super) fn take(&mut self, nonce: &str, refused: bool) -> Option<Sent> {
        if let Some(at) = self.open.iter().position(|sent| sent.nonce == nonce) {
            return self.open.drain(..=at).next_back();
        }
        let otherwise =
            |(last, before): &mut (Sent, bool)| *before != refused && last.nonce == nonce;
        self.last.take_if(otherwise).map(|(last, _)| last)
    }

    /// Keeps what became of a response: what was refused before and has come again in it is that no more.
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

    /// Forgets rejected resources that are no longer subscribed.
    pub(super) fn forget(&mut self, wanted: impl Fn(&str) -> bool) {
        self.refused
            .retain(|(_, names)| names.is_empty() || names.iter().any(|name| wanted(name)));
    }

    /// Whether a request of state of the world is about another response than the last one.
    pub(super) fn is_stale(&self, nonce: &str) -> bool {
        let answered = self.last.as_ref().map(|(last, _)| last);
        let last = self.open.back().or(answered);
        !nonce.is_empty() && last.is_some_and(|last| last.nonce != nonce)
    }

    /// Since when the client has left a response without an answer.
    pub(super) fn open_since(&self) -> Option<Time> {
        self.open.front().map(|sent| sent.at)
    }

    /// What was refused and has not come better since.
    pub(super) fn nacks(&self) -> impl Iterator<Item = &Nack> {
        self.refused.iter().map(|(nack, _)| nack)
    }

    /// Whether everything was answered, and a resource refused in none of it.
    pub(super) fn has_taken(&self, name: &str) -> bool {
        let refused = |(_, names): &(Nack, Vec<Arc<str>>)| {
            names.is_empty() || names.iter().any(|one| **one == *name)
        };
        self.open.is_empty() && !self.refused.iter().any(refused)
    }
}
