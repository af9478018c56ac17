//! Encodes and decodes each resource before it is published, and before a status reports it as in force.
//!
//! Single objects are validated when they are read. This module validates combinations of several objects: a part
//! that a proxy could not decode is removed, so that neither the Service's other routes nor, after a restart, all
//! routes are lost.

use std::collections::{BTreeMap, BTreeSet};

use maglor_config::raw;

use super::facts::{Key, Kind};
use super::published::Owner;
use super::resource::{Endpoint, Inbound, Resource, ResourceId};
use super::{Changes, Index};
use crate::encoding_check;

/// A part of a resource that is not published, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Unusable {
    /// The resource.
    pub id: ResourceId,
    /// Name of the unpublished route in the resource; `None` if the whole resource is not published.
    pub route: Option<String>,
    /// Why the part is not published.
    pub why: String,
}

impl Unusable {
    /// Returns the namespace and name of the resource that defines the route.
    fn route_key(&self) -> Option<Key> {
        let (namespace, rest) = self.route.as_deref()?.split_once('/')?;
        Some(Key::new(namespace, rest.split('/').next()?))
    }
}

/// The unpublished parts, by owner.
pub(super) type Unusables = BTreeMap<Owner, Vec<Unusable>>;

impl Index {
    /// Publishes the current resources of an owner, to the extent that proxies can decode them.
    pub(super) fn publish(
        &mut self,
        owner: Owner,
        resources: BTreeMap<ResourceId, Resource>,
        changes: &mut Changes,
    ) {
        let mut found = Vec::new();
        let before = self.unusable.remove(&owner).unwrap_or_default();
        let mut usable = BTreeMap::new();
        for (id, resource) in resources {
            let confirmed = match self.published.has(&owner, &id, &resource) {
                true => Some(resource),
                false => confirm(&id, resource, &mut found),
            };
            usable.extend(confirmed.map(|resource| (id, resource)));
        }
        self.published.publish(owner.clone(), usable);
        if found != before {
            let routes = found.iter().chain(&before).filter_map(Unusable::route_key);
            let routes: BTreeSet<Key> = routes.collect();
            for key in routes {
                let kinds = [Kind::GrpcRoute, Kind::HttpRoute, Kind::VirtualService];
                let each = kinds.map(|kind| (kind, key.clone()));
                self.dirty.statuses.extend(each);
            }
            let new = found.iter().filter(|one| !before.contains(one));
            changes.unusable.extend(new.cloned());
        }
        if !found.is_empty() {
            self.unusable.insert(owner, found);
        }
    }

    /// Returns why a rule of a route is not published; `None` if all rules are.
    pub(super) fn unusable_route(&self, route: &Key) -> Option<String> {
        let mut all = self.unusable.values().flatten();
        let own = all.find(|one| one.route_key().as_ref() == Some(route))?;
        let name = own.route.as_deref().unwrap_or_default();
        Some(format!(
            "`{name}` cannot be encoded for proxies, which answer its requests with 500: {}",
            own.why
        ))
    }
}

/// Returns the part of a resource that proxies can decode; `None` if there is none.
fn confirm(id: &ResourceId, resource: Resource, found: &mut Vec<Unusable>) -> Option<Resource> {
    let Err(why) = check(id, &resource) else {
        return Some(resource);
    };
    let mut unusable = |route: Option<String>, why: String| {
        found.push(Unusable {
            id: id.clone(),
            route,
            why,
        });
    };
    let rest = match resource {
        Resource::Routes(table) => {
            let parts = usable_routes(*table, &mut |route, why| unusable(Some(route), why));
            Resource::Routes(Box::new(parts))
        }
        Resource::Cluster(cluster) => {
            unusable(None, why);
            Resource::Cluster(Box::new(raw::Cluster {
                name: cluster.name,
                endpoints: cluster.endpoints,
                protocol: cluster.protocol,
                tls: cluster.tls,
                ..raw::Cluster::default()
            }))
        }
        Resource::Endpoints(list) => {
            unusable(None, why);
            let alone = |one: &Endpoint| check(id, &Resource::Endpoints(vec![one.clone()])).is_ok();
            Resource::Endpoints(list.into_iter().filter(alone).collect())
        }
        Resource::Inbound(inbound) => {
            unusable(None, why);
            Resource::Inbound(Box::new(closed(*inbound)))
        }
        Resource::Listener(_) => {
            unusable(None, why);
            return None;
        }
    };
    match check(id, &rest) {
        Ok(()) => Some(rest),
        Err(why) => {
            unusable(None, why);
            None
        }
    }
}

fn check(id: &ResourceId, resource: &Resource) -> Result<(), String> {
    match resource {
        Resource::Cluster(cluster) => encoding_check::cluster(cluster),
        Resource::Endpoints(list) => {
            let list: Vec<_> = list.iter().map(Endpoint::served).collect();
            encoding_check::endpoints(&id.name, &list)
        }
        Resource::Inbound(inbound) => {
            encoding_check::inbound(&id.name, &inbound.described(), &inbound.ahead)
        }
        Resource::Listener(listener) => encoding_check::listener(&id.name, &listener.described()),
        Resource::Routes(table) => encoding_check::routes(table),
    }
    .map(drop)
}

/// Replaces each route that proxies cannot decode with a 500 response to the same requests. A route whose match
/// cannot be decoded is removed.
fn usable_routes(
    table: raw::RouteTable,
    unusable: &mut impl FnMut(String, String),
) -> raw::RouteTable {
    let alone = |host: &raw::VirtualHost, routes: Vec<raw::Route>| {
        let host = raw::VirtualHost {
            routes,
            ..host.clone()
        };
        encoding_check::routes(&raw::RouteTable {
            name: table.name.clone(),
            virtual_hosts: vec![host],
        })
    };
    let mut hosts = Vec::new();
    for host in &table.virtual_hosts {
        let mut routes = Vec::new();
        for route in &host.routes {
            let Err(why) = alone(host, vec![route.clone()]) else {
                routes.push(route.clone());
                continue;
            };
            unusable(route.name.clone().unwrap_or_default(), why);
            let refusing = refusing(route.name.as_deref(), route.r#match.clone());
            if alone(host, vec![refusing.clone()]).is_ok() {
                routes.push(refusing);
            }
        }
        if routes.is_empty() {
            routes.push(refusing(None, None));
        }
        let Err(why) = alone(host, routes.clone()) else {
            hosts.push(raw::VirtualHost {
                routes,
                ..host.clone()
            });
            continue;
        };
        unusable(host.name.clone().unwrap_or_default(), why);
        // Each route is valid, but not all of them together: the longest decodable beginning is kept, and the rest is
        // replaced with a 500 response.
        let last = refusing(Some("unusable"), None);
        let (mut good, mut bad) = (0, routes.len());
        while good + 1 < bad {
            let some = usize::midpoint(good, bad);
            match alone(host, routes[..some].to_vec()) {
                Ok(_) => good = some,
                Err(_) => bad = some,
            }
        }
        routes.truncate(good);
        routes.push(last);
        let rest = raw::VirtualHost {
            name: host.name.clone(),
            domains: host.domains.clone(),
            routes,
            ..raw::VirtualHost::default()
        };
        // If the name of the host itself is invalid, no part is valid.
        if alone(&rest, rest.routes.clone()).is_ok() {
            hosts.push(rest);
        }
    }
    raw::RouteTable {
        virtual_hosts: hosts,
        ..table
    }
}

/// Returns a route with a 500 response for its match.
fn refusing(name: Option<&str>, conditions: Option<raw::RouteMatch>) -> raw::Route {
    raw::Route {
        name: name.map(str::to_owned),
        r#match: conditions,
        direct_response: Some(raw::DirectResponse {
            status: Some(500),
            body: Some("this route cannot be encoded for proxies\n".to_owned()),
            headers: None,
        }),
        ..raw::Route::default()
    }
}

/// Returns an inbound listener that denies all connections, because without valid rules nothing may be allowed.
fn closed(inbound: Inbound) -> Inbound {
    Inbound {
        ports: raw::Pairs::default(),
        authorization: Some(raw::Authorization {
            default: Some(raw::Effect::Deny),
            ..raw::Authorization::default()
        }),
        ahead: Vec::new(),
        ..inbound
    }
}
