//! Tracks the nodes from which Services are called, for local-first routing.
//!
//! The published shares have hysteresis: they change only when more than a tenth of a Service's calls come from other
//! nodes than before, or when there are no more calls.

use std::collections::BTreeMap;

use maglor_service_graph::Part;

use crate::index::facts::Key;
use crate::index::topology::Topology;

/// Part of a Service's calls, in thousandths, that may come from other nodes without changing the published shares.
const NEGLIGIBLE: u32 = 100;
const WHOLE: f64 = 1000.0;

/// Shares of calls by node, in thousandths.
type Shares = BTreeMap<String, u32>;

/// The published shares of calls by node.
#[derive(Debug, Default)]
pub(super) struct Callers {
    /// The published shares by vertex.
    reported: BTreeMap<String, Shares>,
    /// The vertices of Services with published shares.
    services: BTreeMap<Key, String>,
}

impl Callers {
    /// Returns the shares to publish; `None` if they have not changed significantly.
    pub(super) fn follow<'a>(
        &mut self,
        topology: &Topology,
        parts: impl Iterator<Item = Part<'a>>,
    ) -> Option<BTreeMap<Key, Shares>> {
        let mut calls: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
        for part in parts.filter(|part| part.traffic.rps > 0.0) {
            if let Some(node) = topology.node_of(part.proxy) {
                let of_node = calls.entry(part.to).or_default().entry(node).or_default();
                *of_node += part.traffic.rps;
            }
        }
        let mut changed = topology.services != self.services;
        self.reported.retain(|vertex, _| {
            let called = calls.contains_key(&**vertex);
            changed |= !called;
            called
        });
        for (vertex, nodes) in calls {
            let now = shares(&nodes);
            let reported = self.reported.get(vertex);
            if reported.is_none_or(|reported| distance(reported, &now) > NEGLIGIBLE) {
                changed = true;
                self.reported.insert(vertex.to_owned(), now);
            }
        }
        if !changed {
            return None;
        }
        self.services.clone_from(&topology.services);
        let reported = topology.services.iter().filter_map(|(service, vertex)| {
            let shares = self.reported.get(vertex)?;
            Some((service.clone(), shares.clone()))
        });
        Some(reported.collect())
    }
}

fn shares(nodes: &BTreeMap<&str, f64>) -> Shares {
    let all: f64 = nodes.values().sum();
    let share = |(node, rps): (&&str, &f64)| {
        let share = (rps / all * WHOLE).round() as u32;
        ((*node).to_owned(), share.max(1))
    };
    nodes.iter().map(share).collect()
}

/// Returns the part of calls that comes from different nodes: half the sum of the differences.
fn distance(one: &Shares, other: &Shares) -> u32 {
    let of = |shares: &Shares, node: &String| shares.get(node).copied().unwrap_or(0);
    let gone = one
        .iter()
        .map(|(node, share)| share.abs_diff(of(other, node)));
    let new = other.iter().filter(|(node, _)| !one.contains_key(*node));
    let sum: u32 = gone.chain(new.map(|(_, share)| *share)).sum();
    sum / 2
}

#[cfg(test)]
mod tests {
    use maglor_balance::Time;
    use maglor_service_graph::{Times, Traffic};

    use super::*;

    fn topology() -> Topology {
        let mut topology = Topology::default();
        for (pod, node) in [("web-0", "n1"), ("web-1", "n2"), ("web-2", "n2")] {
            let pod = Key::new("shop", pod);
            topology.pods.insert(pod.clone(), "shop/web".to_owned());
            topology.places.insert(pod, node.to_owned());
        }
        topology
            .services
            .insert(Key::new("shop", "cart"), "shop/cart".to_owned());
        topology
    }

    fn parts<'a>(rates: &'a [(&'a str, f64)]) -> impl Iterator<Item = Part<'a>> {
        rates.iter().map(|(proxy, rps)| Part {
            proxy,
            at: Time::ZERO,
            from: "shop/web",
            to: "shop/cart",
            traffic: Traffic {
                rps: *rps,
                ..Traffic::default()
            },
            times: Times::default(),
            spread: maglor_service_graph::Spread::default(),
        })
    }

    #[test]
    fn shares_change_only_significantly() {
        let (topology, mut callers) = (topology(), Callers::default());
        let mut follow = |rates: &[(&str, f64)]| {
            let reported = callers.follow(&topology, parts(rates))?;
            let shares = reported
                .get(&Key::new("shop", "cart"))
                .cloned()
                .unwrap_or_default();
            Some(shares.into_iter().collect::<Vec<_>>())
        };
        let of = |n1, n2| Some(vec![("n1".to_owned(), n1), ("n2".to_owned(), n2)]);
        let first = follow(&[
            ("shop/web-0", 10.0),
            ("shop/web-1", 20.0),
            ("shop/web-2", 10.0),
            ("envoy", 99.0),
        ]);
        assert_eq!(first, of(250, 750));
        assert_eq!(
            follow(&[("shop/web-0", 12.0), ("shop/web-1", 26.0)]),
            None,
            "noise"
        );
        assert_eq!(
            follow(&[("shop/web-0", 10.0), ("shop/web-1", 10.0)]),
            of(500, 500)
        );
        assert_eq!(
            follow(&[("shop/web-0", 1.0)]),
            Some(vec![("n1".to_owned(), 1000)])
        );
        assert_eq!(follow(&[]), Some(Vec::new()), "no calls any more");
        assert_eq!(follow(&[]), None);
    }
}
