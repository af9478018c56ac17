//! Chooses lines to be reversed so that the others form no cycles: few lines, and those of little weight (Eades, Lin
//! and Smyth, 1993).

use std::cmp::Ordering;

use super::Graph;

/// Returns for each line whether it is reversed.
pub(super) fn reversed(graph: &Graph) -> Vec<bool> {
    let place = order(graph);
    let lines = graph.lines.iter();
    lines
        .map(|line| place[line.from] > place[line.to])
        .collect()
}

/// A box and its remaining lines while boxes are removed.
#[derive(Clone, Debug, Default)]
struct Left {
    removed: bool,
    out: usize,
    into: usize,
    /// Weight of the lines that leave the box minus that of the lines that enter it.
    excess: f64,
}

/// Returns the position of each box in an order in which most lines point forward.
fn order(graph: &Graph) -> Vec<usize> {
    let count = graph.boxes.len();
    let mut left = vec![Left::default(); count];
    let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for (at, line) in graph.lines.iter().enumerate() {
        out[line.from].push(at);
        into[line.to].push(at);
        left[line.from].out += 1;
        left[line.to].into += 1;
        left[line.from].excess += line.weight;
        left[line.to].excess -= line.weight;
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut next = ends(&left);
    while first.len() + last.len() < count {
        let at = match next.pop() {
            Some(at) if left[at].removed => continue,
            Some(at) => at,
            None => match heaviest(&left) {
                Some(at) => at,
                None => break,
            },
        };
        // A box without lines to remaining boxes is placed last; any other box is placed before the remaining ones.
        match left[at].out == 0 {
            true => last.push(at),
            false => first.push(at),
        }
        left[at].removed = true;
        for line in out[at].iter().map(|line| &graph.lines[*line]) {
            let other = &mut left[line.to];
            other.into -= 1;
            other.excess += line.weight;
            if other.into == 0 {
                next.push(line.to);
            }
        }
        for line in into[at].iter().map(|line| &graph.lines[*line]) {
            let other = &mut left[line.from];
            other.out -= 1;
            other.excess -= line.weight;
            if other.out == 0 {
                next.push(line.from);
            }
        }
    }
    let mut place = vec![0; count];
    for (number, at) in first.into_iter().chain(last.into_iter().rev()).enumerate() {
        place[at] = number;
    }
    place
}

/// Returns the boxes that have no lines in one direction; the last one in the list comes first.
fn ends(left: &[Left]) -> Vec<usize> {
    let is_end = |at: &usize| left[*at].out == 0 || left[*at].into == 0;
    (0..left.len()).rev().filter(is_end).collect()
}

/// Returns the first box with the largest excess; `None` if there are no boxes.
fn heaviest(left: &[Left]) -> Option<usize> {
    let remaining = (0..left.len()).filter(|at| !left[*at].removed);
    remaining.max_by(|one, other| {
        let order = left[*one].excess.total_cmp(&left[*other].excess);
        match order {
            Ordering::Equal => other.cmp(one),
            order => order,
        }
    })
}
