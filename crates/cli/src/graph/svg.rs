//! Draws the graph as a picture, with callers to the left of the services that they call.

mod legend;
mod style;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maglor_controller::graph::{Edge, Service, Snapshot};
use maglor_service_graph::layout::{self, Graph, Line, Rect, Route, Size};

use self::style::Class;
use super::labels;

/// Font sizes.
const NAME: f64 = 12.0;
const TEXT: f64 = 10.0;
/// Distance between lines of text in a box.
const LINE: f64 = 13.0;
/// Space around the text of a box.
const PADDING: f64 = 9.0;
/// Width of the lock symbol in a label.
const LOCK: f64 = 10.0;
/// Height of a label above its line.
const LABEL: f64 = 12.5;
/// Length of an arrow head.
const ARROW: f64 = 8.0;

/// The contents of a picture.
struct Picture<'a> {
    snapshot: &'a Snapshot,
    /// The edges between two shown services.
    edges: Vec<Drawn<'a>>,
    /// The lines of text for each service.
    texts: Vec<Vec<String>>,
    /// The class of each service, according to the calls to it.
    classes: Vec<Class>,
}

struct Drawn<'a> {
    edge: &'a Edge,
    line: Line,
    class: Class,
    width: f64,
    /// Whether the callers' proxies use mutual TLS.
    mtls: bool,
}

/// Draws the picture.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let picture = Picture::new(snapshot);
    let places = layout::place(&picture.graph());
    let reversed = places.routes.iter().any(|route| route.reversed);
    let legend = legend::entries(&picture, reversed);
    let width = places.size.width.ceil();
    let (legend, height) = legend::draw(&legend, width, places.size.height, &caption(snapshot));
    let mut text = style::head(width, height, &picture.title(), &picture.description());
    for (drawn, route) in picture.edges.iter().zip(&places.routes) {
        draw_edge(&mut text, drawn, route);
    }
    for (at, service) in snapshot.services.iter().enumerate() {
        let (lines, class) = (&picture.texts[at], picture.classes[at]);
        draw_service(&mut text, service, lines, class, places.boxes[at]);
    }
    text + &legend + "</svg>\n"
}

fn caption(snapshot: &Snapshot) -> String {
    match snapshot.at.is_empty() {
        true => String::new(),
        false => format!(
            "{}, averages over {} s",
            snapshot.at, snapshot.window_seconds
        ),
    }
}

impl<'a> Picture<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let names = snapshot.services.iter().enumerate();
        let numbers: BTreeMap<&str, usize> = names.map(|(at, one)| (&*one.name, at)).collect();
        let width = widths(snapshot);
        let mut edges = Vec::new();
        let mut itself = vec![None; snapshot.services.len()];
        let mut called = vec![(0.0, 0.0); snapshot.services.len()];
        for edge in &snapshot.edges {
            let (Some(&from), Some(&to)) = (numbers.get(&*edge.from), numbers.get(&*edge.to))
            else {
                continue;
            };
            called[to].0 += edge.rps;
            called[to].1 += edge.failures;
            if from == to {
                itself[to] = Some(edge);
                continue;
            }
            let mtls = snapshot.services[to].mtls == Some(true);
            let width = width(edge);
            let lock = if mtls { LOCK } else { 0.0 };
            edges.push(Drawn {
                edge,
                class: Class::of_edge(edge),
                width,
                mtls,
                line: Line {
                    from,
                    to,
                    // Connections count, too, but less than any calls.
                    weight: edge.rps + 1e-3,
                    label: Size {
                        width: lock + labels::width(&labels::label(edge), TEXT) + 6.0,
                        height: LABEL + width,
                    },
                },
            });
        }
        let texts = snapshot.services.iter().zip(itself);
        let classes = called.iter();
        Self {
            snapshot,
            edges,
            texts: texts
                .map(|(service, itself)| labels::box_lines(service, itself))
                .collect(),
            classes: classes
                .map(|(rps, failures)| Class::of_calls(*rps, *failures))
                .collect(),
        }
    }

    fn graph(&self) -> Graph {
        let size = |lines: &Vec<String>| {
            let widths = lines.iter().enumerate().map(|(at, line)| match at {
                // The name is bold.
                0 => labels::width(line, NAME) * 1.06,
                _ => labels::width(line, TEXT),
            });
            Size {
                width: (widths.fold(0.0, f64::max) + 2.0 * PADDING).round(),
                height: 2.0 * PADDING + LINE * lines.len() as f64,
            }
        };
        Graph {
            boxes: self.texts.iter().map(size).collect(),
            lines: self.edges.iter().map(|drawn| drawn.line).collect(),
        }
    }

    fn title(&self) -> String {
        let (services, calls) = (self.snapshot.services.len(), self.snapshot.edges.len());
        format!("Communication graph: {services} services, {calls} edges")
    }

    /// Describes the picture to readers who cannot see it: the busiest edges, and those with failures.
    fn description(&self) -> String {
        let total: f64 = self.snapshot.edges.iter().map(|edge| edge.rps).sum();
        let failing = self.edges.iter().filter(|drawn| drawn.class.is_bad());
        let failing: Vec<String> = failing.map(|drawn| described(drawn.edge)).collect();
        let failing = match failing.is_empty() {
            true => "no edge fails often".to_owned(),
            false => format!("failing: {}", failing.join("; ")),
        };
        format!("{} in all; {failing}.", labels::rate(total))
    }
}

/// Returns the width of a line, which depends logarithmically on its rate; at most 4.5.
pub(super) fn widths(snapshot: &Snapshot) -> impl Fn(&Edge) -> f64 {
    let rates = snapshot.edges.iter().map(|edge| edge.rps);
    let most = rates.fold(0.0, f64::max);
    move |edge| match most > 0.0 {
        true => 1.0 + 3.5 * edge.rps.ln_1p() / most.ln_1p(),
        false => 1.0,
    }
}

fn described(edge: &Edge) -> String {
    format!("{} → {}: {}", edge.from, edge.to, labels::traffic(edge))
}

fn draw_service(text: &mut String, service: &Service, lines: &[String], class: Class, at: Rect) {
    let title = escaped(&service.name);
    let class = class.name();
    let Rect {
        x,
        y,
        width,
        height,
    } = at;
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "<g class=\"box {class}\"><title>{title}</title>\
         <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"6\"/>"
    );
    let first = y + (height - LINE * lines.len() as f64) / 2.0 + TEXT;
    for (number, line) in lines.iter().enumerate() {
        let (x, y) = (x + width / 2.0, first + LINE * number as f64);
        let class = if number == 0 { " class=\"name\"" } else { "" };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{}</text>",
            escaped(line)
        );
    }
    text.push_str("</g>\n");
}

fn draw_edge(text: &mut String, drawn: &Drawn<'_>, route: &Route) {
    let mut title = described(drawn.edge);
    if drawn.mtls {
        title += ", mutual TLS";
    }
    let class = drawn.class.name();
    let back = if route.reversed { " back" } else { "" };
    let _ = writeln!(
        text,
        "<g class=\"edge {class}{back}\"><title>{}</title>\
         <path d=\"{}\" stroke-width=\"{:.1}\" marker-end=\"url(#{class})\"/>",
        escaped(&title),
        path(route),
        drawn.width,
    );
    let Rect { x, y, .. } = route.label;
    let (mut x, y) = (x + 3.0, y + TEXT);
    if drawn.mtls {
        let _ = writeln!(
            text,
            "<use href=\"#lock\" x=\"{x:.1}\" y=\"{:.1}\"/>",
            y - 8.0
        );
        x += LOCK;
    }
    let label = escaped(&labels::label(drawn.edge));
    let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{label}</text></g>");
}

/// Formats a route, which ends where its arrow head begins.
fn path(route: &Route) -> String {
    let mut path = String::new();
    let last = route.points.len().saturating_sub(1);
    for (at, pair) in route.points.windows(2).enumerate() {
        let (from, mut to) = (pair[0], pair[1]);
        if at == 0 {
            let _ = write!(path, "M{:.1} {:.1}", from.x, from.y);
        }
        if at + 1 == last {
            to.x -= ARROW * (to.x - from.x).signum();
        }
        let middle = (from.x + to.x) / 2.0;
        let _ = match at % 2 == 0 && (from.y - to.y).abs() > 0.05 {
            true => write!(
                path,
                "C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}",
                from.y, to.y, to.x, to.y
            ),
            false => write!(path, "H{:.1}", to.x),
        };
    }
    path
}

fn escaped(text: &str) -> String {
    // Control characters are not allowed in XML, not even escaped.
    text.replace(char::is_control, "\u{fffd}")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
