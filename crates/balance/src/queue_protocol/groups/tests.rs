use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::{Endpoint, Locality, LocalityWeights, Rng, Time, ViewParams};

fn view(n: usize) -> View {
    let endpoints: Vec<_> = (0..n).map(|i| Endpoint::new(format!("s{i}"))).collect();
    View::build(endpoints, &ViewParams::default(), Time::ZERO)
}

/// The members of each group and its host, by their keys.
type Seen = BTreeMap<Arc<str>, (BTreeSet<Arc<str>>, Arc<str>)>;

/// The group of each endpoint.
fn seen(view: &View, groups: &Groups) -> Seen {
    let key = |at: Index| Arc::clone(&view.endpoint(at).unwrap().key);
    let all = (0..view.len()).map(Index::new);
    all.map(|at| {
        let group = groups.of(at).unwrap();
        let members = groups.members(group).iter().map(|at| key(*at)).collect();
        (key(at), (members, key(groups.host(group).unwrap())))
    })
    .collect()
}

fn of_keys(keys: &BTreeSet<String>, size: u32) -> Seen {
    let endpoints: Vec<_> = keys.iter().map(|key| Endpoint::new(&**key)).collect();
    let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
    seen(&view, &Groups::of_size(&view, size))
}

#[test]
fn groups_are_a_partition_of_parts_of_about_the_size() {
    for (n, size) in [(40, 40), (200, 40), (50, 40), (60, 40), (3, 40), (1000, 20)] {
        let view = view(n);
        let groups = Groups::of_size(&view, size);
        let mut seen = vec![0; n];
        for group in 0..groups.len() as u32 {
            let members = groups.members(group);
            assert!(members.len() < 2 * size as usize, "{n} by {size}");
            assert!(members.contains(&groups.host(group).unwrap()));
            assert!(members.is_sorted_by_key(|at| Name::of(&view.endpoints()[at.get()].key)));
            for index in members {
                seen[index.get()] += 1;
                assert_eq!(groups.of(*index), Some(group));
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        let fair = n as f64 / f64::from(size);
        let count = groups.len() as f64;
        assert!(
            count >= fair / 2.0 && count <= fair.max(1.0) * 1.6,
            "{count} of {n} by {size}"
        );
    }
    assert_eq!(Groups::of_size(&view(50), 40).len(), 1);
    assert!(Groups::of_size(&view(0), 40).is_empty());
}

#[test]
fn no_server_is_left_to_itself_where_groups_have_more_than_one() {
    let mut rng = Rng::seed(5);
    for round in 0..100 {
        let n = 2 + rng.below(30) as usize;
        let size = 2 + rng.below(5);
        let keys = (0..n).map(|i| format!("{round}/{i}")).collect();
        let alone = of_keys(&keys, size)
            .values()
            .filter(|(m, _)| m.len() == 1)
            .count();
        // Beside a part that is divided further it may happen.
        assert!(alone * 5 <= n, "{alone} of {n} by {size}");
    }
}

/// Properties that differ between nodes have no influence: priorities, localities and their weights, weights, health,
/// the order in which endpoints are given.
#[test]
fn all_nodes_compute_the_same_groups_and_hosts() {
    let mut rng = Rng::seed(6);
    for round in 0..40 {
        let n = 1 + rng.below(150);
        let size = 1 + rng.below(50);
        let mut at_node = |_| {
            let mut endpoints: Vec<_> = (0..n)
                .map(|i| {
                    let mut endpoint = Endpoint::new(format!("10.{round}.0.{i}:80"));
                    endpoint.priority = rng.below(3) as u8;
                    endpoint.weight = (1 + rng.below(1000)).try_into().unwrap();
                    let node = format!("node-{}", rng.below(3));
                    endpoint.locality = Some(Locality::new("eu", "z", node));
                    endpoint.stats.set_healthy(rng.below(4) > 0);
                    endpoint
                })
                .collect();
            for i in (1..endpoints.len()).rev() {
                endpoints.swap(i, rng.below(i as u32 + 1) as usize);
            }
            let weights = (0..3).map(|node| {
                (
                    Locality::new("eu", "z", format!("node-{node}")),
                    rng.below(9),
                )
            });
            let weights: LocalityWeights = weights.collect();
            let params = ViewParams {
                locality_weights: Some(weights).filter(|_| rng.below(2) == 0),
                ..ViewParams::default()
            };
            let view = View::build(endpoints, &params, Time::ZERO);
            seen(&view, &Groups::of_size(&view, size))
        };
        let nodes: Vec<Seen> = (0..4).map(&mut at_node).collect();
        assert!(
            nodes.windows(2).all(|pair| pair[0] == pair[1]),
            "round {round}"
        );
    }
}

#[test]
fn a_join_or_a_leave_concerns_one_group() {
    let mut rng = Rng::seed(7);
    for round in 0..12 {
        let size = 1 + rng.below(45);
        let name = |i: u32| format!("10.{round}.{}.{}:8080", i / 250, i % 250);
        let mut keys: BTreeSet<String> = (0..rng.below(300)).map(name).collect();
        let mut before = of_keys(&keys, size);
        for _ in 0..40 {
            let key = name(rng.below(320));
            let joins = keys.insert(key.clone());
            if !joins {
                keys.remove(&key);
            }
            let after = of_keys(&keys, size);
            let (few, many) = if joins {
                (&before, &after)
            } else {
                (&after, &before)
            };
            let changed = few.iter().filter(|(key, group)| many[*key] != **group);
            let of: BTreeSet<_> = changed.map(|(_, group)| group).collect();
            assert!(of.len() <= 1, "{key} of {} by {size}", keys.len());
            // Nor does another group's host change.
            before = after;
        }
    }
}

#[test]
fn of_a_fixed_number_of_groups_a_join_or_a_leave_moves_no_other_server() {
    let groups_of = |keys: &BTreeSet<String>| {
        let endpoints: Vec<_> = keys.iter().map(|key| Endpoint::new(&**key)).collect();
        let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
        seen(&view, &Groups::of_count(&view, 4))
    };
    let keys: BTreeSet<String> = (0..40).map(|i| format!("s{i}")).collect();
    let all = groups_of(&keys);
    for gone in &keys {
        let mut keys = keys.clone();
        keys.remove(gone);
        for (key, (members, _)) in groups_of(&keys) {
            let mut before = all[&key].0.clone();
            before.remove(&**gone);
            assert_eq!(members, before);
        }
    }
}

#[test]
fn names_lead_to_endpoints() {
    let view = view(5);
    let groups = Groups::of_count(&view, 2);
    assert_eq!(groups.named(Name::of("s3")), Some(Index::new(3)));
    assert_eq!(groups.named(Name::of("unknown")), None);
    assert_eq!(groups.of(Index::new(9)), None);
    assert!(groups.members(9).is_empty());
}
