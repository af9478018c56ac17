//! Publishes the graph in Kubernetes: the leader writes the merged observations of all replicas into the status of the
//! `CommunicationGraph`, at most once a minute, and only if they differ significantly from the status.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::replicas::Replicas;
use super::{Graphs, Snapshot};
use crate::api_server::is;
use crate::conditional_writes::{Manager, Precondition};
use crate::crd::{
    CommunicationGraph, CommunicationGraphSpec, CommunicationGraphStatus, GRAPH_NAME, GROUP,
    GraphEdge, VERSION,
};
use crate::index::facts::Key;
use crate::lease::Term;
use crate::reconcile::{self, Again, Cache, Reconciler, Watch, Watches};
use crate::status_writer::FIELD_MANAGER;

/// Minimum interval of publications, and the interval at which the graph is compared with the status.
const PERIOD: Duration = Duration::from_secs(60);
/// Part by which a number may differ from the status without a publication: the variation of a rate of ten calls per
/// second that are measured for a minute.
const NOISE: f64 = 0.1;
/// Difference of a number that is never published alone.
const TINY: f64 = 0.01;

/// Publishes the graph.
#[derive(Clone)]
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) replicas: Replicas,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) graphs: Arc<Graphs>,
}

impl Publisher {
    /// Publishes the graph while this replica is the leader; never returns.
    pub(crate) async fn run(self) {
        let term = self.term.clone();
        reconcile::run(term, |watches: Watches<()>| {
            let graphs = Watch::new(vec![Api::all(self.client.clone())]);
            Operator {
                published: watches.open(graphs, |_| vec![()], || vec![()]),
                publisher: self.clone(),
                written: None,
                _watches: watches,
            }
        })
        .await;
    }
}

/// The publisher in a term.
struct Operator {
    publisher: Publisher,
    published: Cache<CommunicationGraph>,
    /// The time of the last publication, and the generation of the object then.
    written: Option<(Instant, Option<i64>)>,
    _watches: Watches<()>,
}

impl Reconciler for Operator {
    type Unit = ();

    const NAME: &'static str = "communication graph";

    async fn reconcile(&mut self, (): &()) -> Result<Again, kube::Error> {
        let api: Api<CommunicationGraph> = Api::all(self.publisher.client.clone());
        let by = Manager(FIELD_MANAGER);
        let Some(there) = self.published.get(&Key::new("", GRAPH_NAME)) else {
            let new = CommunicationGraph::new(GRAPH_NAME, CommunicationGraphSpec::default());
            return match by.apply(&api, GRAPH_NAME, json!(new), None).await {
                // The kind is not defined, or the object was just created: either causes an event.
                Err(error) if is(&error, 404) || is(&error, 409) => Ok(None),
                created => created.map(|_| None),
            };
        };
        let generation = there.metadata.generation;
        if let Some((at, of)) = self.written
            && of == generation
            && at.elapsed() < PERIOD
        {
            return Ok(Some(PERIOD.saturating_sub(at.elapsed())));
        }
        let Publisher {
            replicas, graphs, ..
        } = &self.publisher;
        let parts = replicas.parts(graphs).await;
        let snapshot = graphs.snapshot_of(&parts.all);
        let status = status(&snapshot, there.spec.edges(), parts.missing);
        let before = there.status.as_ref();
        if before.is_none_or(|before| differs(before, &status)) {
            let patch = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "CommunicationGraph",
                "metadata": {"name": GRAPH_NAME},
                "status": status,
            });
            let seen = Precondition::of(&there.metadata);
            match by.apply_status(&api, GRAPH_NAME, patch, &seen).await {
                // The object has changed: its next version causes an event.
                Err(error) if is(&error, 404) || is(&error, 409) => return Ok(None),
                written => drop(written?),
            }
            self.written = Some((Instant::now(), generation));
        }
        Ok(Some(PERIOD))
    }
}

/// Returns whether a status differs from the published one by more than noise.
fn differs(before: &CommunicationGraphStatus, after: &CommunicationGraphStatus) -> bool {
    let counts = |status: &CommunicationGraphStatus| {
        let CommunicationGraphStatus {
            window_seconds,
            services,
            edges_left_out,
            replicas_missing,
            ..
        } = *status;
        (window_seconds, services, edges_left_out, replicas_missing)
    };
    let number = |before: f64, after: f64| {
        let difference = (before - after).abs();
        difference > TINY && difference > NOISE * before.abs().max(after.abs())
    };
    let edge = |(before, after): (&GraphEdge, &GraphEdge)| {
        let numbers = |edge: &GraphEdge| {
            [
                edge.calls_per_second,
                edge.response_milliseconds,
                edge.p99_milliseconds.unwrap_or(0.0),
                edge.failures_per_second,
                edge.bytes_per_second,
            ]
        };
        let mut numbers = numbers(before).into_iter().zip(numbers(after));
        (&before.from, &before.to) != (&after.from, &after.to)
            || numbers.any(|(before, after)| number(before, after))
    };
    // Edges of about the same rate may be in any order.
    let by_name = |status: &CommunicationGraphStatus| {
        let mut edges = status.edges.clone();
        edges.sort_by(|one, other| (&one.from, &one.to).cmp(&(&other.from, &other.to)));
        edges
    };
    let (old, new) = (by_name(before), by_name(after));
    counts(before) != counts(after)
        || old.len() != new.len()
        || number(before.calls_per_second, after.calls_per_second)
        || old.iter().zip(&new).any(edge)
}

/// Returns the busiest edges of a snapshot, with numbers of three decimals.
fn status(snapshot: &Snapshot, most: usize, missing: u32) -> CommunicationGraphStatus {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let mut edges: Vec<_> = snapshot.edges.iter().collect();
    edges.sort_by(|one, other| other.rps.total_cmp(&one.rps));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CommunicationGraphStatus {
        observed_at: snapshot.at.clone(),
        window_seconds: snapshot.window_seconds,
        services: count(snapshot.services.len()),
        calls_per_second: rounded(edges.iter().map(|edge| edge.rps).sum()),
        edges_left_out: count(edges.len().saturating_sub(most)),
        replicas_missing: missing,
        edges: edges
            .into_iter()
            .take(most)
            .map(|edge| GraphEdge {
                from: edge.from.clone(),
                to: edge.to.clone(),
                calls_per_second: rounded(edge.rps),
                response_milliseconds: rounded(edge.latency_ms),
                p99_milliseconds: edge.p99_ms.map(rounded),
                failures_per_second: rounded(edge.failures),
                bytes_per_second: rounded(edge.bytes_per_second),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Edge;

    #[test]
    fn a_status_has_the_busiest_edges() {
        let edge = |to: &str, rps| Edge {
            from: "a".to_owned(),
            to: to.to_owned(),
            rps,
            latency_ms: 1.23456,
            ..Edge::default()
        };
        let snapshot = Snapshot {
            edges: vec![edge("b", 1.0), edge("c", 3.00049), edge("d", 2.0)],
            ..Snapshot::default()
        };
        let status = status(&snapshot, 2, 1);
        let named: Vec<_> = status
            .edges
            .iter()
            .map(|edge| (&*edge.to, edge.calls_per_second))
            .collect();
        assert_eq!(named, [("c", 3.0), ("d", 2.0)]);
        assert_eq!((status.edges_left_out, status.replicas_missing), (1, 1));
        assert_eq!(
            (
                status.calls_per_second,
                status.edges[0].response_milliseconds
            ),
            (6.0, 1.235)
        );
        assert_eq!(CommunicationGraphSpec::default().edges(), 500);
    }
}
