//! A client's subscriptions of one kind, and the versions that it has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The wildcard name.
pub(super) const ALL: &str = "*";
/// The version of a resource to announce again, regardless of the client's state.
pub(super) const UNSAID: &str = "";

/// The approximate memory of a name besides its text, in bytes.
const EACH: usize = 256;

/// The subscriptions of one kind; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Whether all resources are subscribed.
    pub(super) all: bool,
    /// Whether there was a request; an empty first request subscribes to all resources of some
    /// kinds.
    pub(super) asked: bool,
    /// Whether a state-of-the-world request has ever had names; from then on an empty list is
    /// empty.
    pub(super) named: bool,
    pub(super) names: HashSet<Arc<str>>,
    /// The memory of `names` in bytes.
    pub(super) size: usize,
    /// What the client has: the version, or `None` if it knows that the resource does not exist.
    pub(super) has: HashMap<Arc<str>, Option<Arc<str>>>,
    /// Requested names by the name of the resource that is served under them.
    pub(super) served_as: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Names to check before the next response.
    pub(super) look: BTreeSet<Arc<str>>,
    /// Whether all names have to be checked.
    pub(super) look_at_all: bool,
}

impl Subscriptions {
    pub(super) fn wants(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    pub(super) fn subscribe(&mut self, name: &str) {
        self.asked = true;
        if name == ALL {
            self.all = true;
            self.look_at_all = true;
            return;
        }
        let name: Arc<str> = name.into();
        if self.names.insert(Arc::clone(&name)) {
            self.size += name.len() + EACH;
        }
        // A repeated subscription gets a response again.
        self.has.remove(&name);
        self.look.insert(name);
    }

    /// Unsubscribes from a name; returns whether it was subscribed by its name.
    pub(super) fn unsubscribe(&mut self, name: &str) -> bool {
        self.asked = true;
        if name == ALL {
            self.all = false;
            let names = &self.names;
            self.has.retain(|name, _| names.contains(name));
            return false;
        }
        let named = self.names.remove(name);
        if named {
            self.size -= name.len() + EACH;
        }
        if named && !self.all {
            self.has.remove(name);
        }
        named
    }

    /// Sends a resource again, or its removal: a client with a wildcard subscription that has just
    /// unsubscribed from a name does not know whether the wildcard includes it (xDS, "Unsubscribing
    /// From Resources").
    pub(super) fn report_again(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        self.has.insert(Arc::clone(&name), Some(UNSAID.into()));
        self.look.insert(name);
    }
}
