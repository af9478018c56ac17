//! Keeps the last valid resources for times without a server. The owner stores them for the next process.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Kind;
use crate::client::Received;
use crate::snapshot::Kept;

use super::{Changes, Discovery};

/// The maximum number of kept resources. Above it, unsubscribed ones are dropped.
const MOST: usize = 4096;

/// The resources that are kept.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// The kept resources, with their versions and bodies.
    resources: BTreeMap<(Kind, Arc<str>), Received>,
    /// Whether the resources have changed since they were last returned.
    changed: bool,
    /// Whether subscribed resources are taken from the kept ones.
    offline: bool,
}

impl Keeping {
    /// Keeps a resource. Trust bundles are not kept here, because the server needs to know which roots this process
    /// itself has received.
    pub(super) fn put(&mut self, kind: Kind, resource: &Received) {
        if kind == Kind::Bundle {
            return;
        }
        let key = (kind, Arc::clone(&resource.name));
        if self
            .resources
            .get(&key)
            .is_some_and(|kept| kept.version == resource.version)
        {
            return;
        }
        self.changed = true;
        self.resources.insert(key, resource.clone());
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &Arc<str>) {
        let key = (kind, Arc::clone(name));
        self.changed |= self.resources.remove(&key).is_some();
    }

    /// Ends offline operation, because a server responds again.
    pub(super) fn online(&mut self) {
        self.offline = false;
    }
}

impl Discovery {
    /// Keeps the last valid version of all resources from now on. `earlier` are the resources that an earlier process
    /// has stored.
    pub fn keep(&mut self, earlier: Vec<Kept>) {
        let keeping = self.keeping.get_or_insert_default();
        for kept in earlier {
            let key = (kept.kind, Arc::clone(&kept.name));
            let received = Received {
                name: kept.name,
                version: kept.version,
                body: kept.body,
            };
            keeping.resources.entry(key).or_insert(received);
        }
    }

    /// Starts offline operation, in which subscribed resources come from the kept ones until a server responds.
    pub fn go_offline(&mut self) -> Changes {
        match &mut self.keeping {
            Some(keeping) if !keeping.resources.is_empty() => keeping.offline = true,
            _ => return Changes::default(),
        }
        self.recall()
    }

    /// Ends offline operation, because a server responds.
    pub fn go_online(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            keeping.online();
        }
    }

    /// Returns whether subscribed resources are taken from the kept ones.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.offline)
    }

    /// Returns the resources to store; `None` if they have not changed since the last call.
    pub fn kept(&mut self) -> Option<Vec<Kept>> {
        let client = &self.client;
        let keeping = self.keeping.as_mut()?;
        if !std::mem::take(&mut keeping.changed) {
            return None;
        }
        if keeping.resources.len() > MOST {
            let followed = |kind, name: &Arc<str>| client.subscribed(kind).any(|one| one == name);
            keeping
                .resources
                .retain(|(kind, name), _| followed(*kind, name));
        }
        let all = keeping.resources.iter();
        Some(
            all.map(|((kind, name), received)| Kept {
                kind: *kind,
                name: Arc::clone(name),
                version: received.version.clone(),
                body: received.body.clone(),
            })
            .collect(),
        )
    }

    /// Applies the kept resources that are subscribed and unknown, and those that they refer to. Their versions are
    /// remembered, so that a server that responds later sends only the differences.
    pub(super) fn recall(&mut self) -> Changes {
        let mut changes = Changes::default();
        while self.is_offline() {
            let missing = self.missing();
            if missing.is_empty() {
                break;
            }
            for (kind, received) in missing {
                match self.take(kind, &received) {
                    Ok(()) => {
                        match kind {
                            Kind::Inbound => changes.inbound = true,
                            _ => changes.routing = true,
                        }
                        self.client
                            .remember(kind, &received.name, &received.version);
                    }
                    // It was valid for another version of this program.
                    Err(_) => {
                        if let Some(keeping) = &mut self.keeping {
                            keeping.remove(kind, &received.name);
                        }
                    }
                }
            }
            self.follow();
        }
        changes
    }

    /// Returns the kept resources that are subscribed but have not been received.
    fn missing(&self) -> Vec<(Kind, Received)> {
        let Some(keeping) = &self.keeping else {
            return Vec::new();
        };
        let mut missing = Vec::new();
        for kind in Kind::ALL {
            let names = self.client.subscribed(kind);
            for name in names.filter(|name| !self.is_answered(kind, name)) {
                let kept = keeping.resources.get(&(kind, Arc::clone(name)));
                missing.extend(kept.map(|kept| (kind, kept.clone())));
            }
        }
        missing
    }
}
