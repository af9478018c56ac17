//! The watched objects on which Services with proxies depend, and the Services that each of them affects.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::Value;

use super::kind::Kind;
use super::{FIELD_MANAGER, LABEL, RECORD, target_name};
use crate::graph::Graphs;
use crate::index::facts::Key;
use crate::index::facts::service::PROXY_GROUP;
use crate::reconcile::cache::{self, key};
use crate::reconcile::{Cache, Lookup, Watch, Watches};

/// The label of all objects of proxies.
const PART_OF: &str = "app.kubernetes.io/part-of=maglor";
/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A unit of reconciliation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Unit {
    /// A Service that has or had proxies or a `ProxyService`.
    Service(Key),
    /// All Services to which `ProxyService`s without a `targetRef` apply.
    Survey,
}

/// The caches, by kind.
pub(super) struct Watched {
    caches: BTreeMap<Kind, Box<dyn Lookup>>,
    claims: Cache<DynamicObject>,
    graphs: Arc<Graphs>,
}

impl Watched {
    /// Returns an object.
    pub(super) fn get(&self, kind: Kind, key: &Key) -> Option<Value> {
        self.caches.get(&kind)?.value(key)
    }

    /// Returns the objects with these labels in a namespace, or in all namespaces.
    pub(super) fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Vec<Value> {
        let wanted = |meta: &ObjectMeta| {
            let within = namespace.is_none() || meta.namespace.as_deref() == namespace;
            within && labels.is_none_or(|labels| selects(labels, meta))
        };
        let cache = self.caches.get(&kind);
        cache.map(|cache| cache.values(&wanted)).unwrap_or_default()
    }

    /// Returns whether all pods of a Service have sidecars.
    pub(super) fn is_meshed(&self, service: &Key) -> bool {
        let topology = self.graphs.topology();
        let servers = topology.servers.get(service);
        servers.is_some_and(|servers| servers.meshed)
    }

    /// Returns whether a `ProxyService` without a `targetRef` waits for its deletion.
    pub(super) fn is_any_leaving(&self) -> bool {
        let leaving =
            |claim: &DynamicObject| is_wide(claim) && claim.metadata.deletion_timestamp.is_some();
        !self.claims.filter(leaving).is_empty()
    }
}

/// Evaluates a label selector: names, with or without their values.
fn selects(selector: &str, meta: &ObjectMeta) -> bool {
    let label = |name: &str| meta.labels.as_ref()?.get(name);
    selector.split(',').all(|one| match one.split_once('=') {
        Some((name, value)) => label(name).is_some_and(|label| label == value),
        None => label(one).is_some(),
    })
}

fn is_wide(claim: &DynamicObject) -> bool {
    claim.data["spec"]["targetRef"].is_null()
}

/// The objects that determine which Services another object affects.
#[derive(Clone)]
struct Known {
    claims: Cache<DynamicObject>,
    services: Cache<Service>,
}

impl Known {
    /// Returns the Services, of a namespace or of all, that have a `ProxyService` or created objects.
    fn all(&self, namespace: Option<&str>) -> Vec<Unit> {
        let within =
            |meta: &ObjectMeta| namespace.is_none() || meta.namespace.as_deref() == namespace;
        let claims = self
            .claims
            .filter(|claim| within(&claim.metadata) && !is_wide(claim));
        let claimed = claims.iter().filter_map(|claim| named(claim));
        let made = |service: &Service| within(&service.metadata) && labelled(service).is_some();
        let made = self.services.filter(made);
        let made = made.iter().filter_map(|service| labelled(&**service));
        claimed.chain(made).map(Unit::Service).collect()
    }

    /// Returns a Service if it has a `ProxyService` or created objects, otherwise `None`.
    fn one(&self, of: Key) -> Option<Unit> {
        let target = Key::new(&of.namespace, &target_name(&of.name));
        let target = self.services.get(&target);
        let made = target.is_some_and(|target| labelled(&*target).is_some());
        let claims = |claim: &DynamicObject| named(claim).as_ref() == Some(&of);
        let claimed = || !self.claims.filter(claims).is_empty();
        (made || claimed()).then_some(Unit::Service(of))
    }

    fn of_service(&self, service: &Service) -> Vec<Unit> {
        let of_proxies = self.of_proxies(service);
        if !of_proxies.is_empty() {
            return of_proxies;
        }
        let annotations = service.metadata.annotations.as_ref();
        let touched = annotations.is_some_and(|all| all.contains_key(RECORD));
        let own = match touched {
            true => Some(Unit::Service(key(service))),
            false => self.one(key(service)),
        };
        own.into_iter().collect()
    }

    fn of_slice(&self, slice: &EndpointSlice) -> Vec<Unit> {
        let meta = &slice.metadata;
        let name = meta.labels.as_ref().and_then(|all| all.get(SERVICE_NAME));
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let own = name.and_then(|name| self.one(Key::new(namespace, name)));
        // Kubernetes copies the labels of the Service.
        let target = labelled(slice).map(Unit::Service);
        own.into_iter().chain(target).collect()
    }

    /// Returns the units that an object of proxies affects: its Service, or all Services of a group.
    fn of_proxies<K: Resource>(&self, object: &K) -> Vec<Unit> {
        let meta = object.meta();
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name));
        let own = labelled(object).map(Unit::Service);
        match label(PROXY_GROUP) {
            // A member joins or leaves, so the other members check the shared objects.
            Some(_) => own
                .into_iter()
                .chain(self.all(meta.namespace.as_deref()))
                .collect(),
            None => own.into_iter().collect(),
        }
    }
}

/// Returns the Service that a `ProxyService` names.
fn named(claim: &DynamicObject) -> Option<Key> {
    let name = claim.data["spec"]["targetRef"]["name"].as_str()?;
    Some(Key::new(claim.metadata.namespace.as_deref()?, name))
}

/// Returns the Service for which an object was created.
fn labelled<K: Resource>(object: &K) -> Option<Key> {
    let meta = object.meta();
    let name = meta.labels.as_ref()?.get(LABEL)?;
    Some(Key::new(meta.namespace.as_deref()?, name))
}

/// Returns the units that a `ProxyService` affects. With a `targetRef` these are the named Service and those that may
/// share proxies with it, without one the Services with created objects.
fn of_claim(claim: &DynamicObject, known: Option<&Known>) -> Vec<Unit> {
    let namespace = claim.metadata.namespace.as_deref();
    let all = |namespace| known.map(|known| known.all(namespace)).unwrap_or_default();
    match named(claim) {
        Some(service) => [Unit::Service(service)]
            .into_iter()
            .chain(all(namespace))
            .collect(),
        None => [Unit::Survey].into_iter().chain(all(None)).collect(),
    }
}

/// Removes all managers of a Service's fields except this controller.
fn keep_own_fields(service: &mut Service) {
    if let Some(fields) = &mut service.metadata.managed_fields {
        fields.retain(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    }
}

fn keep_addresses(slice: &mut EndpointSlice) {
    slice.metadata.managed_fields = None;
    for endpoint in &mut slice.endpoints {
        let whole = std::mem::take(endpoint);
        endpoint.addresses = whole.addresses;
        endpoint.conditions = whole.conditions;
    }
}

impl Watched {
    /// Opens the watches.
    pub(super) fn open(client: &Client, watches: &Watches<Unit>, graphs: Arc<Graphs>) -> Self {
        let known = Arc::<OnceLock<Known>>::default();
        let dynamic = |kind: Kind| {
            let resource = kind.resource();
            Watch::<DynamicObject>::of(vec![Api::all_with(client.clone(), &resource)], resource)
        };
        let of = Arc::clone(&known);
        let claims = watches.open(
            dynamic(Kind::ProxyService),
            move |claim| of_claim(claim, of.get()),
            || vec![Unit::Survey],
        );
        let of = Arc::clone(&known);
        let services = watches.open(
            Watch::new(vec![Api::all(client.clone())]).keep(keep_own_fields),
            move |service| {
                of.get()
                    .map(|known| known.of_service(service))
                    .unwrap_or_default()
            },
            Vec::new,
        );
        let all = Known {
            claims: claims.clone(),
            services: services.clone(),
        };
        let _ = known.set(all.clone());
        let of = all.clone();
        let slices = watches.open(
            Watch::new(vec![Api::all(client.clone())]).keep(keep_addresses),
            move |slice| of.of_slice(slice),
            Vec::new,
        );
        let of = all.clone();
        let policies = watches.open(
            dynamic(Kind::TrafficPolicy),
            move |policy| of.of_proxies(policy),
            Vec::new,
        );
        // Whether a namespace is excluded matters only to `ProxyService`s without a `targetRef`.
        let namespaces = watches.open(
            Watch::<Namespace>::new(vec![Api::all(client.clone())]),
            |_| vec![Unit::Survey],
            Vec::new,
        );
        let caches: [(Kind, Box<dyn Lookup>); 9] = [
            (
                Kind::Deployment,
                of_mesh::<Deployment>(client, watches, &all),
            ),
            (Kind::EndpointSlice, Box::new(slices)),
            (
                Kind::HorizontalPodAutoscaler,
                of_mesh::<HorizontalPodAutoscaler>(client, watches, &all),
            ),
            (Kind::Namespace, Box::new(namespaces)),
            (Kind::Pod, of_mesh::<Pod>(client, watches, &all)),
            (Kind::ProxyService, Box::new(claims.clone())),
            (Kind::Service, Box::new(services)),
            (
                Kind::ServiceAccount,
                of_mesh::<ServiceAccount>(client, watches, &all),
            ),
            (Kind::TrafficPolicy, Box::new(policies)),
        ];
        Self {
            caches: caches.into(),
            claims,
            graphs,
        }
    }
}

/// Watches the objects of a kind that belong to the mesh itself.
fn of_mesh<K>(client: &Client, watches: &Watches<Unit>, known: &Known) -> Box<dyn Lookup>
where
    K: cache::Watched + Serialize + Resource<DynamicType = ()>,
{
    let wanted = Watch::<K>::new(vec![Api::all(client.clone())]).labels(PART_OF);
    let of = known.clone();
    Box::new(watches.open(wanted, move |object| of.of_proxies(object), Vec::new))
}
