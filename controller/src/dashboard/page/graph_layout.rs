//! Positions of vertices and edges, which stay while only numbers change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use maglor_service_graph::layout::{self, Graph, Line, Point, Rect, Size};

use crate::dashboard::page::model::Mesh;

/// Size of a vertex's box: the width of its longest line of text, and three lines.
const BOX_HEIGHT: f64 = 64.0;
const BOX_WIDTHS: (f64, f64) = (148.0, 280.0);
/// Width of a character of a name, and of the space around it.
const CHARACTER: f64 = 7.6;
const PADDING: f64 = 40.0;
/// Size of an edge's label, and the number of edges beyond which there are none: the picture would be too large.
const LABEL: Size = Size {
    width: 96.0,
    height: 16.0,
};
const MOST_LABELS: usize = 80;
/// Time in seconds for which an edge without calls keeps its place.
const KEPT: u64 = 300;

/// The positions of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Places {
    pub(crate) size: (f64, f64),
    pub(crate) boxes: BTreeMap<String, Rect>,
    pub(crate) paths: BTreeMap<(String, String), Path>,
}

/// The path of an edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Path {
    /// The `d` of an SVG path.
    pub(crate) data: String,
    /// Position of the label; `None` if there is none.
    pub(crate) label: Option<Rect>,
    /// Whether the edge points from right to left.
    pub(crate) reversed: bool,
}

/// Computes positions again only if there are other vertices or edges than before.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    /// The edges, and when each was last there, in Unix seconds.
    edges: BTreeMap<(String, String), u64>,
    vertices: BTreeSet<String>,
    drawn: BTreeSet<(String, String)>,
    places: Places,
}

impl Layouts {
    /// Returns the positions of a graph at a time in Unix seconds.
    pub(crate) fn of(&mut self, mesh: &Mesh, now: u64) -> &Places {
        let vertices: BTreeSet<String> = mesh.vertices.keys().cloned().collect();
        for edge in mesh.edges.iter().filter(|edge| edge.from != edge.to) {
            let pair = (edge.from.clone(), edge.to.clone());
            self.edges.insert(pair, now);
        }
        self.edges.retain(|(from, to), at| {
            let ends = vertices.contains(from) && vertices.contains(to);
            ends && now.saturating_sub(*at) < KEPT
        });
        let same = self.vertices == vertices && self.drawn.iter().eq(self.edges.keys());
        if !same {
            self.drawn = self.edges.keys().cloned().collect();
            self.places = place(&vertices, &self.drawn);
            self.vertices = vertices;
        }
        &self.places
    }
}

/// Lays out a graph. The result does not depend on rates, so it is the same whenever the graph is.
fn place(vertices: &BTreeSet<String>, edges: &BTreeSet<(String, String)>) -> Places {
    let number = |name: &String| vertices.iter().position(|one| one == name);
    let label = match edges.len() <= MOST_LABELS {
        true => LABEL,
        false => Size::default(),
    };
    let lines: Vec<(&(String, String), Line)> = edges
        .iter()
        .filter_map(|pair| {
            let (from, to) = (number(&pair.0)?, number(&pair.1)?);
            let weight = 1.0;
            Some((
                pair,
                Line {
                    from,
                    to,
                    weight,
                    label,
                },
            ))
        })
        .collect();
    let layout = layout::place(&Graph {
        boxes: vertices.iter().map(|name| size(name)).collect(),
        lines: lines.iter().map(|(_, line)| *line).collect(),
    });
    let boxes = vertices.iter().cloned().zip(layout.boxes);
    let paths = lines.iter().zip(layout.routes).map(|((pair, _), route)| {
        let path = Path {
            data: data(&route.points),
            label: (label != Size::default()).then_some(route.label),
            reversed: route.reversed,
        };
        ((*pair).clone(), path)
    });
    Places {
        size: (layout.size.width, layout.size.height),
        boxes: boxes.collect(),
        paths: paths.collect(),
    }
}

fn size(name: &str) -> Size {
    let shown = name.split_once('/').map_or(name, |(_, name)| name);
    let width = shown.chars().count() as f64 * CHARACTER + PADDING;
    Size {
        width: width.clamp(BOX_WIDTHS.0, BOX_WIDTHS.1).round(),
        height: BOX_HEIGHT,
    }
}

/// Returns the path through the points of a route: curves and horizontal lines alternate.
fn data(points: &[Point]) -> String {
    let mut path = String::new();
    let Some(first) = points.first() else {
        return path;
    };
    // Writing to a string does not fail.
    let _ = write!(path, "M{:.0} {:.1}", first.x, first.y);
    for (at, pair) in points.windows(2).enumerate() {
        let [from, to] = pair else { continue };
        let straight = at % 2 == 1 || (from.y - to.y).abs() < 0.05;
        let _ = match straight {
            true => write!(path, "L{:.0} {:.1}", to.x, to.y),
            false => {
                let middle = (from.x + to.x) / 2.0;
                write!(
                    path,
                    "C{middle:.0} {:.1} {middle:.0} {:.1} {:.0} {:.1}",
                    from.y, to.y, to.x, to.y
                )
            }
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::page::model::{Edge, Signals, Vertex};

    fn mesh(edges: &[(usize, usize)], vertices: usize) -> Mesh {
        let name = |number: usize| format!("shop/service-{number}");
        Mesh {
            vertices: (0..vertices)
                .map(|one| (name(one), Vertex::default()))
                .collect(),
            edges: edges
                .iter()
                .map(|(from, to)| Edge {
                    from: name(*from),
                    to: name(*to),
                    signals: Signals::default(),
                    ..Edge::default()
                })
                .collect(),
            ..Mesh::default()
        }
    }

    #[test]
    fn positions_stay_while_an_edge_is_briefly_without_calls() {
        let mut layouts = Layouts::default();
        let all = mesh(&[(0, 1), (1, 2), (0, 2), (2, 2)], 3);
        let before = layouts.of(&all, 1000).clone();
        assert_eq!((before.boxes.len(), before.paths.len()), (3, 3));
        let fewer = mesh(&[(0, 1), (1, 2)], 3);
        assert_eq!(layouts.of(&fewer, 1200), &before);
        assert_ne!(layouts.of(&fewer, 1301), &before);
        assert_eq!(layouts.of(&all, 1302), &before);
        let path = &before.paths[&("shop/service-0".to_owned(), "shop/service-1".to_owned())];
        assert!(
            path.data.starts_with('M') && path.label.is_some(),
            "{path:?}"
        );
    }

    #[test]
    fn fifty_services_with_500_edges_are_placed_quickly() {
        let edges: Vec<_> = (0..50)
            .flat_map(|from| (1..=10).map(move |step| (from, (from + step * step) % 50)))
            .collect();
        let begun = std::time::Instant::now();
        let places = Layouts::default().of(&mesh(&edges, 50), 0).clone();
        assert!(places.paths.len() > 400 && places.paths.len() <= 500);
        // Optimized for this package's dependency in all profiles; once for each change of the graph.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
        eprintln!("{:?} in {:?}", places.size, begun.elapsed());
    }
}
