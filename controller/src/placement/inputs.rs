//! Assembles the inputs of a relocation: the live graph, capacities of nodes, the current placement, and constraints.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use maglor_service_graph::relocate::{Guard, Measured, Params};
use maglor_service_graph::{
    Bars, Graph, GraphError, Node as GraphNode, Nodes, NodesError, Objective, Options, Placement,
    Routing, Selection, Service, Use,
};

use super::fits::{fixed, may_run};
use super::pod::{Node, Pod};
use crate::crd::{PlacementObjective, PlacementPolicySpec};
use crate::graph::Snapshot;
use crate::index::topology::Topology;

/// The sources of the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The communication graph of all replicas.
    pub snapshot: &'a Snapshot,
    /// The mapping of pods to services.
    pub topology: &'a Topology,
    /// The pods of the policy's namespaces.
    pub pods: &'a [Pod],
    /// The nodes.
    pub nodes: &'a [Node],
    /// The specification of the policy.
    pub spec: &'a PlacementPolicySpec,
    /// Services that older policies select, each with the name of the policy.
    pub taken: &'a BTreeMap<String, String>,
}

/// The inputs of a relocation.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Services and their calls.
    pub graph: Graph,
    /// Capacities of nodes for the services, which are at least those used now.
    pub nodes: Nodes,
    /// The current placement.
    pub present: Placement,
    /// The nodes on which each service must not be started.
    pub bars: Bars,
    /// Measured latencies and failures of each service's calls.
    pub measured: Vec<Measured>,
    /// The policy's services, by index.
    pub selected: BTreeMap<usize, Selected>,
    /// The routing of the most frequent calls.
    pub routing: Routing,
    /// Nodes in `spec.delays` that do not currently exist.
    pub gone: BTreeSet<String>,
}

/// A service that the policy selects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selected {
    /// Why the service cannot be moved; `None` if it can.
    pub fixed: Option<String>,
    /// The Deployments of the service's pods.
    pub deployments: BTreeSet<String>,
}

/// Reason why there are no inputs.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A service or an edge is invalid.
    #[error("the graph: {0}")]
    Graph(#[from] GraphError),
    /// There are no nodes, or more than are supported with delays.
    #[error("the nodes: {0}")]
    Nodes(#[from] NodesError),
}

/// Returns the parameters of planning and evaluation. `settle` is the window of the graph's averages (T).
#[must_use]
pub fn params(spec: &PlacementPolicySpec, settle: Duration) -> Params {
    let part = |percent: Option<u32>, default: u32| f64::from(percent.unwrap_or(default)) / 100.0;
    let time = |seconds: Option<u32>, default: u32| {
        Duration::from_secs(u64::from(seconds.unwrap_or(default)))
    };
    let selection = spec.nodes.clone().unwrap_or_default();
    let guard = spec.guard.clone().unwrap_or_default();
    Params {
        options: Options {
            objective: match spec.objective.unwrap_or_default() {
                PlacementObjective::Bytes => Objective::Bytes,
                PlacementObjective::Latency => Objective::Latency,
                PlacementObjective::Traffic => Objective::Traffic,
            },
            selection: Selection {
                nodes: match (selection.top, selection.fewest) {
                    (Some(top), _) => Use::Top(top as usize),
                    (None, Some(true)) => Use::Fewest,
                    (None, _) => Use::All,
                },
                balance: selection
                    .slack_percent
                    .map(|slack| f64::from(slack) / 100.0),
            },
            max_share: part(spec.max_share_percent, 100),
            ..Options::default()
        },
        margin: part(spec.margin_percent, 20),
        floor: part(spec.floor_percent, 1),
        rounds: spec.windows.unwrap_or(3),
        horizon: time(spec.horizon_seconds, 3600),
        move_cost: time(spec.move_cost_seconds, 900),
        moves: spec.moves_per_round.unwrap_or(1) as usize,
        cool_down: time(spec.cooldown_seconds, 600),
        guard: Guard {
            settle,
            window: time(guard.seconds, 180),
            latency: part(guard.latency_percent, 20),
            failures: part(guard.failure_percent, 1),
        },
    }
}

/// A running service.
#[derive(Default)]
struct Running<'a> {
    pods: Vec<&'a Pod>,
    spread: BTreeMap<&'a str, u32>,
    selected: Option<Selected>,
}

/// Assembles the inputs.
///
/// # Errors
/// If there are no nodes, or more than are supported with delays.
pub fn inputs(sources: &Sources<'_>) -> Result<Inputs, InputError> {
    let running = running(sources);
    let mut graph = Graph::default();
    for (name, one) in &running {
        let vertex = sources.topology.vertices.get(*name);
        let requests = vertex.map(|vertex| vertex.requests).unwrap_or_default();
        let alone = one.pods.iter().any(|pod| keeps_apart(pod));
        graph.add_service(Service {
            name: (*name).to_owned(),
            replicas: NonZeroU32::new(one.spread.values().sum()).unwrap_or(NonZeroU32::MIN),
            cpu_millis: requests.cpu_millis.unwrap_or(0),
            memory_mib: requests.memory_mib.unwrap_or(0),
            max_per_node: alone.then_some(NonZeroU32::MIN),
            pinned: false,
        })?;
    }
    for edge in &sources.snapshot.edges {
        if graph.service(&edge.from).is_some() && graph.service(&edge.to).is_some() {
            let (rps, bytes) = (edge.rps, edge.bytes_per_second);
            graph.add_calls(&edge.from, &edge.to, rps, edge.latency_ms, bytes)?;
        }
    }
    let (nodes, present) = placed(sources, &graph, &running)?;
    let named = sources.spec.delays.iter();
    let named = named.flat_map(|delay| [&delay.from, &delay.to]);
    let gone = named.filter(|name| nodes.node(name).is_none());
    let gone = gone.cloned().collect();
    let bars = bars(sources, &graph, &nodes, &running);
    let measured = measured(sources, &graph, &present);
    let selected = running.into_values().enumerate();
    let selected = selected.filter_map(|(index, one)| Some((index, one.selected?)));
    Ok(Inputs {
        selected: selected.collect(),
        routing: Routing::of_most(&graph, |name| {
            let vertex = sources.topology.vertices.get(name);
            vertex.is_some_and(|vertex| vertex.local_first)
        }),
        graph,
        nodes,
        present,
        bars,
        measured,
        gone,
    })
}

/// Returns the running services by name, with their nodes and whether the policy selects them.
fn running<'a>(sources: &Sources<'a>) -> BTreeMap<&'a str, Running<'a>> {
    let known = |node: &str| sources.topology.nodes.contains_key(node);
    let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    let made_by = |pod: &'a Pod| Some((&*pod.key.namespace, pod.deployment()?.1));
    let of_deployment: BTreeMap<(&str, &str), &str> = {
        let known = sources
            .pods
            .iter()
            .filter_map(|pod| Some((made_by(pod)?, &**sources.topology.pods.get(&pod.key)?)));
        known.collect()
    };
    for pod in sources.pods {
        let there = pod.node.as_deref().is_some_and(known) && !pod.ends && !pod.is_moving();
        let vertex = sources.topology.pods.get(&pod.key).map(|vertex| &**vertex);
        // A new pod may not be assigned to a Service yet.
        let like = || of_deployment.get(&made_by(pod)?).copied();
        if let Some(vertex) = vertex.or_else(like).filter(|_| there) {
            pods.entry(vertex).or_default().push(pod);
        }
    }
    let mut running = BTreeMap::new();
    let meshed = sources.topology.vertices.iter();
    for (name, vertex) in meshed.filter(|(_, vertex)| vertex.meshed) {
        let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
        let selected = sources.spec.namespaces.iter().any(|one| one == namespace);
        let mut one = Running::default();
        if selected {
            one.pods = pods.remove(&**name).unwrap_or_default();
            for node in one.pods.iter().filter_map(|pod| pod.node.as_deref()) {
                *one.spread.entry(node).or_default() += 1;
            }
            one.selected = select(sources, name, &one.pods);
        } else {
            let nodes = vertex.nodes.iter().filter(|(node, _)| known(node));
            one.spread = nodes.map(|(node, count)| (&**node, *count)).collect();
        }
        if !one.spread.is_empty() {
            running.insert(&**name, one);
        }
    }
    running
}

/// Returns how the policy selects a service, with the reason if the service cannot be moved; `None` if it is not
/// selected.
fn select(sources: &Sources<'_>, name: &str, pods: &[&Pod]) -> Option<Selected> {
    let selector = sources.spec.selector.as_ref();
    let selected = |pod: &&&Pod| selector.is_none_or(|one| one.selects(&pod.labels));
    if pods.is_empty() || !pods.iter().all(|pod| selected(&pod)) {
        return None;
    }
    let deployments = pods.iter().filter_map(|pod| pod.deployment());
    let taken = sources.taken.get(name);
    let taken = taken.map(|policy| format!("the older PlacementPolicy {policy} selects it"));
    let mut services = sources.snapshot.services.iter();
    let doubted = services.any(|one| one.name == name && one.contradicted);
    let doubted =
        doubted.then(|| "callers report more calls than its own sidecars confirm".to_owned());
    let fixed = taken.or(doubted).or_else(|| {
        pods.iter()
            .filter_map(|pod| fixed(pod))
            .min()
            .map(|why| why.to_string())
    });
    Some(Selected {
        fixed,
        deployments: deployments.map(|(_, name)| name.to_owned()).collect(),
    })
}

/// Returns whether no two pods of the pod's kind may share a node.
fn keeps_apart(pod: &Pod) -> bool {
    let rules = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let rules = pod.spec.pointer(rules).and_then(|rules| rules.as_array());
    rules.is_some_and(|rules| !rules.is_empty())
}

/// Returns the nodes and the current placement. Each node has at least the capacity for its current pods, even if
/// these do not seem to fit by the largest request of a service's replicas.
fn placed(
    sources: &Sources<'_>,
    graph: &Graph,
    running: &BTreeMap<&str, Running<'_>>,
) -> Result<(Nodes, Placement), InputError> {
    let rooms: Vec<_> = sources.topology.nodes.iter().collect();
    let mut present = Placement::empty(graph.services().len(), rooms.len());
    for (service, one) in running.values().enumerate() {
        for (node, (name, _)) in rooms.iter().enumerate() {
            present.set(
                service,
                node,
                one.spread.get(&***name).copied().unwrap_or(0),
            );
        }
    }
    let loads = present.loads(graph);
    let nodes = rooms
        .iter()
        .zip(loads)
        .map(|((name, room), load)| GraphNode {
            name: (*name).clone(),
            cpu_millis: room.left.cpu_millis.unwrap_or(0).max(load[0]),
            memory_mib: room.left.memory_mib.unwrap_or(0).max(load[1]),
            pods: room.pods.map(|pods| pods.max(load[2])),
        });
    let mut nodes = Nodes::new(nodes.collect())?;
    for delay in sources.snapshot.all_delays() {
        let known = |node: &str| sources.topology.nodes.contains_key(node);
        // The snapshot may be slightly older or newer.
        if known(&delay.from) && known(&delay.to) {
            nodes.set_delay(&delay.from, &delay.to, delay.ms)?;
        }
    }
    // Configured delays take precedence. Delays of nodes that do not exist are ignored, so that the others remain
    // usable.
    for delay in &sources.spec.delays {
        if nodes.node(&delay.from).is_some() && nodes.node(&delay.to).is_some() {
            nodes.set_delay(&delay.from, &delay.to, delay.milliseconds)?;
        }
    }
    Ok((nodes, present))
}

/// Returns the constraints: services that are not selected or cannot be moved stay where they are; others must not be
/// moved to nodes that would reject any of their pods.
fn bars(
    sources: &Sources<'_>,
    graph: &Graph,
    nodes: &Nodes,
    running: &BTreeMap<&str, Running<'_>>,
) -> Bars {
    let mut bars = Bars::new(graph.services().len(), nodes.all().len());
    for (service, one) in running.values().enumerate() {
        let free = one.selected.as_ref().is_some_and(|one| one.fixed.is_none());
        if !free {
            bars.hold(service);
            continue;
        }
        // One pod represents all pods of its ReplicaSet.
        let mut kinds: Vec<&Pod> = Vec::new();
        for pod in &one.pods {
            if !kinds.iter().any(|kind| kind.owner == pod.owner) {
                kinds.push(pod);
            }
        }
        for (index, node) in nodes.all().iter().enumerate() {
            let node = sources.nodes.iter().find(|known| known.name == node.name);
            let takes = node.is_some_and(|node| kinds.iter().all(|pod| may_run(pod, node)));
            if !takes {
                bars.bar(service, index);
            }
        }
    }
    bars
}

/// Returns the measured latencies and failures of each service's outgoing and incoming calls.
fn measured(sources: &Sources<'_>, graph: &Graph, present: &Placement) -> Vec<Measured> {
    let mut measured = vec![Measured::default(); graph.services().len()];
    for edge in &sources.snapshot.edges {
        let ends = [graph.service(&edge.from), graph.service(&edge.to)];
        let failures = if edge.rps > 0.0 {
            edge.failures / edge.rps
        } else {
            0.0
        };
        let remote = match ends {
            [Some(from), Some(to)] => present.remote_share(from, to),
            _ => 0.0,
        };
        let calls = Measured {
            rps: edge.rps,
            latency_ms: edge.latency_ms,
            failures: failures.min(1.0),
            remote,
        };
        for end in ends.into_iter().flatten() {
            if let Some(sum) = measured.get_mut(end) {
                *sum = sum.plus(calls);
            }
        }
    }
    measured
}
