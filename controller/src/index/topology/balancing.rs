//! Determines how each vertex is balanced, and which policies set it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Applied, Index, Key, Topology, port_of_cluster};
use crate::index::effective::{self, Level};
use crate::index::resource::Resource;

impl Index {
    /// Returns the load balancing policy of each vertex of a Service, as published to clients; none for a vertex whose
    /// ports differ.
    pub(super) fn balancing(&self, vertices: &BTreeMap<Key, String>) -> BTreeMap<String, String> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (id, resource) in self.resources() {
            let Resource::Cluster(cluster) = resource else {
                continue;
            };
            let service = port_of_cluster(&id.name).map(|(service, _)| service);
            if let Some(vertex) = service.and_then(|service| vertices.get(&service)) {
                let policy = cluster.policy.clone().unwrap_or_default().to_string();
                found.entry(vertex.clone()).or_default().insert(policy);
            }
        }
        let single = found
            .into_iter()
            .filter(|(_, policies)| policies.len() == 1);
        let single =
            single.filter_map(|(vertex, policies)| Some((vertex, policies.into_iter().next()?)));
        single.collect()
    }

    /// Returns the kinds and names of the policies that apply to any port or pod of a vertex. Pods of the same owner are
    /// assumed to have the same labels.
    pub(super) fn policies(&self, topology: &Topology) -> BTreeMap<String, BTreeSet<Applied>> {
        let mut found: BTreeMap<String, BTreeSet<Applied>> = BTreeMap::new();
        for (key, service) in &self.services {
            let Some(vertex) = topology.services.get(key) else {
                continue;
            };
            let policies = found.entry(vertex.clone()).or_default();
            for port in &service.ports {
                let levels = Level::ALL.into_iter();
                let winners = levels.filter_map(|at| effective::winner(self, key, port.port, at));
                policies.extend(winners.map(|(name, _)| ("TrafficPolicy", name.to_string())));
            }
        }
        let mut seen = BTreeSet::new();
        for (pod, vertex) in &topology.pods {
            let Some(workload) = self.workloads.get(pod) else {
                continue;
            };
            if !workload.has_sidecar || !seen.insert((vertex, &workload.owner)) {
                continue;
            }
            let policies = self.in_namespace(&self.authorization, &pod.namespace);
            let selected = policies.filter(|(_, policy)| {
                let spec = policy.spec.value.as_ref();
                spec.is_some_and(|spec| {
                    let selector = spec.selector.as_ref();
                    selector.is_none_or(|selector| selector.selects(&workload.labels))
                })
            });
            let selected = selected.map(|(name, _)| ("AuthorizationPolicy", name.to_string()));
            found.entry(vertex.clone()).or_default().extend(selected);
        }
        found
    }
}
