//! Computes the vertices of the communication graph, and the pods that belong to each.
//!
//! A vertex is a set of pods, named after the Service that has most of them, `NAMESPACE/NAME`. Thus a Service and the
//! Services for its versions, or an additional headless Service, are one vertex, and no pod counts twice. The vertex
//! of pods without a Service, and of proxies that Services share, is named after the owner of the pods.

mod balancing;
mod secured;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::Index;
use super::effective;
use super::facts::service::PROXY_GROUP;
use super::facts::{Amounts, Key};
use super::translate::{endpoints, members, routes};

/// Vertices, pods and Services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The vertices, by name.
    pub vertices: BTreeMap<String, Vertex>,
    /// The vertex of each pod.
    pub pods: BTreeMap<Key, String>,
    /// The node of each pod.
    pub places: BTreeMap<Key, String>,
    /// The node of each endpoint, by the endpoint's address.
    pub addresses: BTreeMap<IpAddr, String>,
    /// The pod of each endpoint, by the endpoint's address and port.
    pub endpoints: BTreeMap<SocketAddr, Key>,
    /// The vertex of each endpoint of a headless Service, by the address at which it is called.
    pub headless: BTreeMap<IpAddr, String>,
    /// The owner of each pod with a sidecar.
    pub makers: BTreeMap<Key, Key>,
    /// The service account of each pod.
    pub accounts: BTreeMap<Key, String>,
    /// The vertex of each Service.
    pub services: BTreeMap<Key, String>,
    /// The serving pods of each Service that has any.
    pub servers: BTreeMap<Key, Servers>,
    /// Services whose requests are divided among versions, by the name of their vertex.
    pub splits: BTreeMap<String, Split>,
    /// Whether sidecars use mutual TLS to all ports of a vertex. Vertices without a Service are not included.
    pub secured: BTreeMap<String, bool>,
    /// The load balancing policy of each vertex whose ports all have the same one.
    pub balancing: BTreeMap<String, String>,
    /// The policies that apply to each vertex.
    pub policies: BTreeMap<String, BTreeSet<Applied>>,
    /// The nodes of the cluster.
    pub nodes: BTreeMap<String, Room>,
}

/// The kind and the name of a policy that applies.
pub type Applied = (&'static str, String);

/// How the requests to a Service are divided among versions.
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
    /// Name of the version's Service in the same namespace, or of the subset.
    pub name: String,
    /// Whether the version is a subset of the Service itself.
    pub subset: bool,
    /// Weight of the version, relative to the others.
    pub weight: u32,
    /// Number of the version's pods.
    pub replicas: u32,
}

/// A vertex: a set of equivalent pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vertex {
    /// The number of pods.
    pub replicas: u32,
    /// Whether any of the pods has a sidecar.
    pub meshed: bool,
    /// Resource requests of a replica: the maximum over all replicas, since they may differ during a rollout.
    pub requests: Amounts,
    /// Resource limits of a replica.
    pub limits: Amounts,
    /// The number of pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// Whether calls to the vertex should stay on the caller's node (`localFirst`).
    pub local_first: bool,
}

/// The serving pods of a Service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Servers {
    /// Number of serving pods.
    pub count: u32,
    /// Whether all serving pods have sidecars that handle their incoming requests.
    pub meshed: bool,
}

/// A node, and its capacity for the pods of vertices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// Allocatable CPU and memory, minus the requests of other pods.
    pub left: Amounts,
    /// Number of vertices' pods that the node accepts; `None` if unknown.
    pub pods: Option<u64>,
    /// Zone of the node; `None` if unknown.
    pub zone: Option<String>,
    /// Whether the node accepts none of the vertices' pods, as far as this is known without checking each pod: the
    /// node is cordoned, not ready, or accepts only pods with a toleration and runs none of the vertices' pods.
    pub closed: bool,
}

impl Index {
    /// Returns the current vertices.
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
        topology.secured = self.secured(&topology.services);
        topology.balancing = self.balancing(&topology.services);
        let meshed = self.workloads.iter().filter(|(_, one)| one.has_sidecar);
        let made = meshed.map(|(pod, one)| (pod.clone(), Key::new(&pod.namespace, &one.owner)));
        topology.makers = made.collect();
        let accounts = self.workloads.iter();
        let accounts = accounts.map(|(pod, one)| (pod.clone(), one.service_account.clone()));
        topology.accounts = accounts.collect();
        let endpoints = self.slices.values().flat_map(|slice| &slice.endpoints);
        let placed = endpoints.filter_map(|one| Some((one.address, one.node.clone()?)));
        topology.addresses = placed.collect();
        for (key, slice) in &self.slices {
            for one in &slice.endpoints {
                let Some(pod) = &one.pod else { continue };
                let pod = Key::new(&key.namespace, pod);
                let ports = slice.ports.iter().map(|(_, port)| *port);
                let addresses = ports.map(|port| SocketAddr::new(one.address, port));
                topology
                    .endpoints
                    .extend(addresses.map(|at| (at, pod.clone())));
            }
        }
        topology.headless = self.called_by_address(&topology.services);
        self.add_vertices(&mut topology);
        self.add_routing(&mut topology);
        self.add_splits(&mut topology, &pods_of);
        self.add_nodes(&mut topology);
        topology.policies = self.policies(&topology);
        topology
    }

    /// Returns the endpoints of headless Services, each with its vertex.
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
            // A pod with two address families has two endpoints.
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

    /// Adds the routing of each vertex, which is that of one of its Services.
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

    /// Adds how requests are divided. Of a Service with several ports, only the first port with a division is added.
    fn add_splits(&self, topology: &mut Topology, pods_of: &BTreeMap<&Key, BTreeSet<Key>>) {
        for (key, service) in &self.services {
            let name = key.to_string();
            // If the vertex is named after another Service, it is unclear whose requests are divided.
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

    /// Returns a version of a Service, given its cluster; `None` if it is in another namespace.
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

    /// Adds the capacities of nodes for the vertices of the mesh; all other pods are assumed to stay.
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
    /// Returns whether all pods of a vertex have a sidecar that handles their incoming requests and therefore reports
    /// them.
    #[must_use]
    pub fn takes(&self, vertex: &str) -> bool {
        let (namespace, name) = vertex.split_once('/').unwrap_or_default();
        let key = Key::new(namespace, name);
        let own = self.services.get(&key).is_some_and(|of| of == vertex);
        own && self.servers.get(&key).is_some_and(|servers| servers.meshed)
    }

    /// Returns the vertex of a cluster of this mesh: `NAME.NAMESPACE.svc.DOMAIN:PORT`, a subset of it, or an endpoint
    /// of a headless Service, `ADDRESS:PORT`. `None` if the cluster does not belong to a Service.
    #[must_use]
    pub fn vertex_of_cluster(&self, cluster: &str) -> Option<String> {
        if let Ok(address) = cluster.parse::<SocketAddr>() {
            return self.headless.get(&address.ip()).cloned();
        }
        let (service, _) = service_of_cluster(cluster)?;
        let known = self.services.get(&service).cloned();
        Some(known.unwrap_or_else(|| service.to_string()))
    }

    /// Returns the service account of a proxy, given its node ID, `NAMESPACE/POD`.
    #[must_use]
    pub fn account_of(&self, proxy: &str) -> Option<&str> {
        let (namespace, pod) = proxy.split_once('/')?;
        let account = self.accounts.get(&Key::new(namespace, pod));
        account.map(String::as_str)
    }

    /// Returns the owner of a proxy's pod, given its node ID, `NAMESPACE/POD`.
    #[must_use]
    pub fn maker_of(&self, proxy: &str) -> Option<&Key> {
        let (namespace, pod) = proxy.split_once('/')?;
        self.makers.get(&Key::new(namespace, pod))
    }

    /// Returns the node of a proxy, given its node ID, `NAMESPACE/POD`.
    #[must_use]
    pub fn node_of(&self, proxy: &str) -> Option<&str> {
        let (namespace, pod) = proxy.split_once('/')?;
        self.places
            .get(&Key::new(namespace, pod))
            .map(|node| &**node)
    }

    /// Returns the vertex of a proxy, given its node ID: `NAMESPACE/POD`, or any other text.
    #[must_use]
    pub fn vertex_of_node(&self, node: &str) -> String {
        let pod = node
            .split_once('/')
            .map(|(namespace, pod)| Key::new(namespace, pod));
        let known = pod.and_then(|pod| self.pods.get(&pod));
        known.cloned().unwrap_or_else(|| node.to_owned())
    }
}

/// Returns the Service of a cluster of this mesh, and the port as text, including the suffix of a subset.
fn service_of_cluster(cluster: &str) -> Option<(Key, &str)> {
    let (host, port) = cluster.split_once(':')?;
    let (labels, _) = host.split_once(".svc.")?;
    // The name of a StatefulSet's pod precedes that of the Service.
    let mut labels = labels.rsplit('.');
    let (namespace, name) = (labels.next()?, labels.next()?);
    Some((Key::new(namespace, name), port))
}

/// Returns the Service and port of a cluster of this mesh, or of a subset; `None` if the cluster does not belong to a
/// Service.
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
