//! Computes a placement of replicas from the live graph, and applies it to Deployments.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;
use serde_json::{Value, json};

use super::bookinfo::{self, ENTRY, NAMESPACE, SERVICES};
use super::stage::{Placement, Stage};
use crate::error::{Doing, Error, Result};
use crate::kubernetes::until;

/// The maximum relative difference between λ of the live graph and that of the clients, before the
/// graph is used.
const CLOSE: f64 = 0.1;
const NODE: &str = "kubernetes.io/hostname";
/// The field manager of the placement in Deployments.
const MANAGER: &str = "--field-manager=placement";

/// The output of `maglor plan placement`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Plan {
    /// Calls a second that leave their node, and all.
    pub(super) cut: f64,
    pub(super) total: f64,
    pub(super) moves: u64,
    /// By `NAMESPACE/NAME`.
    placement: BTreeMap<String, BTreeMap<String, u32>>,
}

impl Plan {
    /// Returns the placement by service, without the namespace.
    pub(super) fn placement(&self) -> Placement {
        let named = self.placement.iter();
        named
            .map(|(name, nodes)| (short(name).to_owned(), nodes.clone()))
            .collect()
    }
}

fn short(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, name)| name)
}

/// The mode of `maglor plan placement`, without `--emit`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// As in the paper: a service is one vertex, independent of its replicas.
    Whole,
    /// Replicas, where calls go to any replica.
    Even,
    /// Replicas, where calls go to local replicas first.
    LocalFirst,
}

impl Question {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &["--whole-services", "--move-cost=0", "--current=now.json"],
            Self::Even => &["--routing=even", "--current=now.json"],
            Self::LocalFirst => &["--routing=local-first", "--current=now.json"],
        }
    }
}

/// Files of the live graph, as `maglor plan placement` reads them.
pub(super) struct LiveGraph<'a> {
    stage: &'a Stage,
    seed: String,
}

impl<'a> LiveGraph<'a> {
    /// Waits under load until the live graph shows the traffic of the clients, and stores it.
    pub(super) fn wait(stage: &'a Stage, rate: u32, seed: u64) -> Result<Self> {
        let mut snapshot = String::new();
        until("the live graph shows all calls", || {
            snapshot = stage.maglor(&["graph", "--namespace", NAMESPACE, "-o", "json"])?;
            let graph = parse(&snapshot)?;
            Ok(bookinfo::edges().all(|edge| is_shown(&graph, edge, f64::from(rate))))
        })?;
        write(stage, "snapshot.json", &snapshot)?;
        let file = stage.folder().join("snapshot.json");
        let file = file.to_string_lossy();
        let part = |what: &str| stage.maglor(&["graph", "--file", &file, "-o", what]);
        write(stage, "graph.json", &pinned(&part("graph")?)?)?;
        write(stage, "nodes.json", &part("nodes")?)?;
        write(stage, "now.json", &part("placement")?)?;
        Ok(Self {
            stage,
            seed: seed.to_string(),
        })
    }

    /// Returns the recommended placement of replicas.
    pub(super) fn plan(&self, question: Question) -> Result<Plan> {
        let text = self.partition(question, &[])?;
        serde_json::from_str(&text).map_err(|error| Error::parse("a plan", error.to_string()))
    }

    /// Returns the recommended placement as affinities of Deployments.
    pub(super) fn affinities(&self, question: Question) -> Result<String> {
        self.partition(question, &["--emit=affinity"])
    }

    fn partition(&self, question: Question, more: &[&str]) -> Result<String> {
        let path = |name: &str| self.stage.folder().join(name).display().to_string();
        let (graph, nodes) = (path("graph.json"), path("nodes.json"));
        let current = format!("--current={}", path("now.json"));
        let mut arguments = vec!["plan", "placement", "--graph", &graph, "--nodes", &nodes];
        arguments.extend(["--seed", &self.seed]);
        for argument in question.arguments() {
            arguments.push(match argument.starts_with("--current") {
                true => &current,
                false => argument,
            });
        }
        arguments.extend(more);
        self.stage.maglor(&arguments)
    }
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Error::parse("the graph", error.to_string()))
}

fn write(stage: &Stage, name: &str, text: &str) -> Result<()> {
    fs::write(stage.folder().join(name), text).doing(format!("write {name}"))
}

fn is_shown(graph: &Value, (from, to): (&str, &str), rate: f64) -> bool {
    let edges = graph["edges"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |value: &Value, name: &str| value.as_str().is_some_and(|one| short(one) == name);
    let edge = edges
        .iter()
        .find(|edge| is(&edge["from"], from) && is(&edge["to"], to));
    let rps = edge.and_then(|edge| edge["rps"].as_f64());
    rps.is_some_and(|rps| (rps - rate).abs() <= CLOSE * rate)
}

/// Returns the graph with the entry service pinned to its node.
fn pinned(text: &str) -> Result<String> {
    let mut graph = parse(text)?;
    for service in graph["services"].as_array_mut().into_iter().flatten() {
        if service["name"]
            .as_str()
            .is_some_and(|name| short(name) == ENTRY)
        {
            service["pinned"] = true.into();
        }
    }
    Ok(graph.to_string())
}

/// Applies a placement to Kubernetes, and waits until the replicas run there.
///
/// It consists of required node affinity, and an even spread over the nodes of a service: rolling
/// updates start new pods there and remove the old ones, one or two at a time.
pub(super) fn apply(stage: &Stage, plan: &Plan) -> Result<()> {
    let placement = plan.placement();
    let services = SERVICES.iter().filter(|service| service.name != ENTRY);
    // A stream of documents, not a list, because kubectl requires the items of a list to be
    // complete.
    let documents = services.filter_map(|service| {
        let placed = placed(service.name, placement.get(service.name)?);
        Some(format!("---\n{placed}\n"))
    });
    apply_partly(stage, &documents.collect::<String>())
}

/// Applies partial Deployments, and waits until they have rolled out.
pub(super) fn apply_partly(stage: &Stage, documents: &str) -> Result<()> {
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        MANAGER,
        "-f",
        "-",
    ];
    let applied = stage.kubectl().with_input(&arguments, documents);
    applied?;
    stage.settled()
}

fn placed(name: &str, nodes: &BTreeMap<String, u32>) -> Value {
    let names: Vec<&String> = nodes.keys().collect();
    let mut pod = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
            "matchExpressions": [{"key": NODE, "operator": "In", "values": names}],
        }]},
    }}});
    if names.len() > 1 {
        let (least, most) = (nodes.values().min(), nodes.values().max());
        let skew = most.zip(least).map_or(0, |(most, least)| most - least);
        pod["topologySpreadConstraints"] = json!([{
            "maxSkew": skew.max(1),
            "topologyKey": NODE,
            // An uneven distribution cannot be expressed exactly; the affinity still holds.
            "whenUnsatisfiable": if skew > 1 { "ScheduleAnyway" } else { "DoNotSchedule" },
            "labelSelector": {"matchLabels": {"app": name}},
            "matchLabelKeys": ["pod-template-hash"],
        }]);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": {"spec": pod}},
    })
}

/// Returns the share of calls that leave their node under a placement, where every replica is
/// equally likely; each edge has the same number of calls.
pub(super) fn even_share(placement: &Placement) -> f64 {
    let none = BTreeMap::new();
    let share = |(from, to): (&str, &str)| {
        let (p, q) = (
            placement.get(from).unwrap_or(&none),
            placement.get(to).unwrap_or(&none),
        );
        let all = |nodes: &BTreeMap<String, u32>| f64::from(nodes.values().sum::<u32>()).max(1.0);
        let stays = p
            .iter()
            .map(|(node, count)| f64::from(*count) * f64::from(q.get(node).copied().unwrap_or(0)));
        1.0 - stays.sum::<f64>() / (all(p) * all(q))
    };
    let shares: Vec<f64> = bookinfo::edges().map(share).collect();
    shares.iter().sum::<f64>() / shares.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_trusted_when_it_shows_what_clients_do() {
        let graph = json!({"edges": [{"from": "shop/a", "to": "shop/b", "rps": 95.0}]});
        assert!(is_shown(&graph, ("a", "b"), 100.0));
        assert!(!is_shown(&graph, ("a", "b"), 200.0));
        assert!(!is_shown(&graph, ("b", "a"), 95.0));
    }

    #[test]
    fn a_placement_becomes_affinity_and_spread() {
        let nodes = |pairs: &[(&str, u32)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(node, count)| ((*node).to_owned(), *count))
                .collect()
        };
        let one = placed("a", &nodes(&[("x", 4)]));
        let pod = &one["spec"]["template"]["spec"];
        assert!(pod.get("topologySpreadConstraints").is_none());
        let two = placed("a", &nodes(&[("x", 3), ("y", 1)]));
        let pod = &two["spec"]["template"]["spec"];
        assert_eq!(pod["topologySpreadConstraints"][0]["maxSkew"], 2);
    }

    #[test]
    fn halves_of_everything_are_apart_half_of_the_time() {
        let half = BTreeMap::from([("x".to_owned(), 2), ("y".to_owned(), 2)]);
        let of = |service: &bookinfo::Service| (service.name.to_owned(), half.clone());
        let placement: Placement = SERVICES.iter().map(of).collect();
        assert!((even_share(&placement) - 0.5).abs() < 1e-9);
    }
}
