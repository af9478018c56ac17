//! Splits a graph into connected components and isolated boxes.

use super::Graph;

/// A connected part: the numbers of its boxes and lines in the whole graph.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) boxes: Vec<usize>,
    pub(super) lines: Vec<usize>,
}

/// All parts.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Connected parts, largest first.
    pub(super) connected: Vec<Part>,
    /// Boxes without lines.
    pub(super) single: Vec<usize>,
}

impl Part {
    /// Returns the part as a graph with its own numbering.
    pub(super) fn graph(&self, whole: &Graph) -> Graph {
        let mut own = vec![0; whole.boxes.len()];
        for (number, at) in self.boxes.iter().enumerate() {
            own[*at] = number;
        }
        let lines = self.lines.iter().map(|at| {
            let mut line = whole.lines[*at];
            (line.from, line.to) = (own[line.from], own[line.to]);
            line
        });
        Graph {
            boxes: self.boxes.iter().map(|at| whole.boxes[*at]).collect(),
            lines: lines.collect(),
        }
    }
}

/// Divides a graph.
pub(super) fn of(graph: &Graph) -> Parts {
    let mut neighbours = vec![Vec::new(); graph.boxes.len()];
    for line in &graph.lines {
        neighbours[line.from].push(line.to);
        neighbours[line.to].push(line.from);
    }
    let mut part_of = vec![usize::MAX; graph.boxes.len()];
    let mut parts = Parts::default();
    for start in 0..graph.boxes.len() {
        if neighbours[start].is_empty() {
            parts.single.push(start);
        }
        if part_of[start] != usize::MAX || neighbours[start].is_empty() {
            continue;
        }
        let number = parts.connected.len();
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            if part_of[at] == usize::MAX {
                part_of[at] = number;
                open.extend(&neighbours[at]);
            }
        }
        parts.connected.push(Part::default());
    }
    for (at, number) in part_of.iter().enumerate() {
        if let Some(part) = parts.connected.get_mut(*number) {
            part.boxes.push(at);
        }
    }
    for (at, line) in graph.lines.iter().enumerate() {
        if let Some(part) = parts.connected.get_mut(part_of[line.from]) {
            part.lines.push(at);
        }
    }
    // Parts of equal size stay in the order of their first boxes.
    parts
        .connected
        .sort_by_key(|part| std::cmp::Reverse(part.boxes.len()));
    parts
}
