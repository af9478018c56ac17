//! Builds the resources of a Service: for each port a cluster, its endpoints, its routes, and the listeners by which
//! clients find them.

use std::collections::BTreeMap;

use maglor_config::raw;

use super::endpoints::{self, Endpoints};
use super::settings::{Settings, settings};
use super::{host, listener, port_name, routes, subset_name};
use crate::index::Index;
use crate::index::facts::{Key, Protocol, Service, ServicePort};
use crate::index::resource::{Endpoint, Listener, Resource, ResourceId, ResourceKind};

/// Returns the resources of a Service; empty if there is no such Service.
pub(crate) fn resources(index: &Index, key: &Key) -> BTreeMap<ResourceId, Resource> {
    let mut published = BTreeMap::new();
    let Some(service) = index.services.get(key) else {
        return published;
    };
    for port in &service.ports {
        for (id, resource) in port_resources(index, key, service, port) {
            published.insert(id, resource);
        }
    }
    published
}

fn port_resources(
    index: &Index,
    key: &Key,
    service: &Service,
    port: &ServicePort,
) -> Vec<(ResourceId, Resource)> {
    let name = port_name(index, key, port.port);
    let settings = settings(index, key, service, port, None);
    let endpoints = endpoints::of(index, key, service, port, None, settings.local_first);
    let mut cluster = raw::Cluster {
        name: Some(name.clone()),
        tls: endpoints.tls.clone().filter(|_| !settings.plain_text),
        ..settings.cluster.clone()
    };
    let mut published = Vec::new();
    if let Some(external) = &service.external_name {
        cluster.tls = None;
        cluster.endpoints.push(raw::Short(raw::Endpoint {
            address: Some(format!("{external}:{}", port.port)),
            ..raw::Endpoint::default()
        }));
    } else {
        published.extend(endpoint_lists(&name, &endpoints));
        published.extend(subsets(index, key, service, port));
    }
    if service.headless {
        published.extend(own_names(index, key, port, &settings, &endpoints));
        published.extend(by_address(port.protocol, &settings, &endpoints.outside));
    }
    let listener = listener(port.protocol, &name);
    if let Listener::Http { .. } = &listener {
        published.extend(routes::tables(
            index,
            key,
            port.port,
            &name,
            &settings.route,
        ));
    }
    let addresses = service.addresses.iter().map(|address| match address {
        std::net::IpAddr::V4(address) => format!("{address}:{}", port.port),
        std::net::IpAddr::V6(address) => format!("[{address}]:{}", port.port),
    });
    for alias in addresses.chain([name.clone()]) {
        let id = ResourceId::new(ResourceKind::Listener, &alias);
        published.push((id, Resource::Listener(listener.clone())));
    }
    let id = ResourceId::new(ResourceKind::Cluster, &name);
    published.push((id, Resource::Cluster(Box::new(cluster))));
    published
}

/// Returns the endpoints of a cluster, for all clients and for clients in some places.
fn endpoint_lists(name: &str, endpoints: &Endpoints) -> Vec<(ResourceId, Resource)> {
    let list = (None, &endpoints.list);
    let by_place = endpoints.by_place.iter();
    let lists = by_place.map(|(consumer, list)| (Some(consumer.clone()), list));
    let published = std::iter::once(list).chain(lists).map(|(consumer, list)| {
        let id = ResourceId {
            consumer,
            ..ResourceId::new(ResourceKind::Endpoints, name)
        };
        (id, Resource::Endpoints(list.clone()))
    });
    published.collect()
}

/// Returns a cluster for each subset of the pods.
fn subsets(
    index: &Index,
    key: &Key,
    service: &Service,
    port: &ServicePort,
) -> Vec<(ResourceId, Resource)> {
    let mut published = Vec::new();
    for (subset, labels) in index.subsets(key) {
        let name = subset_name(&port_name(index, key, port.port), &subset);
        let settings = settings(index, key, service, port, Some(&subset));
        let local_first = settings.local_first;
        let endpoints = endpoints::of(index, key, service, port, Some(&labels), local_first);
        let cluster = raw::Cluster {
            name: Some(name.clone()),
            tls: endpoints.tls.clone().filter(|_| !settings.plain_text),
            ..settings.cluster
        };
        published.extend(endpoint_lists(&name, &endpoints));
        let id = ResourceId::new(ResourceKind::Cluster, &name);
        published.push((id, Resource::Cluster(Box::new(cluster))));
    }
    published
}

/// Returns the resources of a StatefulSet's pods, which are called by their own names:
/// `db-0.db.shop.svc.cluster.local:5432`.
fn own_names(
    index: &Index,
    key: &Key,
    port: &ServicePort,
    settings: &Settings,
    endpoints: &Endpoints,
) -> Vec<(ResourceId, Resource)> {
    let mut published = Vec::new();
    for (hostname, named) in &endpoints.named {
        let name = format!("{hostname}.{}:{}", host(index, key), port.port);
        let cluster = raw::Cluster {
            tls: named.tls.clone().filter(|_| !settings.plain_text),
            ..settings.cluster.clone()
        };
        published.extend(single(&name, port.protocol, &cluster, &settings.route));
        published.push((
            ResourceId::new(ResourceKind::Endpoints, &name),
            Resource::Endpoints(named.list.clone()),
        ));
    }
    published
}

/// Returns the resources of a headless Service's endpoints, which are called by their addresses: `10.1.0.7:5432`.
/// They declare the protocol and make policies apply, even to pods without a sidecar. The resources of pods with
/// sidecars are more detailed (`inbound`).
fn by_address(
    protocol: Protocol,
    settings: &Settings,
    endpoints: &[Endpoint],
) -> Vec<(ResourceId, Resource)> {
    let mut published = Vec::new();
    for endpoint in endpoints {
        let Some(name) = endpoint.described.address.as_deref() else {
            continue;
        };
        published.extend(single(name, protocol, &settings.cluster, &settings.route));
        let alone = raw::Endpoint {
            address: Some(name.to_owned()),
            ..raw::Endpoint::default()
        };
        published.push((
            ResourceId::new(ResourceKind::Endpoints, name),
            Resource::Endpoints(vec![Endpoint {
                described: alone,
                draining: false,
            }]),
        ));
    }
    published
}

/// Returns a listener with a separate cluster, for a name without attached routes.
pub(crate) fn single(
    name: &str,
    protocol: Protocol,
    cluster: &raw::Cluster,
    route: &raw::Route,
) -> Vec<(ResourceId, Resource)> {
    let cluster = raw::Cluster {
        name: Some(name.to_owned()),
        ..cluster.clone()
    };
    let listener = listener(protocol, name);
    let mut published = vec![(
        ResourceId::new(ResourceKind::Cluster, name),
        Resource::Cluster(Box::new(cluster)),
    )];
    if let Listener::Http { .. } = &listener {
        published.push((
            ResourceId::new(ResourceKind::Routes, name),
            Resource::Routes(Box::new(routes::table(
                name,
                vec![routes::forward(name, route)],
            ))),
        ));
    }
    published.push((
        ResourceId::new(ResourceKind::Listener, name),
        Resource::Listener(listener),
    ));
    published
}
