//! Places the items of a rank from top to bottom: as near to their neighbours in other ranks as the items above and
//! below allow, with long lines straight.

use super::chains::{Chains, Kind};
use super::routes::Ports;

/// Number of sweeps over a small graph.
const SWEEPS: usize = 40;
/// Maximum number of items that all sweeps together visit; there are at least four sweeps.
const EFFORT: usize = 600_000;

/// Returns the vertical middle of each item. The upper end of the highest item is 0.
pub(super) fn of(chains: &Chains, ports: &Ports) -> Vec<f64> {
    let mut middles = stacked(chains);
    let sweeps = (EFFORT / chains.items.len().max(1)).clamp(4, SWEEPS);
    for sweep in 0..sweeps {
        let count = chains.ranks.len();
        for step in 0..count {
            let rank = match sweep % 2 == 0 {
                true => step,
                false => count - 1 - step,
            };
            // The first sweeps use the neighbours on one side, so that the whole graph gets into shape; later sweeps
            // use both sides.
            let both = sweep >= sweeps / 2;
            let sides = match (both, sweep % 2 == 0) {
                (true, _) => (true, true),
                (false, left) => (left, !left),
            };
            settle(chains, ports, rank, sides, &mut middles);
        }
    }
    let upper = |item: usize| middles[item] - chains.items[item].size.height / 2.0;
    let top = (0..middles.len()).map(upper).fold(f64::INFINITY, f64::min);
    middles.iter().map(|middle| middle - top).collect()
}

/// Places the items of each rank below each other, centred on a common line.
fn stacked(chains: &Chains) -> Vec<f64> {
    let mut middles = vec![0.0; chains.items.len()];
    for rank in &chains.ranks {
        let mut y = 0.0;
        for pair in rank.windows(2) {
            y += distance(chains, pair[0], pair[1]);
            middles[pair[1]] = y;
        }
        for item in rank {
            middles[*item] -= y / 2.0;
        }
    }
    middles
}

/// Returns the minimum distance between the middles of two adjacent items.
fn distance(chains: &Chains, upper: usize, lower: usize) -> f64 {
    let (upper, lower) = (&chains.items[upper], &chains.items[lower]);
    let space = match (upper.kind, lower.kind) {
        (Kind::Box(_), Kind::Box(_)) => 18.0,
        (Kind::Box(_), _) | (_, Kind::Box(_)) => 10.0,
        (Kind::Label, _) | (_, Kind::Label) => 3.0,
        (Kind::Bend, Kind::Bend) => 5.0,
    };
    (upper.size.height + lower.size.height) / 2.0 + space
}

/// Returns how important it is that a line between two items is horizontal.
fn stiffness(chains: &Chains, one: usize, other: usize) -> f64 {
    match (chains.items[one].kind, chains.items[other].kind) {
        (Kind::Box(_), _) | (_, Kind::Box(_)) => 1.0,
        _ => 8.0,
    }
}

/// Moves the items of a rank towards the positions that their neighbours want, keeping their order and distances. Of
/// all such positions those with the least sum of weighted squares are used; they are found by pooling adjacent items
/// that block each other (isotonic regression).
fn settle(
    chains: &Chains,
    ports: &Ports,
    rank: usize,
    (left, right): (bool, bool),
    middles: &mut [f64],
) {
    let items = &chains.ranks[rank];
    // For each pool, the wanted position, weight and number of items. Positions are reduced by the distances from the
    // first item.
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(items.len());
    let mut offsets = Vec::with_capacity(items.len());
    let mut offset = 0.0;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            offset += distance(chains, items[at - 1], *item);
        }
        offsets.push(offset);
        let (wanted, weight) = wanted(chains, ports, *item, (left, right), middles);
        let mut pool = (wanted - offset, weight, 1);
        while let Some(above) = pools.pop_if(|above| above.0 > pool.0) {
            let weight = above.1 + pool.1;
            let mean = (above.0 * above.1 + pool.0 * pool.1) / weight;
            pool = (mean, weight, above.2 + pool.2);
        }
        pools.push(pool);
    }
    let mut places = items.iter().zip(&offsets);
    for (place, _, count) in pools {
        for (item, offset) in places.by_ref().take(count) {
            middles[*item] = place + offset;
        }
    }
}

/// Returns the middle at which the lines of an item are as horizontal as possible, and the weight of this position.
fn wanted(
    chains: &Chains,
    ports: &Ports,
    item: usize,
    (left, right): (bool, bool),
    middles: &[f64],
) -> (f64, f64) {
    let (mut sum, mut weight) = (0.0, 0.0);
    let mut add = |other: usize, own: f64, theirs: f64| {
        let stiff = stiffness(chains, item, other);
        sum += stiff * (middles[other] + theirs - own);
        weight += stiff;
    };
    if left {
        for (at, other) in chains.left[item].iter().enumerate() {
            add(
                *other,
                ports.left[item][at],
                ports.right_of(chains, *other, item),
            );
        }
    }
    if right {
        for (at, other) in chains.right[item].iter().enumerate() {
            add(
                *other,
                ports.right[item][at],
                ports.left_of(chains, *other, item),
            );
        }
    }
    match weight > 0.0 {
        true => (sum / weight, weight),
        false => (middles[item], 0.1),
    }
}
