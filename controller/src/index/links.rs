//! References between objects, used to find the dependents of a change.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::route::RouteKind;
use super::facts::{Key, Route, Slice};

/// The kind of a route, and its namespace and name.
pub(super) type RouteId = (RouteKind, Key);

/// References of slices and routes, by the referenced object.
#[derive(Debug, Default)]
pub(super) struct Links {
    slices_of_service: BTreeMap<Key, BTreeSet<Key>>,
    slices_of_pod: BTreeMap<Key, BTreeSet<Key>>,
    /// Routes attached to each Service.
    routes_of_parent: BTreeMap<Key, BTreeSet<RouteId>>,
    /// Routes that have each Service as a backend.
    routes_of_backend: BTreeMap<Key, BTreeSet<RouteId>>,
}

fn add<V: Ord>(map: &mut BTreeMap<Key, BTreeSet<V>>, key: Key, value: V) {
    map.entry(key).or_default().insert(value);
}

fn remove<V: Ord>(map: &mut BTreeMap<Key, BTreeSet<V>>, key: &Key, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

fn all<'a, V>(
    map: &'a BTreeMap<Key, BTreeSet<V>>,
    key: &Key,
) -> impl Iterator<Item = &'a V> + use<'a, V> {
    map.get(key).into_iter().flatten()
}

/// Returns the pods in a slice.
pub(super) fn pods<'a>(key: &'a Key, slice: &'a Slice) -> impl Iterator<Item = Key> + 'a {
    let names = slice.endpoints.iter().filter_map(|one| one.pod.as_deref());
    names.map(|name| Key::new(&key.namespace, name))
}

/// Returns the Services to which a route sends requests.
pub(super) fn backends(route: &Route) -> impl Iterator<Item = &Key> {
    let rules = route.rules.iter().flatten();
    let all = rules.flat_map(super::facts::route::Rule::every_backend);
    all.filter_map(|backend| backend.service.as_ref())
}

impl Links {
    pub(super) fn add_slice(&mut self, key: &Key, slice: &Slice) {
        if let Some(service) = &slice.service {
            add(&mut self.slices_of_service, service.clone(), key.clone());
        }
        for pod in pods(key, slice) {
            add(&mut self.slices_of_pod, pod, key.clone());
        }
    }

    pub(super) fn remove_slice(&mut self, key: &Key, slice: &Slice) {
        if let Some(service) = &slice.service {
            remove(&mut self.slices_of_service, service, key);
        }
        for pod in pods(key, slice) {
            remove(&mut self.slices_of_pod, &pod, key);
        }
    }

    pub(super) fn add_route(&mut self, id: &RouteId, route: &Route) {
        for parent in &route.parents {
            add(&mut self.routes_of_parent, parent.key.clone(), id.clone());
        }
        for backend in backends(route) {
            add(&mut self.routes_of_backend, backend.clone(), id.clone());
        }
    }

    pub(super) fn remove_route(&mut self, id: &RouteId, route: &Route) {
        for parent in &route.parents {
            remove(&mut self.routes_of_parent, &parent.key, id);
        }
        for backend in backends(route) {
            remove(&mut self.routes_of_backend, backend, id);
        }
    }

    pub(super) fn slices_of_service<'a>(
        &'a self,
        service: &Key,
    ) -> impl Iterator<Item = &'a Key> + use<'a> {
        all(&self.slices_of_service, service)
    }

    pub(super) fn slices_of_pod(&self, pod: &Key) -> impl Iterator<Item = &Key> {
        all(&self.slices_of_pod, pod)
    }

    pub(super) fn routes_of_parent(&self, service: &Key) -> impl Iterator<Item = &RouteId> {
        all(&self.routes_of_parent, service)
    }

    pub(super) fn routes_of_backend(&self, service: &Key) -> impl Iterator<Item = &RouteId> {
        all(&self.routes_of_backend, service)
    }
}
