//! What a Service gives: for each port a cluster, its endpoints, its routes, and the listeners under
//! which clients find them.

use std::collections::BTreeMap;

use maglor_balance::Spec;
use maglor_config::raw;

use super::endpoints::{self, Endpoints};
use super::{host, listener, port_name, routes, upstream};
use crate::index::Index;
use crate::index::effective;
use crate::index::facts::{Key, Protocol, Service, ServicePort};
use crate::index::resource::{Listener, Resource, ResourceId, ResourceKind};

/// The resources of a Service; none where there is no such Service.
pub(crate) fn resources(index: &Index, key: &Key) -> BTreeMap<ResourceId, Resource> {
    let mut given = BTreeMap::new();
    let Some(service) = index.services.get(key) else {
        return given;
    };
    for port in &service.ports {
        for (id, resource) in port_resources(index, key, service, port) {
            given.insert(id, resource);
        }
    }
    given
}

fn port_resources(
    index: &Index,
    key: &Key,
    service: &Service,
    port: &ServicePort,
) -> Vec<(ResourceId, Resource)> {
    let name = port_name(index, key, port.port);
    let effective = effective::of(index, key, port.port);
    let endpoints = endpoints::of(index, key, service, port);
    let mut cluster = raw::Cluster {
        name: Some(name.clone()),
        tls: endpoints.tls.clone(),
        ..effective.cluster.clone()
    };
    cluster.protocol.get_or_insert(upstream(port.protocol));
    let mut route = effective.route.clone();
    if service.client_affinity && cluster.policy.is_none() {
        cluster.policy = "maglev".parse::<Spec>().ok();
        if route.hash_policy.is_empty() {
            route.hash_policy.push(raw::HashPolicy {
                source_address: Some(true),
                ..raw::HashPolicy::default()
            });
        }
    }
    let mut given = Vec::new();
    if let Some(external) = &service.external_name {
        cluster.tls = None;
        cluster.endpoints.push(raw::Short(raw::Endpoint {
            address: Some(format!("{external}:{}", port.port)),
            ..raw::Endpoint::default()
        }));
    } else {
        given.push((
            ResourceId::new(ResourceKind::Endpoints, &name),
            Resource::Endpoints(endpoints.list.clone()),
        ));
    }
    if service.headless {
        given.extend(own_names(index, key, port, &cluster, &route, &endpoints));
    }
    let listener = listener(port.protocol, &name);
    if let Listener::Http { .. } = &listener {
        given.extend(routes::tables(index, key, port.port, &name, &route));
    }
    let addresses = service.addresses.iter().map(|address| match address {
        std::net::IpAddr::V4(address) => format!("{address}:{}", port.port),
        std::net::IpAddr::V6(address) => format!("[{address}]:{}", port.port),
    });
    for alias in addresses.chain([name.clone()]) {
        let id = ResourceId::new(ResourceKind::Listener, &alias);
        given.push((id, Resource::Listener(listener.clone())));
    }
    let id = ResourceId::new(ResourceKind::Cluster, &name);
    given.push((id, Resource::Cluster(Box::new(cluster))));
    given
}

/// `db-0.db.shop.svc.cluster.local:5432`: pods of a StatefulSet are called one by one.
fn own_names(
    index: &Index,
    key: &Key,
    port: &ServicePort,
    cluster: &raw::Cluster,
    route: &raw::Route,
    endpoints: &Endpoints,
) -> Vec<(ResourceId, Resource)> {
    let mut given = Vec::new();
    for (hostname, named) in &endpoints.named {
        let name = format!("{hostname}.{}:{}", host(index, key), port.port);
        let cluster = raw::Cluster {
            tls: named.tls.clone(),
            ..cluster.clone()
        };
        given.extend(single(&name, port.protocol, &cluster, route));
        given.push((
            ResourceId::new(ResourceKind::Endpoints, &name),
            Resource::Endpoints(named.list.clone()),
        ));
    }
    given
}

/// A name of its own with a cluster of its own, for what no route is attached to.
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
    let mut given = vec![(
        ResourceId::new(ResourceKind::Cluster, name),
        Resource::Cluster(Box::new(cluster)),
    )];
    if let Listener::Http { .. } = &listener {
        given.push((
            ResourceId::new(ResourceKind::Routes, name),
            Resource::Routes(Box::new(routes::table(
                name,
                vec![routes::forward(name, route)],
            ))),
        ));
    }
    given.push((
        ResourceId::new(ResourceKind::Listener, name),
        Resource::Listener(listener),
    ));
    given
}
