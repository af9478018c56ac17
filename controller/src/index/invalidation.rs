//! Determines which objects must be recomputed after a change.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::facts::route::{RouteKind, Rule};
use super::facts::{Key, Kind, Route, Slice, SliceEndpoint, Workload};
use super::links::{RouteId, pods};
use super::translate::endpoints;
use super::{Index, put};

impl Index {
    pub(super) fn apply_route(&mut self, kind: Kind, key: &Key, route: Route) {
        let of = match kind {
            Kind::GrpcRoute => RouteKind::Grpc,
            Kind::VirtualService => RouteKind::Istio,
            _ => RouteKind::Http,
        };
        let id = (of, key.clone());
        if self.routes.get(&id) == Some(&route) {
            return;
        }
        self.remove_route(&id);
        self.links.add_route(&id, &route);
        self.routes.insert(id.clone(), route);
        self.invalidate_route(&id);
    }

    pub(super) fn remove_route(&mut self, id: &RouteId) {
        self.invalidate_route(id);
        if let Some(route) = self.routes.remove(id) {
            self.links.remove_route(id, &route);
        }
    }

    /// Invalidates the Services and Gateways to which a route is attached, and the statuses of their other routes.
    fn invalidate_route(&mut self, id: &RouteId) {
        let Some(route) = self.routes.get(id) else {
            return;
        };
        // A subset in a route is defined by its Service.
        let every = route.rules.iter().flatten().flat_map(Rule::every_backend);
        let with_subset = every.filter(|backend| backend.subset.is_some());
        let services = with_subset.filter_map(|backend| backend.service.clone());
        self.dirty.services.extend(services);
        let gateways = route.gateways.iter().map(|parent| parent.key.clone());
        for gateway in gateways.collect::<Vec<_>>() {
            self.invalidate_gateway(&gateway);
        }
        let Some(route) = self.routes.get(id) else {
            return;
        };
        for parent in &route.parents {
            self.dirty.services.insert(parent.key.clone());
            for other in self.links.routes_of_parent(&parent.key) {
                self.dirty.statuses.insert(status_id(other));
            }
        }
    }

    pub(super) fn apply_workload(&mut self, key: &Key, workload: Workload) {
        let before = self.addresses_of_pod(key);
        let differs = match workload.has_ended {
            // A pod that has ended is kept only for users to inspect; a Job may leave thousands of such pods.
            true => self.workloads.remove(key).is_some(),
            false => put(&mut self.workloads, key, workload),
        };
        if differs {
            self.invalidate_workload(key);
            let now = self.addresses_of_pod(key);
            self.note_addresses(key, &before, &now);
        }
    }

    pub(super) fn apply_slice(&mut self, key: &Key, slice: Slice) {
        let before = self.slices.get(key);
        if before == Some(&slice) {
            return;
        }
        let affected: Vec<Key> = match before {
            Some(before) => changed_pods(key, before, &slice),
            None => pods(key, &slice).collect(),
        };
        self.dirty.workloads.extend(affected);
        if let Some(before) = self.slices.remove(key) {
            self.links.remove_slice(key, &before);
            self.note_slice(key, &before, false);
            self.invalidate_members_of(&before);
        }
        self.links.add_slice(key, &slice);
        self.note_slice(key, &slice, true);
        self.invalidate_members_of(&slice);
        self.slices.insert(key.clone(), slice);
    }

    pub(super) fn remove_slice(&mut self, key: &Key) {
        if let Some(slice) = self.slices.remove(key) {
            self.links.remove_slice(key, &slice);
            self.note_slice(key, &slice, false);
            self.dirty.workloads.extend(pods(key, &slice));
            self.invalidate_members_of(&slice);
        }
    }

    fn invalidate_members_of(&mut self, slice: &Slice) {
        if let Some(service) = &slice.service {
            self.invalidate_members(service);
        }
    }

    /// Invalidates a Service whose endpoints may have changed.
    pub(super) fn invalidate_members(&mut self, service: &Key) {
        self.dirty.services.insert(service.clone());
        self.invalidate_gateway_of(service);
        self.invalidate_proxied(service);
    }

    /// Invalidates a Service, its clients, its pods, and its policies.
    pub(super) fn invalidate_service(&mut self, key: &Key) {
        self.dirty.services.insert(key.clone());
        self.dirty.workloads.extend(endpoints::pods(self, key));
        self.invalidate_proxied(key);
        for id in self.links.routes_of_parent(key) {
            self.dirty.statuses.insert(status_id(id));
        }
        for id in self.links.routes_of_backend(key) {
            self.dirty.statuses.insert(status_id(id));
        }
        self.invalidate_senders(key);
        // An external name may now refer to this Service, or no longer do so.
        for external in self.externals.get(key).cloned().into_iter().flatten() {
            self.invalidate_external(&external);
        }
        self.invalidate_policies(&key.namespace);
        self.invalidate_gateway_of(key);
    }

    /// Invalidates the routes to a Service of type ExternalName.
    fn invalidate_external(&mut self, key: &Key) {
        for id in self.links.routes_of_backend(key) {
            self.dirty.statuses.insert(status_id(id));
        }
        self.invalidate_senders(key);
    }

    /// Invalidates everything that depends on grants.
    pub(super) fn invalidate_grants(&mut self) {
        self.invalidate_gateways();
        self.invalidate_externals();
    }

    pub(super) fn invalidate_externals(&mut self) {
        let externals: Vec<Key> = self.externals.values().flatten().cloned().collect();
        for key in externals {
            self.invalidate_external(&key);
        }
    }

    /// Invalidates the Services and Gateways whose routes send to a Service.
    fn invalidate_senders(&mut self, service: &Key) {
        for id in self.links.routes_of_backend(service) {
            if let Some(route) = self.routes.get(id) {
                let parents = route.parents.iter();
                self.dirty
                    .services
                    .extend(parents.map(|parent| parent.key.clone()));
                let gateways = route.gateways.iter();
                self.dirty
                    .gateways
                    .extend(gateways.map(|parent| parent.key.clone()));
            }
        }
    }

    pub(super) fn invalidate_workload(&mut self, key: &Key) {
        self.dirty.workloads.insert(key.clone());
        let names = self.links.slices_of_pod(key);
        let slices = names.filter_map(|name| self.slices.get(name));
        let services: Vec<Key> = slices.filter_map(|slice| slice.service.clone()).collect();
        for service in services {
            self.invalidate_proxied(&service);
            self.dirty.services.insert(service);
        }
    }

    pub(super) fn invalidate_workloads(&mut self, namespace: &str) {
        let keys = self.keys_in(&self.workloads, namespace);
        self.dirty.workloads.extend(keys);
    }

    /// Invalidates the pods and Services of a namespace, because its pods may accept other connections than before,
    /// to which clients adapt.
    pub(super) fn invalidate_modes(&mut self, namespace: &str) {
        self.invalidate_workloads(namespace);
        let keys = self.keys_in(&self.services, namespace);
        self.dirty.services.extend(keys);
    }

    pub(super) fn invalidate_node(&mut self, node: &str) {
        let here = self
            .workloads
            .iter()
            .filter(|(_, one)| one.has_sidecar && one.node.as_deref() == Some(node));
        self.dirty
            .workloads
            .extend(here.map(|(key, _)| key.clone()));
        let on_node = |slice: &&Slice| {
            let mut nodes = slice.endpoints.iter().filter_map(|one| one.node.as_deref());
            nodes.any(|one| one == node)
        };
        let slices = self.slices.values().filter(on_node);
        self.dirty
            .services
            .extend(slices.filter_map(|slice| slice.service.clone()));
    }

    /// Invalidates the Services of a namespace whose policies have changed.
    pub(super) fn invalidate_traffic(&mut self, namespace: &str) {
        let services = self.keys_in(&self.services, namespace);
        for key in services {
            self.dirty.workloads.extend(endpoints::pods(self, &key));
            self.invalidate_senders(&key);
            self.dirty.services.insert(key);
        }
        self.invalidate_policies(namespace);
    }

    fn invalidate_policies(&mut self, namespace: &str) {
        let keys = self.keys_in(&self.traffic, namespace);
        let ids = keys.into_iter().map(|key| (Kind::TrafficPolicy, key));
        self.dirty.statuses.extend(ids);
        let rules = self
            .keys_in(&self.istio.destinations, namespace)
            .into_iter();
        let ids = rules.map(|key| (Kind::DestinationRule, key));
        self.dirty.statuses.extend(ids);
    }

    pub(super) fn invalidate_all(&mut self) {
        self.dirty.services.extend(self.services.keys().cloned());
        self.dirty.workloads.extend(self.workloads.keys().cloned());
        let gateways = self.gateways.gateways.keys();
        self.dirty.gateways.extend(gateways.cloned());
        self.invalidate_telemetry();
    }
}

fn by_pod(slice: &Slice) -> BTreeMap<(&str, IpAddr), &SliceEndpoint> {
    let endpoints = slice.endpoints.iter();
    endpoints
        .filter_map(|one| Some(((one.pod.as_deref()?, one.address), one)))
        .collect()
}

/// Returns the pods that have other endpoints in a slice than before. The endpoints of a pod determine its inbound
/// settings, those of other pods do not.
fn changed_pods(key: &Key, before: &Slice, after: &Slice) -> Vec<Key> {
    let is_same = (&before.service, &before.ports) == (&after.service, &after.ports);
    if !is_same {
        return pods(key, before).chain(pods(key, after)).collect();
    }
    let (old, new) = (by_pod(before), by_pod(after));
    let differs = |(id, one): &(&(&str, IpAddr), &&SliceEndpoint)| {
        old.get(*id) != Some(*one) || new.get(*id) != Some(*one)
    };
    let changed = old.iter().chain(&new).filter(differs);
    changed
        .map(|((pod, _), _)| Key::new(&key.namespace, pod))
        .collect()
}

pub(super) fn status_id(id: &RouteId) -> (Kind, Key) {
    let kind = match id.0 {
        RouteKind::Grpc => Kind::GrpcRoute,
        RouteKind::Http => Kind::HttpRoute,
        RouteKind::Istio => Kind::VirtualService,
    };
    (kind, id.1.clone())
}
