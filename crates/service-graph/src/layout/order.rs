//! Orders ranks so that few lines cross: each item moves to the mean position of its neighbours in the previous or
//! next rank, then adjacent items are swapped where this removes crossings.

use super::chains::Chains;
use super::crossings;

/// Number of sweeps over a small graph.
const SWEEPS: usize = 32;
/// Maximum number of items that all sweeps together visit; there are at least two sweeps.
const EFFORT: usize = 400_000;
/// Maximum number of items up to which adjacent items are swapped.
const SMALL: usize = 4000;

/// Chooses the best order that was found.
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

/// Sorts each rank by the mean positions of the neighbours in the previous rank. Items with the same mean keep their
/// order or are reversed, so that the search does not end in a cycle.
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
        // Items without neighbours keep their positions; the others are sorted into the remaining ones.
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

/// Swaps adjacent items as long as this removes crossings.
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
