//! Determines which vertices are called by mutual TLS.

use std::collections::BTreeMap;

use super::{Index, Key, port_of_cluster};
use crate::index::resource::Resource;

impl Index {
    /// Returns for each vertex of a Service whether sidecars use mutual TLS to all of its ports, according to the
    /// published resources.
    pub(super) fn secured(&self, vertices: &BTreeMap<Key, String>) -> BTreeMap<String, bool> {
        let mut secured = BTreeMap::new();
        for (id, resource) in self.resources() {
            let Resource::Cluster(cluster) = resource else {
                continue;
            };
            let service = port_of_cluster(&id.name).map(|(service, _)| service);
            if let Some(vertex) = service.and_then(|service| vertices.get(&service)) {
                *secured.entry(vertex.clone()).or_insert(true) &= cluster.tls.is_some();
            }
        }
        secured
    }
}
