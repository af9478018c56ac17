//! Moves of replicas between nodes: those of placement policies and, without Kubernetes, where nothing moves pods, a
//! proposal that is computed from the graph as `maglor plan moves` does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::dashboard::page::Move;
use maglor_service_graph::Options;

use super::{Feed, locked};
use crate::graph::Graphs;
use crate::graph::plan::{Plan, plan};

/// Maximum number of moves.
pub(super) const MOST: usize = 500;
/// Time for which a proposal is shown before it is computed again.
const KEPT: Duration = Duration::from_secs(10);
/// Interval of looking for viewers.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the moves from one placement of a service to another, one for each replica.
pub(super) fn between(
    service: &str,
    (now, planned): (&BTreeMap<String, u32>, &BTreeMap<String, u32>),
    reason: &str,
) -> Vec<Move> {
    let more = |than: &BTreeMap<String, u32>, of: &BTreeMap<String, u32>| {
        let nodes = of.iter().flat_map(|(node, count)| {
            let other = than.get(node).copied().unwrap_or(0);
            std::iter::repeat_n(node.clone(), count.saturating_sub(other) as usize)
        });
        nodes.collect::<Vec<String>>()
    };
    let (from, to) = (more(planned, now), more(now, planned));
    let pairs = from.into_iter().zip(to);
    pairs
        .map(|(from, to)| Move {
            vertex: service.to_owned(),
            from,
            to,
            reason: reason.to_owned(),
        })
        .collect()
}

impl Feed {
    /// Computes proposals while there are viewers, apart from the thread that answers them; never returns.
    pub(crate) async fn propose(self: Arc<Self>) {
        loop {
            let watched = *locked(&self.watched);
            let moves = match watched {
                true => {
                    let graphs = Arc::clone(&self.graphs);
                    let proposed = tokio::task::spawn_blocking(move || propose(&graphs)).await;
                    // A panic is in the log.
                    proposed.ok().flatten()
                }
                false => None,
            };
            *locked(&self.proposal) = moves;
            tokio::time::sleep(if watched { KEPT } else { LOOK }).await;
        }
    }
}

/// Returns the moves that a placement would make: none if they would not be worth it; `None` if there are no nodes or
/// no calls.
fn propose(graphs: &Graphs) -> Option<Vec<Move>> {
    let snapshot = graphs.snapshot().placed();
    if snapshot.nodes.is_empty() || snapshot.edges.is_empty() {
        return None;
    }
    match plan(&snapshot, Options::default(), None) {
        Ok(plan) => Some(moves(&plan)),
        Err(error) => {
            tracing::debug!(%error, "no placement can be computed for the dashboard");
            None
        }
    }
}

fn moves(plan: &Plan) -> Vec<Move> {
    if !plan.worth_it {
        return Vec::new();
    }
    let planned = plan.cut_planned.unwrap_or(plan.cut_now);
    let reason = format!(
        "a proposal: {planned:.1} instead of {:.1} of {:.1} calls/s between nodes",
        plan.cut_now, plan.total
    );
    let services = plan.services.iter();
    let moves = services.flat_map(|one| between(&one.name, (&one.now, &one.planned), &reason));
    moves.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(counts: &[(&str, u32)]) -> BTreeMap<String, u32> {
        let counts = counts.iter();
        counts
            .map(|(node, count)| ((*node).to_owned(), *count))
            .collect()
    }

    #[test]
    fn each_moved_replica_is_a_move() {
        let now = nodes(&[("a", 3), ("b", 1)]);
        let planned = nodes(&[("b", 2), ("c", 2)]);
        let ends: Vec<_> = between("shop/cart", (&now, &planned), "")
            .into_iter()
            .map(|one| (one.from, one.to))
            .collect();
        let expected =
            [("a", "b"), ("a", "c"), ("a", "c")].map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(ends, expected);
        assert!(between("shop/cart", (&now, &now), "").is_empty());
    }
}
