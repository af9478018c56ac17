//! Publishes the graph in Kubernetes: once a minute the leader writes the merged observations of all replicas into
//! the status of the `CommunicationGraph`.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::replicas::Replicas;
use super::{Graphs, Snapshot};
use crate::conditional_writes::{Manager, Precondition};
use crate::crd::{
    CommunicationGraph, CommunicationGraphSpec, CommunicationGraphStatus, GRAPH_NAME, GROUP,
    GraphEdge, VERSION,
};
use crate::lease::Term;
use crate::status_writer::FIELD_MANAGER;

/// Interval of publications.
const PERIOD: Duration = Duration::from_secs(60);
/// Interval at which the time of the next publication and the leadership of this replica are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Publishes the graph periodically.
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
        let mut tick = tokio::time::interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut written: Option<(i32, Instant)> = None;
        loop {
            tick.tick().await;
            let (term, now) = (*self.term.borrow(), Instant::now());
            let fresh = |(number, at): (i32, Instant)| number == term.number() && now - at < PERIOD;
            if !term.holds(now) || written.is_some_and(fresh) {
                continue;
            }
            match self.write().await {
                Ok(()) => written = Some((term.number(), now)),
                Err(error) => {
                    tracing::warn!(%error, "cannot write the communication graph; retrying");
                }
            }
        }
    }

    async fn write(&self) -> Result<(), kube::Error> {
        let api: Api<CommunicationGraph> = Api::all(self.client.clone());
        let by = Manager(FIELD_MANAGER);
        let there = match api.get_opt(GRAPH_NAME).await? {
            Some(there) => there,
            None => {
                let new = CommunicationGraph::new(GRAPH_NAME, CommunicationGraphSpec::default());
                by.apply(&api, GRAPH_NAME, json!(new), None).await?
            }
        };
        let parts = self.replicas.parts(&self.graphs).await;
        let snapshot = self.graphs.snapshot_of(&parts.all);
        let status = status(&snapshot, there.spec.edges(), parts.missing);
        let patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "CommunicationGraph",
            "metadata": {"name": GRAPH_NAME},
            "status": status,
        });
        let seen = Precondition::of(&there.metadata);
        let written = by.apply_status(&api, GRAPH_NAME, patch, &seen);
        written.await.map(drop)
    }
}

/// Returns the busiest edges of a snapshot. Numbers are rounded to three decimals, so that smaller variations cause
/// no writes.
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
