//! A client's subscriptions of one kind of resources, and the versions that it has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The name of the wildcard.
pub(super) const ALL: &str = "*";
/// The version for a resource that has to be sent again, whatever version the client has.
pub(super) const UNSAID: &str = "";

/// The approximate memory of a name in bytes, without its text.
const EACH: usize = 256;

/// The subscriptions of one kind; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Whether the client subscribes to all resources.
    pub(super) all: bool,
    /// Whether there was a request. An empty first request subscribes to all resources of some kinds.
    pub(super) asked: bool,
    /// Whether any state-of-the-world request has had names; afterwards, an empty list means no resources.
    pub(super) named: bool,
    pub(super) names: HashSet<Arc<str>>,
    /// The approximate memory of `names` in bytes.
    pub(super) size: usize,
    /// The versions that the client has, by name; `None` if it knows that the resource does not exist.
    pub(super) has: HashMap<Arc<str>, Option<Arc<str>>>,
    /// The requested names, by the name of the resource that is served under them.
    pub(super) served_as: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// The names to check before the next response.
    pub(super) look: BTreeSet<Arc<str>>,
    /// Whether all names have to be checked.
    pub(super) look_at_all: bool,
}

impl Subscriptions {
    pub(super) fn wants(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    /// Returns whether names have to be checked before the next response.
    pub(super) fn is_due(&self) -> bool {
        self.look_at_all || !self.look.is_empty()
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

    /// Unsubscribes from a name; returns whether it was subscribed by name.
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

    /// Sends a resource, or its removal, again. A client with a wildcard subscription that has just unsubscribed from a
    /// name does not know whether the wildcard includes it (xDS, "Unsubscribing From Resources").
    pub(super) fn report_again(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        self.has.insert(Arc::clone(&name), Some(UNSAID.into()));
        self.look.insert(name);
    }
}
