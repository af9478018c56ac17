//! Orders ranks so that few lines cross: each item moves to the mean place of its neighbours in the rank before or after,
//! then neighbours change places where that helps.

use super::chains::Chains;
use super::crossings;

/// The number of sweeps over a small graph.
const SWEEPS: usize = 32;
/// The number of items that all sweeps together look at, at most; at least two sweeps.
const EFFORT: usize = 400_000;
/// The number of items up to which neighbours change places.
const SMALL: usize = 4000;

/// Chooses the order; the best one that was seen.
pub(super) fn reduce_crossings(chains: &mut Chains) {
    let items = chains.items.len().max(1);
    let sweeps = (EFFORT / items).clamp(2, SWEEPS);
    let mut best = (crossings::count(chains), chains.ranks.clone());
    for sweep in 0..sweeps {
        let right = sweep % 2 == 0;
        sweep_once(chains, right, sweep % 4 < 2);
        if items <= SMALL {
            swap_neighbours(chains);
        }
        let count = crossings::count(chains);
        if count < best.0 {
            best = (count, chains.ranks.clone());
        }
        if count == 0 {
            break;
        }
    }
    chains.ranks = best.1;
}

/// Sorts each rank by the mean places of the neighbours in the rank before it. Of items with the same mean, the order
/// stays or is turned around, so that the search does not end in a circle.
fn sweep_once(chains: &mut Chains, right: bool, keep: bool) {
    let mut places = chains.places();
    let count = chains.ranks.len();
    for step in 1..count {
        let (rank, neighbours) = match right {
            true => (step, &chains.left),
            false => (count - 1 - step, &chains.right),
        };
        let mean = |item: usize| {
            let near = &neighbours[item];
            let sum: usize = near.iter().map(|other| places[*other]).sum();
            match near.is_empty() {
                true => None,
                false => Some(sum as f64 / near.len() as f64),
            }
        };
        let items = &mut chains.ranks[rank];
        // Items without neighbours keep their places; the others are sorted into the rest.
        let free = items.iter().filter_map(|item| Some((mean(*item)?, *item)));
        let mut sorted: Vec<(f64, usize)> = free.collect();
        if !keep {
            sorted.reverse();
        }
        sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut sorted = sorted.into_iter();
        for item in items.iter_mut() {
            if !neighbours[*item].is_empty()
                && let Some((_, next)) = sorted.next()
            {
                *item = next;
            }
        }
        for (place, item) in items.iter().enumerate() {
            places[*item] = place;
        }
    }
}

/// Lets items that are next to each other change places as long as that removes crossings.
fn swap_neighbours(chains: &mut Chains) {
    let mut places = chains.places();
    let (left, right) = (&chains.left, &chains.right);
    let mut improved = true;
    while improved {
        improved = false;
        for rank in &mut chains.ranks {
            for at in 1..rank.len() {
                let pair = (rank[at - 1], rank[at]);
                let count = |pair| {
                    crossings::of_pair(left, &places, pair)
                        + crossings::of_pair(right, &places, pair)
                };
                if count((pair.1, pair.0)) < count(pair) {
                    rank.swap(at - 1, at);
                    places.swap(pair.0, pair.1);
                    improved = true;
                }
            }
        }
    }
}
