//! Local-first routing: builds a list of a port's endpoints for each node, with weights that keep as many calls on
//! the node as the endpoints there can handle.

use std::collections::BTreeMap;

use maglor_service_graph::LocalShares;

use crate::index::resource::{Consumer, Endpoint, Place};

/// The weight that stands for an even share of the calls.
const WHOLE: f64 = 1000.0;

/// Returns the lists of the nodes from which the port is called. `callers` are the calls by node, in any unit;
/// `slack` is how far the load of an endpoint may exceed its fair share, as a fraction of this share.
///
/// Endpoints that get no calls from a node have priority 1, so that they are used when the others become unusable.
/// Draining endpoints do not count.
pub(super) fn by_node(
    all: &[Endpoint],
    places: &[Place],
    callers: &BTreeMap<String, u32>,
    slack: f64,
) -> Vec<(Consumer, Vec<Endpoint>)> {
    let mut nodes: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let of_endpoints = places.iter().map(|place| place.node.as_deref());
    for node in callers
        .keys()
        .map(|node| Some(node.as_str()))
        .chain(of_endpoints)
    {
        let next = nodes.len();
        nodes.entry(node).or_insert(next);
    }
    let mut calls = vec![0_u32; nodes.len()];
    let mut replicas = vec![0_u32; nodes.len()];
    for (node, count) in callers {
        if let Some(at) = nodes.get(&Some(node.as_str())) {
            calls[*at] = *count;
        }
    }
    let at = |place: &Place| nodes.get(&place.node.as_deref()).copied().unwrap_or(0);
    let serving = all.iter().zip(places).filter(|(one, _)| !one.draining);
    for (_, place) in serving {
        replicas[at(place)] += 1;
    }
    let Some(shares) = LocalShares::new(&calls, &replicas, slack) else {
        return Vec::new();
    };
    let count: u32 = replicas.iter().sum();
    let mut lists = Vec::new();
    for (node, from) in nodes.iter().filter(|(_, from)| calls[**from] > 0) {
        let Some(node) = node else { continue };
        let row = shares.from_node(*from);
        // 1000 stands for an even share.
        let weight = |to: usize| {
            let share = row.get(to).copied().unwrap_or(0.0);
            let each = share / f64::from(replicas[to].max(1)) * f64::from(count);
            (each * WHOLE).round() as u32
        };
        let list = all.iter().zip(places).map(|(endpoint, place)| {
            let mut endpoint = endpoint.clone();
            match weight(at(place)) {
                0 => endpoint.described.priority = Some(1),
                weight => endpoint.described.weight = Some(weight.min(1_000_000)),
            }
            endpoint
        });
        lists.push((Consumer::Node((*node).to_owned()), list.collect()));
    }
    lists
}

#[cfg(test)]
mod tests {
    use maglor_config::raw;
    use proptest::prelude::*;

    use super::*;

    fn endpoints(nodes: &[&str]) -> (Vec<Endpoint>, Vec<Place>) {
        let endpoint = |i: usize| Endpoint {
            described: raw::Endpoint {
                address: Some(format!("10.0.0.{i}:80")),
                ..raw::Endpoint::default()
            },
            draining: false,
        };
        let place = |node: &&str| Place {
            zone: None,
            node: (!node.is_empty()).then(|| (*node).to_owned()),
        };
        (
            (0..nodes.len()).map(endpoint).collect(),
            nodes.iter().map(place).collect(),
        )
    }

    fn callers(list: &[(&str, u32)]) -> BTreeMap<String, u32> {
        list.iter()
            .map(|(node, count)| ((*node).to_owned(), *count))
            .collect()
    }

    /// Returns the weight and priority of each endpoint.
    fn seen(list: &[Endpoint]) -> Vec<(Option<u32>, Option<u32>)> {
        list.iter()
            .map(|one| (one.described.weight, one.described.priority))
            .collect()
    }

    #[test]
    fn what_fits_stays_and_the_rest_goes_where_there_is_room() {
        // Two thirds of the calls come from a, where one of three replicas runs.
        let (all, places) = endpoints(&["a", "b", "b"]);
        let lists = by_node(&all, &places, &callers(&[("a", 2), ("b", 1)]), 0.0);
        assert_eq!(lists.len(), 2);
        assert_eq!(lists[0].0, Consumer::Node("a".to_owned()));
        // Half of the calls stay; the other half goes to b, a quarter to each replica there.
        assert_eq!(
            seen(&lists[0].1),
            [(Some(1500), None), (Some(750), None), (Some(750), None)]
        );
        // All calls from b stay there; the replica in a is used if those in b fail.
        assert_eq!(
            seen(&lists[1].1),
            [(None, Some(1)), (Some(1500), None), (Some(1500), None)]
        );
    }

    #[test]
    fn what_drains_has_no_share_and_who_has_no_node_takes_what_is_left() {
        let (mut all, places) = endpoints(&["a", "", "a"]);
        all[2].draining = true;
        let lists = by_node(&all, &places, &callers(&[("a", 10)]), 0.0);
        // The draining endpoint stays in the list of its node, since it gets no new requests anyway.
        assert_eq!(
            seen(&lists[0].1)[..2],
            [(Some(1000), None), (Some(1000), None)]
        );
        all[0].draining = true;
        all[1].draining = true;
        assert!(by_node(&all, &places, &callers(&[("a", 10)]), 0.0).is_empty());
        assert!(by_node(&all, &places, &callers(&[]), 0.0).is_empty());
    }

    proptest! {
        #[test]
        fn no_endpoint_gets_more_than_its_share_and_slack(
            replicas in proptest::collection::vec(0_usize..4, 1..6),
            calls in proptest::collection::vec(0_u32..1000, 1..6),
            slack in 0.0..1.0_f64,
        ) {
            const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
            let nodes: Vec<&str> = replicas.iter().zip(NAMES)
                .flat_map(|(count, name)| std::iter::repeat_n(name, *count)).collect();
            let (all, places) = endpoints(&nodes);
            let from: Vec<(&str, u32)> = NAMES.into_iter().zip(calls.iter().copied()).collect();
            let lists = by_node(&all, &places, &callers(&from), slack);
            let total: f64 = calls.iter().copied().map(f64::from).sum();
            prop_assert_eq!(lists.is_empty(), all.is_empty() || total == 0.0);
            let mut load = vec![0.0; all.len()];
            for (consumer, list) in &lists {
                let Consumer::Node(node) = consumer else { panic!("{consumer:?}") };
                let made = from.iter().find(|(name, _)| name == node).unwrap().1;
                let weights: Vec<f64> = list.iter()
                    .map(|one| one.described.weight.map_or(0.0, f64::from)).collect();
                let sum: f64 = weights.iter().sum();
                prop_assert!(sum > 0.0);
                for (load, weight) in load.iter_mut().zip(&weights) {
                    *load += f64::from(made) / total * weight / sum;
                }
            }
            let fair = 1.0 / all.len().max(1) as f64;
            for load in load {
                // Weights are rounded to thousandths.
                prop_assert!(load <= (1.0 + slack) * fair + 0.01, "{load} {fair} {slack}");
            }
        }
    }
}
