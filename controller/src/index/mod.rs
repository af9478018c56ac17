//! Translates the resources of a cluster to the resources of xDS: pure, incremental, independent of the order of
//! events.
//!
//! Objects are changed by [`Index::apply`], [`Index::delete`] and [`Index::reset`], which mark their dependents.
//! [`Index::changes`] recomputes only these and returns the differences. The result depends only on the objects, not
//! on the order of events; a property test compares the result with that of a new index. There is one intended
//! exception: when a policy of the mesh's own becomes invalid, its last valid version stays in force, which the
//! policy's status records for replicas that start.
//!
//! ```text
//! object ──facts──► stores ──links──► dirty Services, workloads ──translate──► resources ──► changes
//!                                  └► dirty resources            ──status──────► conditions
//! ```

mod confirm;
mod effective;
mod external;
pub mod facts;
mod foreign;
mod gateways;
mod invalidation;
mod istio;
mod links;
mod proxied;
mod published;
mod resource;
mod status;
pub mod topology;
mod traced;
mod translate;

use std::collections::{BTreeMap, BTreeSet};

use self::facts::route::RouteKind;
use self::facts::{
    AuthorizationPolicy, Facts, Key, Kind, MeshConfig, Namespace, Node, Object, Route, Service,
    Slice, TrafficPolicy, Workload,
};
use self::gateways::Gateways;
use self::links::{Links, RouteId};
use self::published::{Owner, Published};
use crate::crd::{MESH_CONFIG_NAME, MeshConfigSpec};

pub use confirm::Unusable;
pub use gateways::made_name;
pub(crate) use gateways::{NO_LISTENER, UNKNOWN_LABELS};
pub(crate) use proxied::spoken;
pub use proxied::target_name;
pub use resource::{
    Change, Consumer, Endpoint, Inbound, Listener, Place, Resource, ResourceId, ResourceKind,
};
pub use status::{CONTROLLER, ParentRef, ParentStatus, Status};

/// The desired status of an object; `None` if another controller writes the status from now on.
pub type Wanted = (Kind, Key, Option<Status>);

/// Default trust domain and DNS domain, unless `MeshConfig` sets them.
const DOMAIN: &str = "cluster.local";

/// All known objects of a cluster, and the published resources.
#[derive(Debug, Default)]
pub struct Index {
    authorization: BTreeMap<Key, AuthorizationPolicy>,
    mesh: BTreeMap<Key, MeshConfig>,
    namespaces: BTreeMap<Key, Namespace>,
    nodes: BTreeMap<Key, Node>,
    routes: BTreeMap<RouteId, Route>,
    services: BTreeMap<Key, Service>,
    slices: BTreeMap<Key, Slice>,
    traffic: BTreeMap<Key, TrafficPolicy>,
    workloads: BTreeMap<Key, Workload>,
    istio: istio::Istio,
    externals: external::Externals,
    addresses: foreign::Addresses,
    gateways: Gateways,
    links: Links,
    dirty: Dirty,
    places: BTreeMap<Key, Place>,
    /// The nodes from which Services are called, each with its share of the calls in thousandths.
    callers: BTreeMap<Key, BTreeMap<String, u32>>,
    /// A field of `AuthorizationPolicy`s that the API server does not store; `None` if it stores all.
    pruned: Option<String>,
    /// The ports of Services that pods call, by the owner of the pods.
    called: Called,
    published: Published,
    unusable: confirm::Unusables,
    statuses: BTreeMap<(Kind, Key), Status>,
}

/// Ports of Services, by the Deployment or other owner of the pods that call them.
pub type Called = BTreeMap<Key, BTreeSet<(Key, u16)>>;

/// The objects that must be recomputed.
#[derive(Debug, Default)]
struct Dirty {
    gateways: BTreeSet<Key>,
    services: BTreeSet<Key>,
    workloads: BTreeSet<Key>,
    statuses: BTreeSet<(Kind, Key)>,
}

/// The differences since the last call of [`Index::changes`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Resources in the order of references: clusters, then endpoints, then routes and listeners.
    pub resources: Vec<Change>,
    /// Desired statuses; `None` if the mesh no longer writes the status of an object.
    pub statuses: Vec<(Kind, Key, Option<Status>)>,
    /// Newly found resources that are not published because proxies could not decode them.
    pub unusable: Vec<Unusable>,
    /// New locations of pods with proxies, including those that only call; `None` if a pod is gone.
    pub places: Vec<(Key, Option<Place>)>,
}

impl Index {
    /// Adds or updates a resource.
    pub fn apply(&mut self, object: Object) {
        let Object { key, facts, kind } = object;
        match facts {
            Facts::AuthorizationPolicy(mut policy) => {
                let before = self.authorization.get(&key);
                policy.settle(before, self.pruned.as_deref());
                if !before.is_some_and(|before| before.is_same(&policy)) {
                    self.invalidate_workloads(&key.namespace);
                }
                self.authorization.insert(key.clone(), policy);
            }
            Facts::Gateway(gateway) => {
                if put(&mut self.gateways.gateways, &key, gateway) {
                    self.invalidate_gateways();
                }
            }
            Facts::GatewayClass(class) => {
                if put(&mut self.gateways.classes, &key, class) {
                    self.invalidate_gateways();
                }
            }
            Facts::ReferenceGrant(grant) => {
                if put(&mut self.gateways.grants, &key, grant) {
                    self.invalidate_grants();
                }
            }
            Facts::Secret(secret) => {
                if put(&mut self.gateways.secrets, &key, secret) {
                    self.invalidate_gateways();
                }
            }
            Facts::Istio(facts) => self.apply_istio(&key, facts),
            Facts::MeshConfig(mut config) => {
                let before = self.mesh.get(&key);
                config.settle(before);
                if before.map(|before| &before.spec.value) != Some(&config.spec.value) {
                    self.invalidate_all();
                }
                self.mesh.insert(key.clone(), *config);
                self.note_externals();
            }
            Facts::Namespace(namespace) => {
                if put(&mut self.namespaces, &key, namespace) {
                    self.invalidate_modes(&key.name);
                    self.invalidate_gateways();
                }
            }
            Facts::Node(node) => {
                if put(&mut self.nodes, &key, node) {
                    self.invalidate_node(&key.name);
                }
            }
            Facts::Route(route) => self.apply_route(kind, &key, route),
            Facts::Service(service) => {
                let before = self.services.insert(key.clone(), service.clone());
                self.note_external(&key, before.as_ref(), Some(&service));
                let had = before.as_ref().map_or(&[][..], |before| &before.addresses);
                self.note_addresses(&key, had, &service.addresses);
                if before.as_ref() != Some(&service) {
                    self.invalidate_service(&key);
                    self.invalidate_front(&key, [Some(&service), before.as_ref()]);
                }
            }
            Facts::Slice(slice) => self.apply_slice(&key, slice),
            Facts::TrafficPolicy(mut policy) => {
                let before = self.traffic.get(&key);
                policy.settle(before);
                let same = before.is_some_and(|before| before.is_same(&policy));
                self.traffic.insert(key.clone(), *policy);
                if !same {
                    self.invalidate_traffic(&key.namespace);
                }
            }
            Facts::Workload(workload) => self.apply_workload(&key, workload),
        }
        if kind.has_status() {
            self.dirty.statuses.insert((kind, key));
        }
    }

    /// Removes a deleted resource.
    pub fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::AuthorizationPolicy => {
                self.authorization.remove(key);
                self.invalidate_workloads(&key.namespace);
            }
            Kind::DestinationRule
            | Kind::IstioAuthorizationPolicy
            | Kind::PeerAuthentication
            | Kind::Telemetry
            | Kind::VirtualService => self.remove_istio(kind, key),
            Kind::EndpointSlice => self.remove_slice(key),
            Kind::Gateway => {
                self.invalidate_gateways();
                self.gateways.gateways.remove(key);
            }
            Kind::GatewayClass => {
                self.gateways.classes.remove(key);
                self.invalidate_gateways();
            }
            Kind::ReferenceGrant => {
                self.gateways.grants.remove(key);
                self.invalidate_grants();
            }
            Kind::Secret => {
                self.gateways.secrets.remove(key);
                self.invalidate_gateways();
            }
            Kind::GrpcRoute => self.remove_route(&(RouteKind::Grpc, key.clone())),
            Kind::HttpRoute => self.remove_route(&(RouteKind::Http, key.clone())),
            Kind::MeshConfig => {
                self.mesh.remove(key);
                self.invalidate_all();
                self.note_externals();
            }
            Kind::Namespace => {
                self.namespaces.remove(key);
                self.invalidate_modes(&key.name);
                self.invalidate_gateways();
            }
            Kind::Node => {
                self.nodes.remove(key);
                self.invalidate_node(&key.name);
            }
            Kind::Pod => {
                let before = self.addresses_of_pod(key);
                self.workloads.remove(key);
                self.invalidate_workload(key);
                self.note_addresses(key, &before, &[]);
            }
            Kind::Service => {
                let before = self.services.remove(key);
                self.note_external(key, before.as_ref(), None);
                let had = before.as_ref().map_or(&[][..], |before| &before.addresses);
                self.note_addresses(key, had, &[]);
                self.invalidate_service(key);
                self.invalidate_front(key, [None, before.as_ref()]);
            }
            Kind::TrafficPolicy => {
                self.traffic.remove(key);
                self.invalidate_traffic(&key.namespace);
            }
        }
        self.dirty.statuses.insert((kind, key.clone()));
    }

    /// Replaces all resources of a kind. Known versions of the resources in `unread` are kept.
    pub fn reset(&mut self, kind: Kind, objects: Vec<Object>, unread: &[Key]) {
        let read = objects.iter().map(|object| &object.key);
        let there: BTreeSet<&Key> = read.chain(unread).collect();
        let gone: Vec<Key> = self
            .keys(kind)
            .into_iter()
            .filter(|key| !there.contains(key))
            .collect();
        for key in gone {
            self.delete(kind, &key);
        }
        for object in objects {
            self.apply(object);
        }
    }

    /// Sets the field of `AuthorizationPolicy`s that the API server does not store, if there is one. Policies written
    /// from now on may lack this field.
    pub fn set_pruned(&mut self, field: Option<String>) {
        self.pruned = field;
    }

    /// Sets the nodes from which Services are called, with their shares; the callers of a Service that is not
    /// included are unknown.
    pub fn set_callers(&mut self, callers: BTreeMap<Key, BTreeMap<String, u32>>) {
        let before = std::mem::replace(&mut self.callers, callers);
        let all = before.keys().chain(self.callers.keys());
        let differ = all.filter(|key| before.get(*key) != self.callers.get(*key));
        let differ: Vec<Key> = differ.cloned().collect();
        self.dirty.services.extend(differ);
    }

    /// Sets the Services that pods call, so that similar pods' proxies request them in advance.
    pub fn set_called(&mut self, called: Called) {
        let before = std::mem::replace(&mut self.called, called);
        let differs = |maker: &Key| before.get(maker) != self.called.get(maker);
        let pods = self.workloads.iter().filter(|(pod, workload)| {
            workload.has_sidecar && differs(&Key::new(&pod.namespace, &workload.owner))
        });
        let pods: Vec<Key> = pods.map(|(pod, _)| pod.clone()).collect();
        self.dirty.workloads.extend(pods);
    }

    /// Returns the differences since the last call.
    pub fn changes(&mut self) -> Changes {
        let dirty = std::mem::take(&mut self.dirty);
        let mut changes = Changes::default();
        if self.published.is_empty() {
            let shared = translate::shared().into_iter().collect();
            self.publish(Owner::Mesh, shared, &mut changes);
        }
        for key in dirty.services {
            let resources = translate::service::resources(self, &key);
            self.publish(Owner::Service(key), resources, &mut changes);
        }
        for key in dirty.gateways {
            let resources = translate::gateway::resources(self, &key);
            self.publish(Owner::Gateway(key), resources, &mut changes);
        }
        for key in dirty.workloads {
            let place = self.place(&key);
            if self.places.get(&key) != place.as_ref() {
                match &place {
                    Some(place) => drop(self.places.insert(key.clone(), place.clone())),
                    None => drop(self.places.remove(&key)),
                }
                changes.places.push((key.clone(), place));
            }
            let resources = translate::inbound::resources(self, &key);
            self.publish(Owner::Workload(key), resources, &mut changes);
        }
        changes.resources = self.published.changes();
        // Make before break: a referenced resource is added first and removed last.
        changes.resources.sort_by_key(|change| match change {
            Change::Set(id, _) => (0, id.kind),
            Change::Remove(id) => (2, id.kind),
        });
        let removed = changes
            .resources
            .iter()
            .position(|one| matches!(one, Change::Remove(_)));
        if let Some(removed) = removed {
            changes.resources[removed..].reverse();
        }
        let mut statuses = dirty.statuses;
        // These statuses depend on which resources could not be published.
        statuses.append(&mut self.dirty.statuses);
        for (kind, key) in statuses {
            let status = status::of(self, kind, &key);
            let id = (kind, key);
            match status {
                None => {
                    if let Some(before) = self.statuses.remove(&id) {
                        // A route that still exists gets an empty list of parents.
                        let left = match before {
                            Status::Route(_) => Some(Status::Route(Vec::new())),
                            Status::Kept(..) | Status::Policy(_) | Status::Whole(_) => None,
                        };
                        changes.statuses.push((id.0, id.1, left));
                    }
                }
                Some(status) if self.statuses.get(&id) == Some(&status) => {}
                Some(status) => {
                    self.statuses.insert(id.clone(), status.clone());
                    changes.statuses.push((id.0, id.1, Some(status)));
                }
            }
        }
        changes
    }

    /// Returns all published resources.
    pub fn resources(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.published.resources()
    }

    /// Returns all desired statuses.
    pub fn statuses(&self) -> impl Iterator<Item = (Kind, &Key, &Status)> {
        self.statuses
            .iter()
            .map(|((kind, key), status)| (*kind, key, status))
    }

    /// Returns the SPIFFE ID of a service account.
    #[must_use]
    pub fn identity(&self, namespace: &str, account: &str) -> String {
        format!(
            "spiffe://{}/ns/{namespace}/sa/{account}",
            self.trust_domain()
        )
    }

    /// Returns the trust domain of the mesh.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let spec = self.mesh_spec();
        spec.and_then(|spec| spec.trust_domain.as_deref())
            .unwrap_or(DOMAIN)
    }

    /// Returns the location of a pod with a proxy, even if it accepts no connections, because its proximity to
    /// endpoints matters when it calls them.
    fn place(&self, pod: &Key) -> Option<Place> {
        let workload = self.workloads.get(pod).filter(|one| one.has_sidecar)?;
        let node = workload.node.clone();
        let facts = node
            .as_deref()
            .and_then(|name| self.nodes.get(&Key::new("", name)));
        Some(Place {
            zone: facts.and_then(|node| node.zone.clone()),
            node,
        })
    }

    fn mesh_spec(&self) -> Option<&MeshConfigSpec> {
        self.mesh
            .get(&Key::new("", MESH_CONFIG_NAME))?
            .spec
            .value
            .as_ref()
    }

    fn cluster_domain(&self) -> &str {
        let spec = self.mesh_spec();
        spec.and_then(|spec| spec.cluster_domain.as_deref())
            .unwrap_or(DOMAIN)
    }

    /// Returns the entries of a namespace, by name.
    fn in_namespace<'a, T>(
        &'a self,
        store: &'a BTreeMap<Key, T>,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a T)> + use<'a, T> {
        let from = Key::new(namespace, "");
        let namespace = namespace.to_owned();
        store
            .range(from..)
            .take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Returns the keys of a namespace as copies, so that the index can be changed.
    fn keys_in<T>(&self, store: &BTreeMap<Key, T>, namespace: &str) -> Vec<Key> {
        let found = self.in_namespace(store, namespace);
        found.map(|(key, _)| key.clone()).collect()
    }

    fn keys(&self, kind: Kind) -> Vec<Key> {
        fn of<T>(store: &BTreeMap<Key, T>) -> Vec<Key> {
            store.keys().cloned().collect()
        }
        let routes = |kind: RouteKind| {
            let ids = self.routes.keys().filter(|id| id.0 == kind);
            ids.map(|id| id.1.clone()).collect()
        };
        match kind {
            Kind::AuthorizationPolicy => of(&self.authorization),
            Kind::DestinationRule => of(&self.istio.destinations),
            Kind::EndpointSlice => of(&self.slices),
            Kind::Gateway => of(&self.gateways.gateways),
            Kind::GatewayClass => of(&self.gateways.classes),
            Kind::ReferenceGrant => of(&self.gateways.grants),
            Kind::Secret => of(&self.gateways.secrets),
            Kind::GrpcRoute => routes(RouteKind::Grpc),
            Kind::HttpRoute => routes(RouteKind::Http),
            Kind::IstioAuthorizationPolicy => of(&self.istio.authorization),
            Kind::MeshConfig => of(&self.mesh),
            Kind::Namespace => of(&self.namespaces),
            Kind::Node => of(&self.nodes),
            Kind::PeerAuthentication => of(&self.istio.peers),
            Kind::Pod => of(&self.workloads),
            Kind::Service => of(&self.services),
            Kind::Telemetry => of(&self.istio.telemetry),
            Kind::TrafficPolicy => of(&self.traffic),
            Kind::VirtualService => routes(RouteKind::Istio),
        }
    }
}

/// Stores a value; returns whether it has changed.
fn put<T: PartialEq>(known: &mut BTreeMap<Key, T>, key: &Key, value: T) -> bool {
    match known.get_mut(key) {
        Some(before) if *before == value => false,
        Some(before) => {
            *before = value;
            true
        }
        None => {
            known.insert(key.clone(), value);
            true
        }
    }
}
