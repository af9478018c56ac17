//! A placement as affinities of pods for Kubernetes' own scheduler, as in the paper (§3.4), "in terms of existing
//! node/pod affinity and anti-affinity rules". The affinities are preferred and not required, so replicas that do not
//! fit run elsewhere. The scheduler weighs them against its other preferences, for example to spread the replicas of
//! a Service, so the actual placement of pods may differ.

use maglor_service_graph::{Graph, Nodes, Placement};
use serde_json::{Value, json};

/// The topology key of a single node.
const NODE: &str = "kubernetes.io/hostname";
/// Maximum weight of a preference in Kubernetes.
const MOST: f64 = 100.0;

/// Returns Deployments that contain only affinities, one for each service that is not pinned, as YAML documents.
/// `label` is the key of the label that identifies a service's pods.
pub(super) fn documents(
    graph: &Graph,
    nodes: &Nodes,
    placement: &Placement,
    label: &str,
) -> String {
    let one = |service: usize| {
        let document = deployment(graph, nodes, placement, (service, label));
        format!(
            "---\n{}",
            maglor_manifests::inject::yaml::to_string(&document).unwrap_or_default()
        )
    };
    let services = graph.services().iter().enumerate();
    let moving = services.filter(|(_, service)| !service.pinned);
    moving.map(|(index, _)| one(index)).collect()
}

fn deployment(
    graph: &Graph,
    nodes: &Nodes,
    placement: &Placement,
    (service, label): (usize, &str),
) -> Value {
    let (namespace, name) = names(&graph.services()[service].name);
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let mut affinity = json!({"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": to_nodes(nodes, placement.service(service)),
    }});
    let near = to_neighbours(graph, placement, (service, label));
    if !near.is_empty() {
        affinity["podAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": near});
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": {"spec": {"affinity": affinity}}},
    })
}

/// Returns affinities to the nodes of a service's replicas, weighted by the number of replicas on each. Nodes are
/// selected by name, because the label `kubernetes.io/hostname` of some nodes differs from it.
fn to_nodes(nodes: &Nodes, counts: &[u32]) -> Vec<Value> {
    let most = counts.iter().max().copied().unwrap_or(0);
    let used = nodes
        .all()
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count > 0);
    let preference = |(node, count): (&maglor_service_graph::Node, &u32)| {
        json!({
            "weight": weight(f64::from(*count), f64::from(most)),
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]},
        })
    };
    used.map(preference).collect()
}

/// Returns affinities to the services with which a service communicates and that run on one of its nodes, weighted by
/// their calls.
fn to_neighbours(
    graph: &Graph,
    placement: &Placement,
    (service, label): (usize, &str),
) -> Vec<Value> {
    let mut calls = vec![0.0; graph.services().len()];
    for edge in graph.edges().iter().filter(|edge| edge.from != edge.to) {
        if edge.from == service {
            calls[edge.to] += edge.rps;
        } else if edge.to == service {
            calls[edge.from] += edge.rps;
        }
    }
    let most = calls.iter().copied().fold(0.0, f64::max);
    let beside = |other: usize| {
        let pairs = placement
            .service(service)
            .iter()
            .zip(placement.service(other));
        pairs.into_iter().any(|(a, b)| *a > 0 && *b > 0)
    };
    let near = calls
        .iter()
        .enumerate()
        .filter(|(other, rps)| **rps > 0.0 && beside(*other));
    let term = |(other, rps): (usize, &f64)| {
        let (namespace, name) = names(&graph.services()[other].name);
        let mut term = json!({
            "labelSelector": {"matchLabels": {label: name}},
            "topologyKey": NODE,
        });
        if let Some(namespace) = namespace {
            term["namespaces"] = json!([namespace]);
        }
        json!({"weight": weight(*rps, most), "podAffinityTerm": term})
    };
    near.map(term).collect()
}

/// Returns a weight from 1 to 100, relative to the largest value.
fn weight(value: f64, most: f64) -> u32 {
    ((MOST * value / most).round() as u32).clamp(1, MOST as u32)
}

/// Splits `NAMESPACE/NAME`, or a name without a namespace.
fn names(service: &str) -> (Option<&str>, &str) {
    match service.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, service),
    }
}
