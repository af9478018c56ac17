//! Places a graph in layers from left to right (Sugiyama, Tagawa and Toda, 1981): calls against the order of layers
//! are reversed; long calls and labels get their own position in each layer that they pass; the order within layers
//! is chosen for few crossings, and the distances for straight lines.
//!
//! By construction no two boxes overlap and no line passes behind a box or a label. The layout of a graph is always
//! the same.

mod chains;
mod coordinates;
mod crossings;
mod cycles;
mod layers;
mod order;
mod parts;
mod routes;
#[cfg(test)]
mod tests;

use self::chains::Chains;

/// Space around the picture, and between parts that are not connected.
const MARGIN: f64 = 20.0;
/// Space between boxes of services that neither call nor are called.
const GRID: f64 = 14.0;
/// Minimum width of the rows of such services.
const LEAST_WIDTH: f64 = 600.0;

/// A width and a height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Size {
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
}

/// A point, relative to the upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// The distance from the left.
    pub x: f64,
    /// The distance from the top.
    pub y: f64,
}

/// A rectangle, given by its upper left corner and size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// The distance from the left.
    pub x: f64,
    /// The distance from the top.
    pub y: f64,
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
}

impl Rect {
    fn moved(self, x: f64, y: f64) -> Self {
        Self {
            x: self.x + x,
            y: self.y + y,
            ..self
        }
    }
}

/// A line with a label between two different boxes.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The index of the box where the line begins.
    pub from: usize,
    /// The index of the box where it ends.
    pub to: usize,
    /// How important it is that the line points to the right.
    pub weight: f64,
    /// The size of the label; zero if there is none.
    pub label: Size,
}

/// The graph to lay out.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The minimum size of each box, which grows with the number of its lines.
    pub boxes: Vec<Size>,
    /// The lines between the boxes.
    pub lines: Vec<Line>,
}

/// The positions of boxes and lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The size of the whole picture.
    pub size: Size,
    /// The position of each box.
    pub boxes: Vec<Rect>,
    /// The route of each line.
    pub routes: Vec<Route>,
}

/// The route of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// Points from the caller to the called service: a curve from the first to the second, a horizontal line to the
    /// third, a curve to the fourth, and so on.
    pub points: Vec<Point>,
    /// Position of the label, above a horizontal line.
    pub label: Rect,
    /// Whether the line points from right to left.
    pub reversed: bool,
}

/// Lays out a graph: connected parts below each other, largest first, followed by single boxes in rows.
#[must_use]
pub fn place(graph: &Graph) -> Layout {
    let mut layout = Layout {
        boxes: vec![Rect::default(); graph.boxes.len()],
        routes: vec![Route::default(); graph.lines.len()],
        ..Layout::default()
    };
    let parts = parts::of(graph);
    let (mut width, mut y) = (LEAST_WIDTH, MARGIN);
    for part in &parts.connected {
        let placed = place_part(&part.graph(graph));
        for (own, whole) in part.boxes.iter().enumerate() {
            layout.boxes[*whole] = placed.boxes[own].moved(MARGIN, y);
        }
        for (own, whole) in part.lines.iter().enumerate() {
            layout.routes[*whole] = placed.routes[own].moved(MARGIN, y);
        }
        width = width.max(placed.size.width);
        y += placed.size.height + MARGIN;
    }
    let end = rows(
        graph,
        &parts.single,
        Point { x: width, y },
        &mut layout.boxes,
    );
    layout.size = Size {
        width: width + 2.0 * MARGIN,
        height: end,
    };
    layout
}

impl Route {
    fn moved(&self, x: f64, y: f64) -> Self {
        let points = self.points.iter();
        Self {
            points: points
                .map(|point| Point {
                    x: point.x + x,
                    y: point.y + y,
                })
                .collect(),
            label: self.label.moved(x, y),
            reversed: self.reversed,
        }
    }
}

fn place_part(graph: &Graph) -> Layout {
    let reversed = cycles::reversed(graph);
    let ends: Vec<(usize, usize)> = graph
        .lines
        .iter()
        .zip(&reversed)
        .map(|(line, reversed)| match reversed {
            true => (line.to, line.from),
            false => (line.from, line.to),
        })
        .collect();
    let layers = layers::of(graph.boxes.len(), &ends);
    let mut chains = Chains::new(graph, &ends, &layers);
    order::reduce_crossings(&mut chains);
    let ports = routes::ports(&chains);
    let middles = coordinates::of(&chains, &ports);
    routes::layout(graph, &chains, &reversed, &ports, &middles)
}

/// Places boxes in rows, from a start point and up to a width. Returns the lower end of the picture.
fn rows(graph: &Graph, boxes: &[usize], start: Point, places: &mut [Rect]) -> f64 {
    let (mut x, mut y, mut height) = (0.0, start.y, 0.0_f64);
    for at in boxes {
        let size = graph.boxes[*at];
        if x > 0.0 && x + size.width > start.x {
            (x, y, height) = (0.0, y + height + GRID, 0.0);
        }
        places[*at] = Rect {
            x: MARGIN + x,
            y,
            width: size.width,
            height: size.height,
        };
        x += size.width + GRID;
        height = height.max(size.height);
    }
    match boxes.is_empty() {
        true => y,
        false => y + height + MARGIN,
    }
}
