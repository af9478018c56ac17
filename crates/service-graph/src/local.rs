//! Local-first routing: the share of a node's calls that goes to the replicas on each node.
//!
//! The shares are computed by water-filling: a node's calls fill its own replicas up to (1 + slack) times their fair
//! share, and the rest goes to replicas on other nodes in proportion to the remainder of their share. So no replica
//! gets more than (1 + slack) times its fair share. With slack 0, every replica gets exactly its fair share, as if
//! calls were spread at random, with as few calls between nodes as possible.

/// The shares of calls by node of the caller and node of the called replica.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalShares {
    nodes: usize,
    shares: Vec<f64>,
}

impl LocalShares {
    /// The default of how far the load of a replica may be above its fair share, in percent.
    pub const SLACK_PERCENT: u8 = 20;

    /// Computes the shares from the number of callers and of called replicas on each node. Only replicas that may be
    /// picked should be counted, no ejected ones. `slack` is 0 or more; negative values and NaN count as 0. If the
    /// lists have unequal lengths, the shorter one is extended with zeros. `None` if there is no replica to call.
    #[must_use]
    pub fn new(callers: &[u32], replicas: &[u32], slack: f64) -> Option<Self> {
        let nodes = callers.len().max(replicas.len());
        let (p, q) = (parts(callers, nodes), parts(replicas, nodes));
        if q.iter().sum::<f64>() <= 0.0 {
            return None;
        }
        let most = 1.0 + if slack > 0.0 { slack } else { 0.0 };
        let local: Vec<f64> = p.iter().zip(&q).map(|(p, q)| p.min(most * q)).collect();
        let room: Vec<f64> = q
            .iter()
            .zip(&local)
            .map(|(q, l)| (q - l).max(0.0))
            .collect();
        let all_room: f64 = room.iter().sum();
        let mut shares = vec![0.0; nodes * nodes];
        for (from, row) in shares.chunks_mut(nodes).enumerate() {
            if p[from] <= 0.0 {
                // No callers there yet; future ones get an even spread.
                row.copy_from_slice(&q);
                continue;
            }
            let stays = local[from] / p[from];
            for (share, room) in row.iter_mut().zip(&room) {
                *share = if all_room > 0.0 {
                    (1.0 - stays) * room / all_room
                } else {
                    0.0
                };
            }
            row[from] += stays;
        }
        Some(Self { nodes, shares })
    }

    /// Returns the destinations of the calls of a node's replicas: a share for each node, 1 in total; empty for an
    /// unknown node.
    #[must_use]
    pub fn from_node(&self, node: usize) -> &[f64] {
        let from = node.saturating_mul(self.nodes);
        self.shares
            .get(from..from.saturating_add(self.nodes))
            .unwrap_or_default()
    }
}

/// Returns each count as a share of the sum.
fn parts(counts: &[u32], nodes: usize) -> Vec<f64> {
    let all: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let part = |node| f64::from(counts.get(node).copied().unwrap_or(0)) / all.max(1.0);
    (0..nodes).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_endpoint_gets_too_much_and_as_much_as_possible_stays(
            counts in proptest::collection::vec((0_u32..6, 0_u32..6), 1..7),
            slack in 0.0..1.0_f64,
        ) {
            let (callers, replicas): (Vec<u32>, Vec<u32>) = counts.into_iter().unzip();
            let (all_p, all_q) = (callers.iter().sum::<u32>(), replicas.iter().sum::<u32>());
            let Some(shares) = LocalShares::new(&callers, &replicas, slack) else {
                prop_assert_eq!(all_q, 0);
                return Ok(());
            };
            let mut load = vec![0.0; callers.len()];
            for (node, &calls) in callers.iter().enumerate() {
                let row = shares.from_node(node);
                prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(row.iter().all(|share| (0.0..=1.0 + 1e-9).contains(share)));
                if all_p > 0 {
                    let p = f64::from(calls) / f64::from(all_p);
                    for (load, share) in load.iter_mut().zip(row) {
                        *load += p * share;
                    }
                    let fair = f64::from(replicas[node]) / f64::from(all_q);
                    let stays = p.min((1.0 + slack) * fair);
                    prop_assert!(p * row[node] + 1e-9 >= stays);
                }
            }
            for (load, &count) in load.iter().zip(&replicas) {
                let fair = f64::from(count) / f64::from(all_q);
                prop_assert!(*load <= (1.0 + slack) * fair + 1e-9);
                prop_assert!(slack > 0.0 || all_p == 0 || (load - fair).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn without_slack_what_leaves_is_the_cut() {
        let shares = LocalShares::new(&[2, 1, 0], &[1, 1, 2], 0.0).unwrap();
        assert_eq!(shares.from_node(0), [0.375, 0.0, 0.625]);
        assert_eq!(shares.from_node(1), [0.0, 0.75, 0.25]);
        assert_eq!(shares.from_node(2), [0.25, 0.25, 0.5]);
        assert!(shares.from_node(3).is_empty());
        assert!(LocalShares::new(&[1], &[0], 0.0).is_none());
    }
}
