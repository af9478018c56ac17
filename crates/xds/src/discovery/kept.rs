//! The last valid resources, for times without a server: in this process, and, stored
//! by its owner, in the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Kind;
use crate::client::Received;
use crate::snapshot::Kept;

use super::{Changes, Discovery};

/// Resources that are kept at most. Beyond that, unsubscribed ones are dropped.
const MOST: usize = 4096;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// Version and body.
    resources: BTreeMap<(Kind, Arc<str>), Received>,
    /// Whether it differs from what was handed out last.
    changed: bool,
    /// Whether what is wanted is taken from here.
    offline: bool,
}

impl Keeping {
    /// Whom to trust is kept elsewhere: who has which roots is for the server to hear from this process.
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

    /// A server responds again.
    pub(super) fn online(&mut self) {
        self.offline = false;
    }
}

impl Discovery {
    /// Keeps the last good of everything from now on; `earlier` is what another process has kept.
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

    /// No server responds: wanted resources come from the cache until one does.
    pub fn go_offline(&mut self) -> Changes {
        match &mut self.keeping {
            Some(keeping) if !keeping.resources.is_empty() => keeping.offline = true,
            _ => return Changes::default(),
        }
        self.recall()
    }

    /// A server responds.
    pub fn go_online(&mut self) {
        if let Some(keeping) = &mut self.keeping {
            keeping.online();
        }
    }

    /// Whether what is wanted is taken from what was kept.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.offline)
    }

    /// What is to be written down, if that has changed since it was asked for last.
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

    /// Takes what is wanted and not known from what was kept, and what that leads to. Versions are remembered, so
    /// that a server that answers later sends only what differs.
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
                    // It was good for another version of this program.
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

    /// What is asked for, was not answered, and was kept.
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
