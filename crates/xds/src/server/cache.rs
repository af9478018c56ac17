//! The distributed resources, in the order of their changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use maglor_balance::Time;

use super::change::ChangeId;
use super::receipts::Receipts;
use crate::{Kind, Resource};

/// The number of changes that are remembered individually. A session that has missed more changes checks all resources
/// to which it subscribes.
const REMEMBERED: usize = 65_536;

/// The resources and their changes; see the module's documentation.
#[derive(Debug, Default)]
pub struct Cache {
    kinds: [HashMap<Arc<str>, Entry>; Kind::COUNT],
    /// The resource of each change. A resource is listed only under its last change.
    changes: BTreeMap<ChangeId, (Kind, Arc<str>)>,
    last: ChangeId,
    /// The last change that is no longer remembered. Sessions that have not seen it cannot find all missed changes in
    /// `changes`.
    forgotten: ChangeId,
    receipts: Receipts,
}

/// A resource, or the tombstone of a removed resource.
#[derive(Debug)]
struct Entry {
    /// The present version; `None` if the resource is removed.
    current: Option<Current>,
    changed: ChangeId,
}

/// The present version of a resource.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) version: Arc<str>,
    pub(super) body: Bytes,
    pub(super) changed: ChangeId,
}

impl Cache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts or replaces a resource; returns the change, or `None` if the resource is unchanged.
    pub fn set(&mut self, resource: Resource, now: Time) -> Option<ChangeId> {
        let version: Arc<str> = resource.version().into();
        let kind = &self.kinds[resource.kind.index()];
        let known = kind.get(&resource.name).and_then(|e| e.current.as_ref());
        if known.is_some_and(|known| known.version == version) {
            return None;
        }
        let (body, changed) = (resource.body, self.next());
        let current = Current {
            version,
            body,
            changed,
        };
        Some(self.change(resource.kind, resource.name, Some(current), now))
    }

    /// Removes a resource; returns the change, or `None` if there is no such resource.
    pub fn remove(&mut self, kind: Kind, name: &str, now: Time) -> Option<ChangeId> {
        let (name, entry) = self.kinds[kind.index()].get_key_value(name)?;
        entry.current.as_ref()?;
        let name = Arc::clone(name);
        self.next();
        Some(self.change(kind, name, None, now))
    }

    /// Records a change of the resource that is served under a name, for example because the name maps to another
    /// resource. Sessions check it again.
    pub fn mark_changed(&mut self, kind: Kind, name: &str, now: Time) -> ChangeId {
        let name: Arc<str> = name.into();
        let changed = self.next();
        let current = self.get(kind, &name).cloned();
        let current = current.map(|current| Current { changed, ..current });
        self.change(kind, name, current, now)
    }

    fn next(&mut self) -> ChangeId {
        self.last.0 += 1;
        self.last
    }

    fn change(
        &mut self,
        kind: Kind,
        name: Arc<str>,
        current: Option<Current>,
        now: Time,
    ) -> ChangeId {
        let changed = self.last;
        let entry = Entry { current, changed };
        if let Some(before) = self.kinds[kind.index()].insert(Arc::clone(&name), entry) {
            self.changes.remove(&before.changed);
        }
        self.changes.insert(changed, (kind, Arc::clone(&name)));
        self.receipts.open(changed, kind, name, now);
        if self.changes.len() > REMEMBERED {
            self.forget();
        }
        changed
    }

    /// Drops the older half of the changes, and the tombstones among them.
    fn forget(&mut self) {
        let half = self.changes.keys().nth(REMEMBERED / 2).copied();
        let Some(half) = half else { return };
        let newer = self.changes.split_off(&half);
        for (id, (kind, name)) in std::mem::replace(&mut self.changes, newer) {
            let kind = &mut self.kinds[kind.index()];
            if kind.get(&name).is_some_and(|entry| entry.current.is_none()) {
                kind.remove(&name);
            }
            self.forgotten = self.forgotten.max(id);
        }
    }

    /// Returns the number of the last change.
    #[must_use]
    pub fn last_change(&self) -> ChangeId {
        self.last
    }

    /// Returns the number of resources of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        let entries = self.kinds[kind.index()].values();
        entries.filter(|entry| entry.current.is_some()).count()
    }

    /// Returns the version of a resource; `None` if it does not exist.
    #[must_use]
    pub fn version(&self, kind: Kind, name: &str) -> Option<&str> {
        self.get(kind, name).map(|current| &*current.version)
    }

    /// Returns the encoded resource and its last change; `None` if it does not exist.
    #[must_use]
    pub fn body(&self, kind: Kind, name: &str) -> Option<(&Bytes, ChangeId)> {
        self.get(kind, name)
            .map(|current| (&current.body, current.changed))
    }

    /// Returns the names of the resources of a kind.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &Arc<str>> {
        let entries = self.kinds[kind.index()].iter();
        let there = |(_, entry): &(&Arc<str>, &Entry)| entry.current.is_some();
        entries.filter(there).map(|(name, _)| name)
    }

    /// Returns the receipts of the last changes.
    #[must_use]
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    pub(super) fn receipts_mut(&mut self) -> &mut Receipts {
        &mut self.receipts
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Current> {
        self.kinds[kind.index()].get(name)?.current.as_ref()
    }

    /// Returns the last change of a present or removed resource; `None` if it is unknown.
    pub(super) fn changed(&self, kind: Kind, name: &str) -> Option<ChangeId> {
        Some(self.kinds[kind.index()].get(name)?.changed)
    }

    /// Returns the changes after `seen`; `None` if they are no longer remembered.
    pub(super) fn since(&self, seen: ChangeId) -> Option<impl Iterator<Item = (Kind, &Arc<str>)>> {
        let known = seen >= self.forgotten;
        let after = (std::ops::Bound::Excluded(seen), std::ops::Bound::Unbounded);
        known.then(|| {
            self.changes
                .range(after)
                .map(|(_, (kind, name))| (*kind, name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, body: &'static [u8]) -> Resource {
        Resource {
            kind: Kind::Cluster,
            name: name.into(),
            body: Bytes::from_static(body),
        }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let mut cache = Cache::new();
        let now = Time::ZERO;
        assert_eq!(cache.set(resource("a", b"1"), now), Some(ChangeId(1)));
        assert_eq!(cache.set(resource("a", b"1"), now), None);
        assert_eq!(cache.set(resource("a", b"2"), now), Some(ChangeId(2)));
        assert_eq!(cache.remove(Kind::Cluster, "b", now), None);
        assert_eq!(cache.remove(Kind::Cluster, "a", now), Some(ChangeId(3)));
        assert_eq!(cache.remove(Kind::Cluster, "a", now), None);
        assert_eq!(cache.count(Kind::Cluster), 0);
        let all: Vec<_> = cache.since(ChangeId(0)).unwrap().collect();
        assert_eq!(all.len(), 1, "a resource stands under its last change");
    }

    #[test]
    fn old_changes_are_forgotten_and_that_is_known() {
        let mut cache = Cache::new();
        for i in 0..=REMEMBERED {
            cache.set(resource(&i.to_string(), b"1"), Time::ZERO);
        }
        assert!(cache.since(ChangeId(1)).is_none());
        assert!(cache.since(cache.last_change()).is_some());
        assert_eq!(cache.count(Kind::Cluster), REMEMBERED + 1);
    }
}
