//! The vertices of the communication graph, and the pods that belong to each.
//!
//! A vertex is a set of pods, called by the Service that has most of them, `NAMESPACE/NAME`. So a Service
//! and one for its versions, or a headless one beside it, are one vertex, and no pod counts twice. Pods
//! that are behind no Service are called by what made them; so are proxies that Services share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::Index;
use super::build::{endpoints, members, routes};
use super::effective;
use super::facts::service::PROXY_GROUP;
use super::facts::{Amounts, Key};

/// Vertices, pods and Services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The vertices, by name.
    pub vertices: BTreeMap<String, Vertex>,
    /// The vertex of a pod.
    pub pods: BTreeMap<Key, String>,
    /// The node of a pod.
    pub places: BTreeMap<Key, String>,
    /// The node of an endpoint.
    pub addresses: BTreeMap<IpAddr, String>,
    /// The vertex of an endpoint that is called by its address: of a headless Service.
    pub headless: BTreeMap<IpAddr, String>,
    /// What has made a pod with a sidecar.
    pub makers: BTreeMap<Key, Key>,
    /// The service account of a pod.
    pub accounts: BTreeMap<Key, String>,
    /// The vertex of a Service.
    pub services: BTreeMap<Key, String>,
    /// Who serves behind a Service, where anybody does.
    pub servers: BTreeMap<Key, Servers>,
    /// Services whose requests are divided among versions, by the name of their vertex: which is theirs.
    pub splits: BTreeMap<String, Split>,
    /// The nodes of the cluster.
    pub nodes: BTreeMap<String, Room>,
}

/// How the requests to a Service are divided.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Split {
    /// The Service's port.
    pub port: u16,
    /// The versions, by their clusters.
    pub versions: BTreeMap<String, Version>,
}

/// A version of a Service.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Version {
    /// Its Service, of the same namespace, or the part of the Service that is divided.
    pub name: String,
    /// It is a part (`subset`) of the Service itself.
    pub subset: bool,
    /// Its share, relative to the others'.
    pub weight: u32,
    /// Its pods.
    pub replicas: u32,
}

/// A vertex: pods that do the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vertex {
    /// How many pods.
    pub replicas: u32,
    /// Whether one of them has a sidecar.
    pub meshed: bool,
    /// What a replica is sure to get: the most of any, while they are replaced by others.
    pub requests: Amounts,
    /// What a replica gets at most.
    pub limits: Amounts,
    /// How many run on which node.
    pub nodes: BTreeMap<String, u32>,
    /// Whether calls stay on their node where they can (`localFirst`).
    pub local_first: bool,
}

/// The pods that serve behind a Service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Servers {
    /// How many.
    pub count: u32,
    /// Whether all of them have sidecars that let their requests in.
    pub meshed: bool,
}

/// A node, and what of it is not taken by others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// What it has for the vertices' pods: what is allocatable, less what other pods request.
    pub left: Amounts,
    /// How many of the vertices' pods it takes.
    pub pods: Option<u64>,
    /// Where it is.
    pub zone: Option<String>,
    /// No pod of theirs is started there as far as known without looking at the pod: it is cordoned, not ready, or
    /// takes only pods that tolerate something, and none of theirs is there.
    pub closed: bool,
}

impl Index {
    /// The vertices as they are now.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        let pods_of: BTreeMap<&Key, BTreeSet<Key>> = self
            .services
            .keys()
            .map(|service| (service, endpoints::pods(self, service)))
            .collect();
        let mut best: BTreeMap<&Key, (usize, Reverse<&Key>)> = BTreeMap::new();
        for (service, pods) in &pods_of {
            let rank = (pods.len(), Reverse(*service));
            let shared = |pod: &&Key| {
                let workload = self.workloads.get(*pod);
                workload.is_some_and(|one| one.labels.contains_key(PROXY_GROUP))
            };
            for pod in pods.iter().filter(|pod| !shared(pod)) {
                let best = best.entry(pod).or_insert(rank);
                *best = rank.max(*best);
            }
        }
        for (pod, (_, service)) in &best {
            topology.pods.insert((*pod).clone(), service.0.to_string());
        }
        for (pod, workload) in &self.workloads {
            if workload.has_sidecar && !workload.has_ended && !topology.pods.contains_key(pod) {
                let name = Key::new(&pod.namespace, &workload.owner).to_string();
                topology.pods.insert(pod.clone(), name);
            }
        }
        for (service, pods) in &pods_of {
            let vertex = most_common(pods.iter().filter_map(|pod| topology.pods.get(pod)));
            let vertex = vertex.map_or_else(|| service.to_string(), str::to_owned);
            topology.services.insert((*service).clone(), vertex);
        }
        let servers = self.services.keys().filter_map(|service| {
            let servers = self.servers(service)?;
            Some((service.clone(), servers))
        });
        topology.servers = servers.collect();
        let meshed = self.workloads.iter().filter(|(_, one)| one.has_sidecar);
        let made = meshed.map(|(pod, one)| (pod.clone(), Key::new(&pod.namespace, &one.owner)));
        topology.makers = made.collect();
        let accounts = self.workloads.iter();
        let accounts = accounts.map(|(pod, one)| (pod.clone(), one.service_account.clone()));
        topology.accounts = accounts.collect();
        let endpoints = self.slices.values().flat_map(|slice| &slice.endpoints);
        let placed = endpoints.filter_map(|one| Some((one.address, one.node.clone()?)));
        topology.addresses = placed.collect();
        topology.headless = self.called_by_address(&topology.services);
        self.add_vertices(&mut topology);
        self.add_routing(&mut topology);
        self.add_splits(&mut topology, &pods_of);
        self.add_nodes(&mut topology);
        topology
    }

    /// The endpoints of headless Services, with the vertices of these.
    fn called_by_address(&self, vertices: &BTreeMap<Key, String>) -> BTreeMap<IpAddr, String> {
        let headless = self.services.iter().filter(|(_, one)| one.headless);
        let each = headless.flat_map(|(key, _)| {
            let vertex = vertices.get(key);
            let members = members::of(self, key);
            members.filter_map(move |one| Some((one.endpoint.address, vertex?.clone())))
        });
        each.collect()
    }

    fn servers(&self, service: &Key) -> Option<Servers> {
        let mut pods = BTreeSet::new();
        let mut meshed = true;
        for member in members::of(self, service).filter(|one| !one.draining) {
            let Some(pod) = member.pod else { continue };
            // Of one with two address families there are two.
            pods.insert(&member.endpoint.pod);
            meshed &= pod.injected;
        }
        let count = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        (count > 0).then_some(Servers { count, meshed })
    }

    fn add_vertices(&self, topology: &mut Topology) {
        for (pod, name) in &topology.pods {
            let vertex = topology.vertices.entry(name.clone()).or_default();
            vertex.replicas += 1;
            let Some(workload) = self.workloads.get(pod) else {
                continue;
            };
            vertex.meshed |= workload.has_sidecar;
            vertex.requests = most(vertex.requests, workload.requests);
            vertex.limits = most(vertex.limits, workload.limits);
            if let Some(node) = &workload.node {
                *vertex.nodes.entry(node.clone()).or_default() += 1;
                topology.places.insert(pod.clone(), node.clone());
            }
        }
    }

    /// A vertex is called as one of its Services is.
    fn add_routing(&self, topology: &mut Topology) {
        for (key, service) in &self.services {
            let near = |port: u16| effective::of(self, key, port, None).local_first.is_some();
            let vertex = topology.services.get(key);
            let vertex = vertex.and_then(|name| topology.vertices.get_mut(name));
            if let Some(vertex) = vertex {
                vertex.local_first |= service.ports.iter().any(|one| near(one.port));
            }
        }
    }

    /// Of a Service with several ports it is the first one that is divided.
    fn add_splits(&self, topology: &mut Topology, pods_of: &BTreeMap<&Key, BTreeSet<Key>>) {
        for (key, service) in &self.services {
            let name = key.to_string();
            // Only where the vertex is the Service's own is it clear whose requests are divided.
            if topology.services.get(key) != Some(&name) {
                continue;
            }
            let each = service.ports.iter().map(|one| {
                let divided = routes::divided(self, key, one.port);
                let versions = divided.into_iter().map(|(cluster, weight)| {
                    let version = self.version(key, &cluster, weight, pods_of)?;
                    Some((cluster, version))
                });
                let versions: Option<BTreeMap<String, Version>> = versions.collect();
                let port = one.port;
                versions.map(|versions| Split { port, versions })
            });
            let mut each = each.flatten().filter(|split| split.versions.len() > 1);
            if let Some(split) = each.next() {
                topology.splits.insert(name, split);
            }
        }
    }

    /// A version of a Service by its cluster; `None` where it is in another namespace.
    fn version(
        &self,
        of: &Key,
        cluster: &str,
        weight: u32,
        pods_of: &BTreeMap<&Key, BTreeSet<Key>>,
    ) -> Option<Version> {
        let (service, port) = service_of_cluster(cluster)?;
        let subset = port.split_once('/').map(|(_, subset)| subset);
        let name = match subset {
            Some(subset) if service == *of => subset.to_owned(),
            None if service.namespace == of.namespace => service.name.clone(),
            _ => return None,
        };
        let labels = subset.map(|subset| self.subsets(&service).remove(subset).unwrap_or_default());
        let is_one = |pod: &&Key| {
            labels.as_ref().is_none_or(|labels| {
                let own = self.workloads.get(*pod).map(|one| &one.labels);
                own.is_some_and(|own| {
                    labels
                        .iter()
                        .all(|(name, value)| own.get(name) == Some(value))
                })
            })
        };
        let pods = pods_of.get(&service).into_iter().flatten().filter(is_one);
        Some(Version {
            name,
            subset: subset.is_some(),
            weight,
            replicas: u32::try_from(pods.count()).unwrap_or(u32::MAX),
        })
    }

    /// What nodes have for the vertices that the mesh knows; all else stays where it is.
    fn add_nodes(&self, topology: &mut Topology) {
        for (key, node) in &self.nodes {
            let mut meshed = topology.vertices.values().filter(|one| one.meshed);
            let mut runs = || meshed.any(|one| one.nodes.contains_key(&key.name));
            let room = Room {
                left: node.allocatable,
                pods: node.pods,
                zone: node.zone.clone(),
                closed: node.closed || (node.tainted && !runs()),
            };
            topology.nodes.insert(key.name.clone(), room);
        }
        for (pod, workload) in &self.workloads {
            let vertex = topology.pods.get(pod);
            let vertex = vertex.and_then(|name| topology.vertices.get(name));
            if workload.has_ended || vertex.is_some_and(|vertex| vertex.meshed) {
                continue;
            }
            let node = workload.node.as_ref();
            if let Some(room) = node.and_then(|node| topology.nodes.get_mut(node)) {
                let less = |have: Option<u64>, taken: Option<u64>| {
                    have.map(|have| have.saturating_sub(taken.unwrap_or(0)))
                };
                let taken = workload.requests;
                room.left.cpu_millis = less(room.left.cpu_millis, taken.cpu_millis);
                room.left.memory_mib = less(room.left.memory_mib, taken.memory_mib);
                room.pods = less(room.pods, Some(1));
            }
        }
    }
}

impl Topology {
    /// Whether each pod of a vertex has a sidecar that lets its requests in, and so says what it takes.
    #[must_use]
    pub fn takes(&self, vertex: &str) -> bool {
        let (namespace, name) = vertex.split_once('/').unwrap_or_default();
        let key = Key::new(namespace, name);
        let own = self.services.get(&key).is_some_and(|of| of == vertex);
        own && self.servers.get(&key).is_some_and(|servers| servers.meshed)
    }

    /// The vertex of a cluster of ours, `NAME.NAMESPACE.svc.DOMAIN:PORT`, or of a part of one, or of an endpoint of a
    /// headless Service, `ADDRESS:PORT`; `None` where it is no Service's.
    #[must_use]
    pub fn vertex_of_cluster(&self, cluster: &str) -> Option<String> {
        if let Ok(address) = cluster.parse::<SocketAddr>() {
            return self.headless.get(&address.ip()).cloned();
        }
        let (service, _) = service_of_cluster(cluster)?;
        let known = self.services.get(&service).cloned();
        Some(known.unwrap_or_else(|| service.to_string()))
    }

    /// The service account of a proxy that calls itself so: `NAMESPACE/POD`.
    #[must_use]
    pub fn account_of(&self, proxy: &str) -> Option<&str> {
        let (namespace, pod) = proxy.split_once('/')?;
        let account = self.accounts.get(&Key::new(namespace, pod));
        account.map(String::as_str)
    }

    /// What has made the pod of a proxy that calls itself so: `NAMESPACE/POD`.
    #[must_use]
    pub fn maker_of(&self, proxy: &str) -> Option<&Key> {
        let (namespace, pod) = proxy.split_once('/')?;
        self.makers.get(&Key::new(namespace, pod))
    }

    /// The node of a proxy that calls itself so: `NAMESPACE/POD`.
    #[must_use]
    pub fn node_of(&self, proxy: &str) -> Option<&str> {
        let (namespace, pod) = proxy.split_once('/')?;
        self.places
            .get(&Key::new(namespace, pod))
            .map(|node| &**node)
    }

    /// The vertex of a proxy that calls itself so: `NAMESPACE/POD`, or anything.
    #[must_use]
    pub fn vertex_of_node(&self, node: &str) -> String {
        let pod = node
            .split_once('/')
            .map(|(namespace, pod)| Key::new(namespace, pod));
        let known = pod.and_then(|pod| self.pods.get(&pod));
        known.cloned().unwrap_or_else(|| node.to_owned())
    }
}

/// The Service of a cluster of ours, and its port as text, with the part behind it.
fn service_of_cluster(cluster: &str) -> Option<(Key, &str)> {
    let (host, port) = cluster.split_once(':')?;
    let (labels, _) = host.split_once(".svc.")?;
    // A pod of a StatefulSet has a name of its own in front.
    let mut labels = labels.rsplit('.');
    let (namespace, name) = (labels.next()?, labels.next()?);
    Some((Key::new(namespace, name), port))
}

/// The Service and the port of a cluster of ours, or of a part of one; `None` where it is no Service's.
#[must_use]
pub fn port_of_cluster(cluster: &str) -> Option<(Key, u16)> {
    let (service, port) = service_of_cluster(cluster)?;
    let port = port.split_once('/').map_or(port, |(port, _)| port);
    Some((service, port.parse().ok()?))
}

fn most_common<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(name, count)| (*count, Reverse(*name)));
    most.map(|(name, _)| name)
}

fn most(one: Amounts, other: Amounts) -> Amounts {
    Amounts {
        cpu_millis: one.cpu_millis.max(other.cpu_millis),
        memory_mib: one.memory_mib.max(other.memory_mib),
    }
}

#[cfg(test)]
mod tests;
