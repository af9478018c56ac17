//! Determines where lines leave boxes, and their routes from rank to rank.

use super::chains::{Chains, Kind, PORT};
use super::{Graph, Layout, Point, Rect, Route, Size};

/// Minimum and maximum distance between two ranks, for curves.
const LEAST_GAP: f64 = 22.0;
const LARGEST_GAP: f64 = 100.0;
/// Distance between two ranks for each pixel that a curve between them goes up or down.
const SLOPE: f64 = 0.25;
/// Distance of a line above the lower end of its label.
const BELOW_LABEL: f64 = 1.5;

/// The distances of lines from the middles of items, for each neighbour in order.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) left: Vec<Vec<f64>>,
    pub(super) right: Vec<Vec<f64>>,
}

impl Ports {
    /// Returns where the line to an item leaves its left neighbour.
    pub(super) fn right_of(&self, chains: &Chains, left: usize, item: usize) -> f64 {
        port(&chains.right[left], &self.right[left], item)
    }

    /// Returns where the line from an item enters its right neighbour.
    pub(super) fn left_of(&self, chains: &Chains, right: usize, item: usize) -> f64 {
        port(&chains.left[right], &self.left[right], item)
    }
}

fn port(neighbours: &[usize], ports: &[f64], wanted: usize) -> f64 {
    let at = neighbours.iter().position(|item| *item == wanted);
    at.and_then(|at| ports.get(at)).copied().unwrap_or(0.0)
}

/// Distributes the lines of a box over its sides, in the order of their other ends. All other items have a single
/// line.
pub(super) fn ports(chains: &Chains) -> Ports {
    let places = chains.places();
    let side = |neighbours: &Vec<Vec<usize>>| {
        let sides = neighbours.iter().enumerate().map(|(item, others)| {
            let it = &chains.items[item];
            if it.kind == Kind::Label {
                return vec![it.size.height / 2.0 - BELOW_LABEL; others.len()];
            }
            let mut order: Vec<usize> = (0..others.len()).collect();
            order.sort_by_key(|at| places[others[*at]]);
            let mut ports = vec![0.0; others.len()];
            let middle = (others.len() as f64 - 1.0) / 2.0;
            for (number, at) in order.into_iter().enumerate() {
                ports[at] = (number as f64 - middle) * PORT;
            }
            ports
        });
        sides.collect()
    };
    Ports {
        left: side(&chains.left),
        right: side(&chains.right),
    }
}

/// Returns the positions of boxes, lines and labels.
pub(super) fn layout(
    graph: &Graph,
    chains: &Chains,
    reversed: &[bool],
    ports: &Ports,
    middles: &[f64],
) -> Layout {
    let spans = spans(chains, ports, middles);
    let boxes = (0..graph.boxes.len()).map(|item| {
        let (left, right) = spans[chains.items[item].rank];
        let height = chains.items[item].size.height;
        Rect {
            x: left,
            y: middles[item] - height / 2.0,
            width: right - left,
            height,
        }
    });
    let routes = chains.chains.iter().zip(reversed).map(|(chain, reversed)| {
        let mut route = route(chains, chain, ports, middles, &spans);
        route.reversed = *reversed;
        if *reversed {
            route.points.reverse();
        }
        route
    });
    let lower = |item: usize| middles[item] + chains.items[item].size.height / 2.0;
    Layout {
        boxes: boxes.collect(),
        routes: routes.collect(),
        size: Size {
            width: spans.last().map_or(0.0, |(_, right)| *right),
            height: (0..middles.len()).map(lower).fold(0.0, f64::max),
        },
    }
}

/// Returns the left and right end of each rank. The steeper the curves between two ranks, the larger the space
/// between them.
fn spans(chains: &Chains, ports: &Ports, middles: &[f64]) -> Vec<(f64, f64)> {
    let mut spans = Vec::with_capacity(chains.ranks.len());
    let mut x = 0.0;
    for rank in &chains.ranks {
        let widths = rank.iter().map(|item| chains.items[*item].size.width);
        let width = widths.fold(0.0, f64::max);
        spans.push((x, x + width));
        let mut steepest = 0.0_f64;
        for item in rank {
            for (at, next) in chains.right[*item].iter().enumerate() {
                let from = middles[*item] + ports.right[*item][at];
                let to = middles[*next] + ports.left_of(chains, *next, *item);
                steepest = steepest.max((from - to).abs());
            }
        }
        x += width + (SLOPE * steepest).clamp(LEAST_GAP, LARGEST_GAP);
    }
    spans
}

/// Returns the route of a line from left to right.
fn route(
    chains: &Chains,
    chain: &[usize],
    ports: &Ports,
    middles: &[f64],
    spans: &[(f64, f64)],
) -> Route {
    let mut route = Route::default();
    for pair in chain.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let (left, right) = (spans[chains.items[from].rank], spans[chains.items[to].rank]);
        route.points.push(Point {
            x: left.1,
            y: middles[from] + ports.right_of(chains, from, to),
        });
        route.points.push(Point {
            x: right.0,
            y: middles[to] + ports.left_of(chains, to, from),
        });
        let item = &chains.items[from];
        if item.kind == Kind::Label {
            route.label = Rect {
                x: left.0,
                y: middles[from] - item.size.height / 2.0,
                width: item.size.width,
                height: item.size.height,
            };
        }
    }
    route
}
