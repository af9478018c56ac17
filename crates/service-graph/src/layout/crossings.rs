//! Counts crossings of the lines between two ranks (Barth, Mutzel and Jünger, 2004).

use super::chains::Chains;

/// Returns the number of crossings of all lines.
pub(super) fn count(chains: &Chains) -> usize {
    let places = chains.places();
    let ranks = chains.ranks.iter();
    ranks.map(|rank| right_of(chains, rank, &places)).sum()
}

/// Returns the number of crossings between a rank and the next rank.
fn right_of(chains: &Chains, rank: &[usize], places: &[usize]) -> usize {
    let mut ends = Vec::new();
    for item in rank {
        let start = ends.len();
        ends.extend(chains.right[*item].iter().map(|to| places[*to]));
        ends[start..].sort_unstable();
    }
    inversions(&ends)
}

/// Counts the pairs in the wrong order, with a Fenwick tree (1994).
fn inversions(numbers: &[usize]) -> usize {
    let size = numbers.iter().max().map_or(0, |most| most + 1);
    let mut sums = vec![0; size + 1];
    let mut count = 0;
    for (seen, number) in numbers.iter().enumerate() {
        let (mut not_above, mut at) = (0, number + 1);
        while at > 0 {
            not_above += sums[at];
            at &= at - 1;
        }
        count += seen - not_above;
        at = number + 1;
        while at <= size {
            sums[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    count
}

/// Returns the number of crossings between lines of two items of a rank to `neighbours`, if the items are in this
/// order.
pub(super) fn of_pair(
    neighbours: &[Vec<usize>],
    places: &[usize],
    (upper, lower): (usize, usize),
) -> usize {
    let mut count = 0;
    for one in &neighbours[upper] {
        let others = neighbours[lower].iter();
        count += others
            .filter(|other| places[**other] < places[*one])
            .count();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_the_wrong_order_are_counted() {
        assert_eq!(inversions(&[]), 0);
        assert_eq!(inversions(&[0, 0, 1, 2]), 0);
        assert_eq!(inversions(&[2, 1, 0]), 3);
        assert_eq!(inversions(&[1, 3, 0, 2, 0]), 6);
    }
}
