//! From the resources of a cluster to the resources of xDS: pure, incremental, in any order.
//!
//! Objects come by [`Index::apply`], [`Index::delete`] and [`Index::reset`]; each marks what depends on
//! it, and [`Index::changes`] recomputes only that and returns the differences. What is published
//! depends on the objects only, not on the order in which they came; a property test compares with an
//! index from scratch. The one exception is meant: of a policy of the mesh's own that can no longer be used the last
//! version stays in force, which its status records for replicas that start.
//!
//! ```text
//! object ──facts──► stores ──links──► dirty Services, workloads ──build──► resources ──► changes
//!                                  └► dirty resources            ──status──► conditions
//! ```

mod build;
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

/// Trust domain and DNS domain where `MeshConfig` says nothing.
const DOMAIN: &str = "cluster.local";

/// All that is known of a cluster.
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
    /// From which nodes Services are called, in proportion.
    callers: BTreeMap<Key, BTreeMap<String, u32>>,
    /// A field of `AuthorizationPolicy`s that the API server does not store.
    pruned: Option<String>,
    /// Which ports of Services are called by the pods of whom, by what has made them.
    called: Called,
    published: Published,
    unusable: confirm::Unusables,
    statuses: BTreeMap<(Kind, Key), Status>,
}

/// Ports of Services, by the Deployment (or whatever else has made them) of the pods that call them.
pub type Called = BTreeMap<Key, BTreeSet<(Key, u16)>>;

/// What has to be computed again.
#[derive(Debug, Default)]
struct Dirty {
    gateways: BTreeSet<Key>,
    services: BTreeSet<Key>,
    workloads: BTreeSet<Key>,
    statuses: BTreeSet<(Kind, Key)>,
}

/// What is different since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Resources, those that others refer to first: clusters, endpoints, then routes and listeners.
    pub resources: Vec<Change>,
    /// Statuses that resources are to have; `None`: theirs is not the mesh's to say any more.
    pub statuses: Vec<(Kind, Key, Option<Status>)>,
    /// What is not published because proxies could not read it, and was not reported before.
    pub unusable: Vec<Unusable>,
    /// Where pods with proxies run now, those that only call among them; `None`: they are gone.
    pub places: Vec<(Key, Option<Place>)>,
}

impl Index {
    /// Takes a resource that is new, or may have changed.
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

    /// Forgets a resource that is gone.
    pub fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::AuthorizationPolicy => {
                self.authorization.remove(key);
                self.invalidate_workloads(&key.namespace);
            }
            Kind::DestinationRule
            | Kind::IstioAuthorizationPolicy
            | Kind::PeerAuthentication
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

    /// Takes all resources of a kind that there are, and forgets the others; of those that are `unread`
    /// it keeps what it knows.
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

    /// Says which field of `AuthorizationPolicy`s the API server does not store, if there is one: policies that are
    /// written from now on may lack it.
    pub fn set_pruned(&mut self, field: Option<String>) {
        self.pruned = field;
    }

    /// Says from which nodes Services are called, in proportion; of a Service that is not named nothing is
    /// known.
    pub fn set_callers(&mut self, callers: BTreeMap<Key, BTreeMap<String, u32>>) {
        let before = std::mem::replace(&mut self.callers, callers);
        let all = before.keys().chain(self.callers.keys());
        let differ = all.filter(|key| before.get(*key) != self.callers.get(*key));
        let differ: Vec<Key> = differ.cloned().collect();
        self.dirty.services.extend(differ);
    }

    /// Says what is called by whose pods: their proxies are to ask for it before it is called again.
    pub fn set_called(&mut self, called: Called) {
        let before = std::mem::replace(&mut self.called, called);
        let differs = |maker: &Key| before.get(maker) != self.called.get(maker);
        let pods = self.workloads.iter().filter(|(pod, workload)| {
            workload.has_sidecar && differs(&Key::new(&pod.namespace, &workload.owner))
        });
        let pods: Vec<Key> = pods.map(|(pod, _)| pod.clone()).collect();
        self.dirty.workloads.extend(pods);
    }

    /// What is different since the last call.
    pub fn changes(&mut self) -> Changes {
        let dirty = std::mem::take(&mut self.dirty);
        let mut changes = Changes::default();
        if self.published.is_empty() {
            let shared = build::shared().into_iter().collect();
            self.publish(Owner::Mesh, shared, &mut changes);
        }
        for key in dirty.services {
            let resources = build::service::resources(self, &key);
            self.publish(Owner::Service(key), resources, &mut changes);
        }
        for key in dirty.gateways {
            let resources = build::gateway::resources(self, &key);
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
            let resources = build::inbound::resources(self, &key);
            self.publish(Owner::Workload(key), resources, &mut changes);
        }
        changes.resources = self.published.changes();
        // Make before break: what is referred to comes first and goes last.
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
        // What cannot be published is known by now.
        statuses.append(&mut self.dirty.statuses);
        for (kind, key) in statuses {
            let status = status::of(self, kind, &key);
            let id = (kind, key);
            match status {
                None => {
                    if let Some(before) = self.statuses.remove(&id) {
                        // A route that is still there says no more of what it was attached to.
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

    /// All resources that have been given and hold.
    pub fn resources(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.published.resources()
    }

    /// All statuses that have been given and hold.
    pub fn statuses(&self) -> impl Iterator<Item = (Kind, &Key, &Status)> {
        self.statuses
            .iter()
            .map(|((kind, key), status)| (*kind, key, status))
    }

    /// The SPIFFE ID of a service account.
    #[must_use]
    pub fn identity(&self, namespace: &str, account: &str) -> String {
        format!(
            "spiffe://{}/ns/{namespace}/sa/{account}",
            self.trust_domain()
        )
    }

    /// The trust domain of the mesh.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let spec = self.mesh_spec();
        spec.and_then(|spec| spec.trust_domain.as_deref())
            .unwrap_or(DOMAIN)
    }

    /// Where a pod with a proxy runs: what is near is a question of who calls, whether or not it can be called.
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

    /// Those of a namespace, by name.
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

    /// The names of those of a namespace, for what then changes the index.
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
            Kind::TrafficPolicy => of(&self.traffic),
            Kind::VirtualService => routes(RouteKind::Istio),
        }
    }
}

/// Puts what is known under a key, and says whether that is another than before.
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
