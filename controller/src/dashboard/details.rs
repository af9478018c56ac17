//! A service in detail: its endpoints with their true queues, and what is published for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::dashboard::page::{Details, Endpoint, Proxy};
use maglor_xds::Kind;
use serde_json::Value;

use super::views::signals;
use crate::graph::parts::Part;
use crate::index::topology::Topology;
use crate::resource_server::Table;

/// Maximum number of endpoints of a service.
const MOST: usize = 500;

/// Returns the details of a vertex.
pub(super) fn of(vertex: &str, topology: &Topology, table: &Table, parts: &[Part]) -> Details {
    let reports: BTreeMap<&str, &Part> = parts
        .iter()
        .filter(|part| part.taken)
        .map(|part| (&*part.proxy, part))
        .collect();
    let mut details = Details::default();
    for (_, resource) in published(Kind::Endpoints, vertex, topology, table) {
        let list = resource.as_array().map(Vec::as_slice).unwrap_or_default();
        for one in list {
            let endpoint = endpoint(one, topology, &reports);
            let known = details
                .endpoints
                .iter()
                .any(|own| own.address == endpoint.address);
            // Several ports of a Service may lead to the same port of a pod.
            if !known && details.endpoints.len() < MOST {
                details.endpoints.push(endpoint);
            }
        }
    }
    details
        .endpoints
        .sort_by(|one, other| (&one.pod, &one.address).cmp(&(&other.pod, &other.address)));
    details.routes = published(Kind::Routes, vertex, topology, table);
    details.clusters = published(Kind::Cluster, vertex, topology, table);
    let policies = topology.policies.get(vertex);
    details.policies = policies.map(|policies| {
        let policies = policies.iter();
        policies
            .map(|(kind, name)| ((*kind).to_owned(), name.clone()))
            .collect()
    });
    let pods = topology
        .pods
        .iter()
        .filter(|(pod, of)| *of == vertex && topology.makers.contains_key(pod));
    details.proxies = pods
        .map(|(pod, _)| {
            let pod = pod.to_string();
            let reported = parts.iter().filter(|part| part.proxy == pod);
            let memory_bytes = reported.clone().find_map(|part| part.memory_bytes);
            let age = reported.map(|part| part.age_seconds).min_by(f64::total_cmp);
            Proxy {
                node: topology.node_of(&pod).map(str::to_owned),
                pod,
                memory_bytes,
                age: age.map(|age| Duration::from_secs_f64(age.max(0.0))),
            }
        })
        .take(MOST)
        .collect();
    details
}

/// Returns the published resources of a kind for a vertex, in the form of the configuration.
fn published(kind: Kind, vertex: &str, topology: &Topology, table: &Table) -> Vec<(String, Value)> {
    let names = table.names(kind);
    let mut found: Vec<(String, Value)> = names
        .iter()
        .filter(|name| topology.vertex_of_cluster(name).as_deref() == Some(vertex))
        .filter_map(|name| {
            // A resource that cannot be decoded is a bug of the encoder, which the log of its publication has.
            let mut resource = table.resource(kind, name).ok()??;
            Some((name.to_string(), resource["resource"].take()))
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn endpoint(one: &Value, topology: &Topology, reports: &BTreeMap<&str, &Part>) -> Endpoint {
    let address = one["address"].as_str().unwrap_or_default();
    let at = address.parse::<SocketAddr>().ok();
    let pod = at.and_then(|at| topology.endpoints.get(&at));
    let pod = pod.map(ToString::to_string);
    let node = pod
        .as_ref()
        .and_then(|pod| topology.node_of(pod).map(str::to_owned));
    let node = node.or_else(|| topology.addresses.get(&at?.ip()).cloned());
    let report = pod.as_ref().and_then(|pod| reports.get(&**pod));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Endpoint {
        address: address.to_owned(),
        node,
        zone: text(&one["zone"]),
        health: match one["health"].as_str() {
            Some("draining") => "draining",
            Some("unhealthy") => "unhealthy",
            _ => "healthy",
        },
        weight: one["weight"]
            .as_u64()
            .and_then(|weight| u32::try_from(weight).ok())
            .unwrap_or(1),
        signals: report.map(|part| signals(&part.edge)),
        age: report.map(|part| Duration::from_secs_f64(part.age_seconds.max(0.0))),
        pod,
    }
}
