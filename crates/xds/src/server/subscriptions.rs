//! A client's subscriptions of one kind, and the versions that it has.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The name that stands for all.
pub(super) const ALL: &str = "*";
/// The version of a resource to announce again, regardless of the client's state.
pub(super) const UNSAID: &str = "";

/// What is kept of a name besides itself, about, in bytes.
const EACH: usize = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// Whether all are wanted.
    pub(super) all: bool,
    /// Whether something was asked for; an empty first request asks for all of some kinds.
    pub(super) asked: bool,
    /// Whether a name was ever given, by state of the world; from then on an empty list is empty.
    pub(super) named: bool,
    pub(super) names: HashSet<Arc<str>>,
    /// What `names` take, in bytes.
    pub(super) size: usize,
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
        if self.names.insert(Arc::clone(&name)) {
            self.size += name.len() + EACH;
        }
        // Asked for again, it is answered again.
        self.has.remove(&name);
        self.look.insert(name);
    }

    /// Does not want a name any more; whether it was wanted by its name.
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

    /// A client that wants all, and has just let go of a name, does not know whether that is one of them: it is sent
    /// again, or said to be gone (xDS, "Unsubscribing From Resources").
    pub(super) fn report_again(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        self.has.insert(Arc::clone(&name), Some(UNSAID.into()));
        self.look.insert(name);
    }
}
