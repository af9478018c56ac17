//! Divides lines into pieces from one rank to the next. Boxes are in even ranks, and labels in the odd ranks between
//! them. Where a line passes a rank without a box or label, it has a bend.

use super::{Graph, Size};

/// Height that a line without a label needs in a rank.
const BEND: f64 = 4.0;
/// Distance between lines at the side of a box.
pub(super) const PORT: f64 = 8.0;

/// The kind of an item in a rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A box, with its number.
    Box(usize),
    Bend,
    /// The label of a line.
    Label,
}

/// An item in a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) rank: usize,
    pub(super) size: Size,
}

/// The pieces of all lines.
#[derive(Debug)]
pub(super) struct Chains {
    /// All items, beginning with the boxes in the order of their numbers.
    pub(super) items: Vec<Item>,
    /// The items of each line, from the left to the right box.
    pub(super) chains: Vec<Vec<usize>>,
    /// The neighbours of each item in the previous and in the next rank.
    pub(super) left: Vec<Vec<usize>>,
    pub(super) right: Vec<Vec<usize>>,
    /// The items of each rank, from top to bottom.
    pub(super) ranks: Vec<Vec<usize>>,
}

impl Chains {
    /// Divides lines with these ends. The first end of each line is in a layer to the left of the second.
    pub(super) fn new(graph: &Graph, ends: &[(usize, usize)], layers: &[usize]) -> Self {
        let count = layers.iter().max().map_or(0, |last| 2 * last + 1);
        let items = graph.boxes.iter().enumerate().map(|(at, size)| Item {
            kind: Kind::Box(at),
            rank: 2 * layers[at],
            size: *size,
        });
        let mut chains = Self {
            items: items.collect(),
            chains: vec![Vec::new(); ends.len()],
            left: vec![Vec::new(); graph.boxes.len()],
            right: vec![Vec::new(); graph.boxes.len()],
            ranks: vec![Vec::new(); count],
        };
        let mut heights = vec![0.0_f64; count];
        let span = |at: &usize| layers[ends[*at].1] - layers[ends[*at].0];
        let mut lines: Vec<usize> = (0..ends.len()).collect();
        // Short lines come first, because the positions of their labels are fixed.
        lines.sort_by_key(span);
        for at in lines {
            let (from, to) = ends[at];
            let between = 2 * layers[from] + 1..2 * layers[to];
            let places = between.clone().filter(|rank| rank % 2 == 1);
            let lowest =
                places.min_by(|one: &usize, other| heights[*one].total_cmp(&heights[*other]));
            let label = graph.lines[at].label;
            let mut last = from;
            chains.chains[at].push(from);
            for rank in between {
                let item = match Some(rank) == lowest {
                    true => Item {
                        kind: Kind::Label,
                        rank,
                        size: label,
                    },
                    false => Item {
                        kind: Kind::Bend,
                        rank,
                        size: Size {
                            width: 0.0,
                            height: BEND,
                        },
                    },
                };
                heights[rank] += item.size.height;
                let number = chains.items.len();
                chains.items.push(item);
                chains.left.push(Vec::new());
                chains.right.push(Vec::new());
                chains.connect(at, last, number);
                last = number;
            }
            chains.connect(at, last, to);
        }
        for (item, it) in chains.items.iter_mut().enumerate() {
            let lines = chains.left[item].len().max(chains.right[item].len());
            if matches!(it.kind, Kind::Box(_)) {
                it.size.height = it.size.height.max((lines + 1) as f64 * PORT);
            }
        }
        chains.first_order();
        chains
    }

    fn connect(&mut self, chain: usize, from: usize, to: usize) {
        self.right[from].push(to);
        self.left[to].push(from);
        self.chains[chain].push(to);
    }

    /// Orders ranks so that connected items are close, by a depth-first search from the left.
    fn first_order(&mut self) {
        let mut seen = vec![false; self.items.len()];
        let mut starts: Vec<usize> = (0..self.items.len()).collect();
        starts.sort_by_key(|item| self.items[*item].rank);
        for start in starts {
            let mut open = vec![start];
            while let Some(item) = open.pop() {
                if !std::mem::replace(&mut seen[item], true) {
                    self.ranks[self.items[item].rank].push(item);
                    open.extend(self.right[item].iter().rev());
                }
            }
        }
    }

    /// Returns the position of each item in its rank.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places = vec![0; self.items.len()];
        for rank in &self.ranks {
            for (place, item) in rank.iter().enumerate() {
                places[*item] = place;
            }
        }
        places
    }
}
