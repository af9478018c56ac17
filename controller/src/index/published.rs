//! Tracks the published resources with their owners, and their changes.
//!
//! Names of Services and pods are unique, but addresses are reused: the address of a deleted Service or pod may be
//! assigned to another one, and the events of the two arrive in any order. Therefore resources that are named after
//! an address are tracked by owner, and exist as long as any owner publishes them. An address that the API server has
//! assigned to a Service takes precedence over an address in an EndpointSlice, which may be any address: permission
//! to write slices in one namespace does not affect requests to the Services of another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::facts::Key;
use super::{Change, Listener, Resource, ResourceId};

/// The owner of a resource.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    Gateway(Key),
    Mesh,
    Service(Key),
    Workload(Key),
}

/// The claim of an owner to a resource named after an address. The greatest claim applies.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Claim {
    /// Whether this is the owner's own address, and not that of a manually written endpoint.
    is_own: bool,
    owner: Owner,
}

/// All published resources.
#[derive(Debug, Default)]
pub(super) struct Published {
    by_owner: BTreeMap<Owner, BTreeMap<ResourceId, Resource>>,
    /// Claims to resources named after an address. The last one applies.
    by_address: BTreeMap<ResourceId, BTreeSet<Claim>>,
    changes: Vec<Change>,
    /// Addresses changed since the last call of [`Published::changes`], with their previous resources.
    before: BTreeMap<ResourceId, Option<Resource>>,
}

impl Published {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Returns whether an owner already publishes exactly this resource.
    pub(super) fn has(&self, owner: &Owner, id: &ResourceId, resource: &Resource) -> bool {
        let own = self.by_owner.get(owner);
        own.and_then(|own| own.get(id)) == Some(resource)
    }

    /// Replaces all resources of an owner.
    pub(super) fn publish(&mut self, owner: Owner, resources: BTreeMap<ResourceId, Resource>) {
        let before = self.by_owner.remove(&owner).unwrap_or_default();
        for id in before.keys().filter(|id| !resources.contains_key(id)) {
            match is_address(id) {
                true => self.pass(id, &owner, before.get(id), None),
                false => self.changes.push(Change::Remove(id.clone())),
            }
        }
        for (id, resource) in &resources {
            if before.get(id) != Some(resource) {
                match is_address(id) {
                    true => self.pass(id, &owner, before.get(id), Some(resource)),
                    false => self.changes.push(Change::Set(id.clone(), resource.clone())),
                }
            }
        }
        if !resources.is_empty() {
            self.by_owner.insert(owner, resources);
        }
    }

    /// Records a changed or removed resource of an owner for an address.
    fn pass(
        &mut self,
        id: &ResourceId,
        owner: &Owner,
        before: Option<&Resource>,
        now: Option<&Resource>,
    ) {
        if !self.before.contains_key(id) {
            let last = self.by_address.get(id).and_then(BTreeSet::last);
            let held = match last.is_some_and(|last| last.owner == *owner) {
                true => before.cloned(),
                false => self.holding(id).cloned(),
            };
            self.before.insert(id.clone(), held);
        }
        let claim = |resource: &Resource| Claim {
            is_own: is_own(id, resource),
            owner: owner.clone(),
        };
        let claims = self.by_address.entry(id.clone()).or_default();
        if let Some(before) = before {
            claims.remove(&claim(before));
        }
        claims.extend(now.map(claim));
        if claims.is_empty() {
            self.by_address.remove(id);
        }
    }

    /// Returns the resource that applies to an address.
    fn holding(&self, id: &ResourceId) -> Option<&Resource> {
        let owner = &self.by_address.get(id)?.last()?.owner;
        self.by_owner.get(owner)?.get(id)
    }

    /// Returns the differences since the last call.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        for (id, before) in std::mem::take(&mut self.before) {
            match self.holding(&id) {
                None if before.is_some() => changes.push(Change::Remove(id)),
                Some(now) if before.as_ref() != Some(now) => {
                    changes.push(Change::Set(id, now.clone()));
                }
                _ => {}
            }
        }
        changes
    }

    /// Returns all resources that apply.
    pub(super) fn resources(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.by_owner.iter().flat_map(move |(owner, resources)| {
            let holds = move |id: &ResourceId| {
                let claims = self.by_address.get(id);
                claims.is_none_or(|claims| claims.last().is_some_and(|last| last.owner == *owner))
            };
            resources.iter().filter(move |(id, _)| holds(id))
        })
    }
}

fn is_address(id: &ResourceId) -> bool {
    id.name.parse::<SocketAddr>().is_ok()
}

/// Returns whether a resource belongs to a Service's own address. Such a resource refers to resources with the
/// Service's name, while a resource of an endpoint refers to those with the endpoint's address.
fn is_own(id: &ResourceId, resource: &Resource) -> bool {
    match resource {
        Resource::Listener(Listener::Http { routes: to, .. } | Listener::Tcp { cluster: to }) => {
            *to != id.name
        }
        _ => false,
    }
}
