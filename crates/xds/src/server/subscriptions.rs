//! What one client wants of one kind, and what it has of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The name that stands for all.
pub(super) const ALL: &str = "*";

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Whether all are wanted.
    pub(super) all: bool,
    /// Whether something was asked for; an empty first request asks for all of some kinds.
    pub(super) asked: bool,
    pub(super) names: HashSet<Arc<str>>,
    /// What the client has: the version, or that there is none (`None`).
    pub(super) has: HashMap<Arc<str>, Option<Arc<str>>>,
    /// Names under which a resource of another name is served.
    pub(super) served_as: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// What is to be looked at before the next response.
    pub(super) look: BTreeSet<Arc<str>>,
    /// Everything is to be looked at.
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
        self.names.insert(Arc::clone(&name));
        // Asked for again, it is answered again.
        self.has.remove(&name);
        self.look.insert(name);
    }

    pub(super) fn unsubscribe(&mut self, name: &str) {
        self.asked = true;
        if name == ALL {
            self.all = false;
            let names = &self.names;
            self.has.retain(|name, _| names.contains(name));
        } else if self.names.remove(name) && !self.all {
            self.has.remove(name);
        }
    }
}
