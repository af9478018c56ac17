//! Draws the graph as a picture: callers at the left, called services to the right of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maglor_controller::graph::{Edge, Service, Snapshot};

const WIDTH: usize = 190;
const HEIGHT: usize = 74;
const GAP_X: usize = 150;
const GAP_Y: usize = 34;
const MARGIN: usize = 20;
/// The number of rounds of moving services towards their neighbours.
const ROUNDS: usize = 8;

/// Returns the text in a service's box.
pub(super) fn lines(service: &Service) -> Vec<String> {
    let replicas = match service.replicas {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    };
    let amount = |used: Option<f64>, requested: u64, unit: &str| match (used, requested) {
        (Some(used), 0) => Some(format!("{used:.0} {unit}")),
        (Some(used), requested) => Some(format!("{used:.0} of {requested} {unit}")),
        (None, 0) => None,
        (None, requested) => Some(format!("{requested} {unit}")),
    };
    let cpu = amount(service.cpu_used_millis, service.cpu_millis, "mCPU");
    let memory = amount(service.memory_used_mib, service.memory_mib, "MiB");
    let mut lines = vec![service.name.clone(), replicas];
    let amounts: Vec<String> = cpu.into_iter().chain(memory).collect();
    if !amounts.is_empty() {
        lines.push(amounts.join(", "));
    }
    lines
}

/// Formats λ and r; for TCP connections, the bytes.
pub(super) fn traffic(edge: &Edge) -> String {
    if edge.rps == 0.0 && edge.bytes_per_second > 0.0 {
        return format!("{:.1} kB/s", edge.bytes_per_second / 1000.0);
    }
    let rate = match edge.rps {
        rps if rps >= 10.0 => format!("{rps:.0}/s"),
        rps => format!("{rps:.1}/s"),
    };
    let failed = match edge.failures > 0.0 && edge.rps > 0.0 {
        true => format!(" · {:.1} % fail", 100.0 * edge.failures / edge.rps),
        false => String::new(),
    };
    format!("{rate} · {:.2} ms{failed}", edge.latency_ms)
}

/// Draws the picture.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let places = places(snapshot);
    let columns = places.values().map(|place| place.0 + 1).max().unwrap_or(1);
    let rows = places.values().map(|place| place.1 + 1).max().unwrap_or(1);
    let (width, height) = (
        2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X,
        2 * MARGIN + rows * (HEIGHT + GAP_Y),
    );
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"to\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let width = widths(snapshot);
    for edge in &snapshot.edges {
        draw_edge(&mut text, edge, &places, width(edge));
    }
    for service in &snapshot.services {
        draw_service(&mut text, service, &places);
    }
    text + "</svg>\n"
}

/// Column and row of each service.
type Places<'a> = BTreeMap<&'a str, (usize, usize)>;

/// Returns the left top corner.
fn corner(place: (usize, usize)) -> (usize, usize) {
    (
        MARGIN + place.0 * (WIDTH + GAP_X),
        MARGIN + GAP_Y / 2 + place.1 * (HEIGHT + GAP_Y),
    )
}

fn draw_service(text: &mut String, service: &Service, places: &Places<'_>) {
    let Some(place) = places.get(&*service.name) else {
        return;
    };
    let (x, y) = corner(*place);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\" fill=\"#eef4fb\" stroke=\"#3b6ea5\"/>"
    );
    for (index, line) in lines(service).iter().enumerate() {
        let weight = if index == 0 {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let (x, y) = (x + WIDTH / 2, y + 22 + 18 * index);
        let line = escaped(line);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\"{weight}>{line}</text>"
        );
    }
}

/// Returns the width of an edge: the busiest is four times as wide as one without calls.
pub(super) fn widths(snapshot: &Snapshot) -> impl Fn(&Edge) -> f64 {
    let rates = snapshot.edges.iter().map(|edge| edge.rps);
    let most = rates.fold(0.0, f64::max);
    move |edge| match most > 0.0 {
        true => 1.0 + 3.0 * edge.rps / most,
        false => 1.0,
    }
}

fn draw_edge(text: &mut String, edge: &Edge, places: &Places<'_>, line: f64) {
    let (Some(from), Some(to)) = (places.get(&*edge.from), places.get(&*edge.to)) else {
        return;
    };
    let ((x1, y1), (x2, y2)) = (corner(*from), corner(*to));
    let (y1, y2) = (y1 + HEIGHT / 2, y2 + HEIGHT / 2);
    let path = match from.0 < to.0 {
        true => {
            let (x1, middle) = (x1 + WIDTH, (x1 + WIDTH + x2) / 2);
            format!("M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}")
        }
        // Backwards, or to itself: below.
        false => {
            let (x1, x2, low) = (
                x1 + WIDTH / 2,
                x2 + WIDTH / 2,
                y1.max(y2) + HEIGHT / 2 + GAP_Y,
            );
            let (y1, y2) = (y1 + HEIGHT / 2, y2 + HEIGHT / 2);
            format!("M{x1} {y1}C{x1} {low} {x2} {low} {x2} {y2}")
        }
    };
    let (x, y) = match from.0 < to.0 {
        // Nearer to the called service, where fewer edges cross.
        true => ((x1 + WIDTH + 2 * x2) / 3, (y1 + 2 * y2) / 3),
        false => ((x1 + x2 + WIDTH) / 2, y1.max(y2) + HEIGHT / 2 + GAP_Y / 2),
    };
    let label = escaped(&traffic(edge));
    let _ = writeln!(
        text,
        "<path d=\"{path}\" fill=\"none\" stroke=\"#555\" stroke-width=\"{line:.1}\" marker-end=\"url(#to)\"/>\n\
         <text x=\"{x}\" y=\"{y}\" dy=\"-4\" text-anchor=\"middle\" font-size=\"11\" stroke=\"#fff\" stroke-width=\"3\" \
         paint-order=\"stroke\">{label}</text>"
    );
}

fn escaped(text: &str) -> String {
    // Control characters are not allowed in XML, not even escaped.
    text.replace(char::is_control, "\u{fffd}")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Assigns columns by the longest path from services without callers, and rows so that neighbours
/// are near each other.
fn places(snapshot: &Snapshot) -> Places<'_> {
    let names: Vec<&str> = snapshot.services.iter().map(|one| &*one.name).collect();
    let index: BTreeMap<&str, usize> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, at))
        .collect();
    let pairs: Vec<(usize, usize)> = snapshot
        .edges
        .iter()
        .filter_map(|edge| Some((*index.get(&*edge.from)?, *index.get(&*edge.to)?)))
        .filter(|(from, to)| from != to)
        .collect();
    let columns = columns(names.len(), &pairs);
    let mut rows: Vec<f64> = vec![0.0; names.len()];
    let mut order: Vec<Vec<usize>> =
        vec![Vec::new(); columns.iter().max().map_or(0, |last| last + 1)];
    for (at, column) in columns.iter().enumerate() {
        if let Some(column) = order.get_mut(*column) {
            rows[at] = column.len() as f64;
            column.push(at);
        }
    }
    for _ in 0..ROUNDS {
        for column in &mut order {
            let mean = |at: usize| {
                let near = pairs.iter().filter_map(|(from, to)| match at {
                    at if at == *from => Some(rows[*to]),
                    at if at == *to => Some(rows[*from]),
                    _ => None,
                });
                let near: Vec<f64> = near.collect();
                match near.is_empty() {
                    true => rows[at],
                    false => near.iter().sum::<f64>() / near.len() as f64,
                }
            };
            let mut wanted: Vec<(f64, usize)> = column.iter().map(|at| (mean(*at), *at)).collect();
            wanted.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            *column = wanted.into_iter().map(|(_, at)| at).collect();
            for (row, at) in column.iter().enumerate() {
                rows[*at] = row as f64;
            }
        }
    }
    let mut places = Places::new();
    for (column, members) in order.iter().enumerate() {
        for (row, at) in members.iter().enumerate() {
            places.insert(names[*at], (column, row));
        }
    }
    places
}

/// Returns the length of the longest acyclic path to each service.
fn columns(count: usize, pairs: &[(usize, usize)]) -> Vec<usize> {
    let circle = circles(count, pairs);
    let forth = pairs
        .iter()
        .filter(|(from, to)| circle[*from] != circle[*to]);
    let forth: Vec<&(usize, usize)> = forth.collect();
    let mut columns = vec![0; count];
    // A path through all of them is the longest possible.
    for _ in 1..count.max(1) {
        let mut longer = false;
        for (from, to) in &forth {
            let next = columns[*from] + 1;
            if next > columns[*to] {
                columns[*to] = next;
                longer = true;
            }
        }
        if !longer {
            break;
        }
    }
    columns
}

/// Assigns a number to each strongly connected component, shared by services that call each other
/// directly or indirectly (Kosaraju's algorithm).
fn circles(count: usize, pairs: &[(usize, usize)]) -> Vec<usize> {
    let (mut calls, mut callers) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for (from, to) in pairs {
        calls[*from].push(*to);
        callers[*to].push(*from);
    }
    let mut seen = vec![false; count];
    let mut left_last = Vec::with_capacity(count);
    for start in 0..count {
        // The node and the index of its next called service.
        let mut way = vec![(start, 0)];
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        while let Some((at, next)) = way.last_mut() {
            match calls[*at].get(*next) {
                Some(&to) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[to], true) {
                        way.push((to, 0));
                    }
                }
                None => {
                    left_last.push(*at);
                    way.pop();
                }
            }
        }
    }
    let mut circle = vec![usize::MAX; count];
    for &start in left_last.iter().rev() {
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            if circle[at] == usize::MAX {
                circle[at] = start;
                open.extend(&callers[at]);
            }
        }
    }
    circle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(names: &[&str], pairs: &[(&str, &str)]) -> Snapshot {
        Snapshot {
            services: names
                .iter()
                .map(|name| Service {
                    name: (*name).to_owned(),
                    replicas: 1,
                    ..Service::default()
                })
                .collect(),
            edges: pairs
                .iter()
                .map(|(from, to)| Edge {
                    from: (*from).to_owned(),
                    to: (*to).to_owned(),
                    rps: 1.0,
                    ..Edge::default()
                })
                .collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn callers_are_left_of_those_they_call() {
        let names = ["details", "productpage", "ratings", "reviews"];
        let pairs = [
            ("productpage", "details"),
            ("productpage", "reviews"),
            ("reviews", "ratings"),
        ];
        let bookinfo = snapshot(&names, &pairs);
        let places = places(&bookinfo);
        for (from, to) in pairs {
            assert!(places[from].0 < places[to].0, "{from} {to}: {places:?}");
        }
        let text = text(&bookinfo);
        for name in names {
            assert!(text.contains(&format!(">{name}<")), "{name}");
        }
        assert_eq!(text.matches("<path d=\"M").count(), 1 + pairs.len());
    }

    #[test]
    fn circles_and_nothing_are_drawn() {
        let circle = snapshot(
            &["a", "b", "c"],
            &[("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")],
        );
        assert_eq!(places(&circle).len(), 3);
        assert!(text(&circle).ends_with("</svg>\n"));
        assert!(text(&Snapshot::default()).ends_with("</svg>\n"));
        let odd = snapshot(&["<&>\u{1}"], &[("<&>\u{1}", "gone")]);
        assert!(text(&odd).contains("&lt;&amp;&gt;\u{fffd}"));
        // Services of a cycle are placed next to those that they do not call back.
        let pairs = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("a", "d")];
        let circle = snapshot(&["a", "b", "c", "d"], &pairs);
        let places = places(&circle);
        let column = |name| places[name].0;
        assert_eq!((column("a"), column("d")), (0, 1));
        assert_eq!((column("b"), column("c")), (1, 0));
    }

    /// A large mesh, with circles: all of it is checked a few times, and not for each call anew.
    #[test]
    fn large_graphs_are_drawn() {
        const SERVICES: usize = 1500;
        let names: Vec<String> = (0..SERVICES).map(|at| format!("s{at}")).collect();
        let mut rng = maglor_balance::Rng::seed(5);
        let mut pairs = Vec::new();
        for at in 1..SERVICES {
            for _ in 0..4 {
                let from = rng.below(at as u32) as usize;
                pairs.push((&*names[from], &*names[at]));
            }
        }
        pairs.push((&*names[SERVICES - 1], &*names[SERVICES - 2]));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let begun = std::time::Instant::now();
        let drawn = text(&snapshot(&names, &pairs));
        assert_eq!(drawn.matches("<path d=\"M").count(), 1 + pairs.len());
        let took = begun.elapsed();
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }
}
