use maglor_balance::Rng;

use super::*;

const LABEL: Size = Size {
    width: 80.0,
    height: 15.0,
};

fn graph(boxes: usize, lines: &[(usize, usize)]) -> Graph {
    let size = Size {
        width: 100.0,
        height: 40.0,
    };
    let lines = lines.iter().map(|(from, to)| Line {
        from: *from,
        to: *to,
        weight: 1.0,
        label: LABEL,
    });
    Graph {
        boxes: vec![size; boxes],
        lines: lines.collect(),
    }
}

/// Generates a graph like that of a mesh: mostly forward edges, some cycles, some single boxes, and boxes and labels
/// of several sizes.
fn generated(seed: u64) -> Graph {
    let mut rng = Rng::seed(seed);
    let mut below = |count: usize| rng.below(count as u32) as usize;
    let count = 1 + below(60);
    let mut graph = Graph::default();
    for _ in 0..count {
        graph.boxes.push(Size {
            width: 60.0 + below(100) as f64,
            height: 30.0 + below(40) as f64,
        });
    }
    for _ in 0..below(3 * count) {
        let (one, other) = (below(count), below(count));
        let forward = below(10) > 0;
        if one != other {
            let (from, to) = match forward {
                true => (one.min(other), one.max(other)),
                false => (one, other),
            };
            graph.lines.push(Line {
                from,
                to,
                weight: below(100) as f64,
                label: Size {
                    width: 30.0 + below(90) as f64,
                    height: 12.0 + below(6) as f64,
                },
            });
        }
    }
    graph
}

fn overlap(one: Rect, other: Rect) -> bool {
    // Touching is not an overlap, and neither are rounding errors.
    const E: f64 = 1e-6;
    let apart = |a: f64, length: f64, b: f64, other: f64| a + length <= b + E || b + other <= a + E;
    !(apart(one.x, one.width, other.x, other.width)
        || apart(one.y, one.height, other.y, other.height))
}

/// Points on a route, as it is drawn.
fn sampled(route: &Route) -> Vec<Point> {
    let mut points = Vec::new();
    for pair in route.points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        for step in 0..=20 {
            let t = f64::from(step) / 20.0;
            // A Bézier curve whose inner points are half way, at the heights of its ends.
            let s = 1.0 - t;
            let (b0, b1, b2, b3) = (s * s * s, 3.0 * s * s * t, 3.0 * s * t * t, t * t * t);
            let middle = (from.x + to.x) / 2.0;
            points.push(Point {
                x: b0 * from.x + (b1 + b2) * middle + b3 * to.x,
                y: (b0 + b1) * from.y + (b2 + b3) * to.y,
            });
        }
    }
    points
}

fn is_inside(point: Point, rect: Rect) -> bool {
    const E: f64 = 1e-6;
    point.x > rect.x + E
        && point.x < rect.x + rect.width - E
        && point.y > rect.y + E
        && point.y < rect.y + rect.height - E
}

#[track_caller]
fn check(graph: &Graph, seed: u64) {
    let layout = place(graph);
    let (boxes, routes) = (&layout.boxes, &layout.routes);
    for (at, one) in boxes.iter().enumerate() {
        let whole = Rect {
            width: layout.size.width,
            height: layout.size.height,
            ..Rect::default()
        };
        let (right, low) = (one.x + one.width, one.y + one.height);
        assert!(one.x >= 0.0 && one.y >= 0.0, "seed {seed}: {one:?}");
        assert!(
            right <= whole.width && low <= whole.height,
            "seed {seed}: {one:?}"
        );
        for other in &boxes[..at] {
            assert!(!overlap(*one, *other), "seed {seed}: {one:?} {other:?}");
        }
    }
    for (at, route) in routes.iter().enumerate() {
        assert!(route.label.width > 0.0, "seed {seed}: no label");
        for one in boxes {
            assert!(
                !overlap(route.label, *one),
                "seed {seed}: {route:?} {one:?}"
            );
        }
        for other in &routes[..at] {
            assert!(
                !overlap(route.label, other.label),
                "seed {seed}: {route:?} {other:?}"
            );
        }
        let line = graph.lines[at];
        let (from, to) = (boxes[line.from], boxes[line.to]);
        let points = sampled(route);
        for pair in points.windows(2) {
            let forward = pair[0].x <= pair[1].x + 1e-6;
            let back = pair[0].x >= pair[1].x - 1e-6;
            assert!(
                if route.reversed { back } else { forward },
                "seed {seed}: {route:?}"
            );
        }
        let (first, last) = (points[0], points[points.len() - 1]);
        let (leaves, enters) = match route.reversed {
            true => (from.x, to.x + to.width),
            false => (from.x + from.width, to.x),
        };
        assert!(
            (first.x - leaves).abs() < 1e-6 && (last.x - enters).abs() < 1e-6,
            "seed {seed}"
        );
        let beside = |point: Point, one: Rect| point.y > one.y && point.y < one.y + one.height;
        assert!(
            beside(first, from) && beside(last, to),
            "seed {seed}: {route:?}"
        );
        for point in points {
            let hit = boxes.iter().any(|one| is_inside(point, *one));
            assert!(!hit, "seed {seed}: a line behind a box: {route:?}");
            let labels = routes.iter().enumerate().filter(|(other, _)| *other != at);
            let hit = labels
                .into_iter()
                .any(|(_, other)| is_inside(point, other.label));
            assert!(!hit, "seed {seed}: a line behind a label: {route:?}");
        }
    }
    assert_eq!(layout, place(graph), "seed {seed}");
}

#[test]
fn nothing_overlaps_and_lines_point_to_the_right() {
    for seed in 0..150 {
        check(&generated(seed), seed);
    }
}

#[test]
fn only_circles_are_turned_around() {
    let reversed = |graph: &Graph| -> Vec<bool> {
        let routes = place(graph).routes;
        routes.iter().map(|route| route.reversed).collect()
    };
    let tree = graph(5, &[(0, 1), (0, 2), (2, 3), (2, 4), (0, 4)]);
    assert_eq!(reversed(&tree), [false; 5]);
    // In a cycle, the line with the least weight is reversed.
    let mut circle = graph(4, &[(0, 1), (1, 2), (2, 0), (2, 3)]);
    circle.lines[1].weight = 0.5;
    assert_eq!(reversed(&circle), [false, true, false, false]);
    let both = graph(2, &[(0, 1), (1, 0)]);
    assert_eq!(reversed(&both).iter().filter(|one| **one).count(), 1);
}

#[test]
fn callers_are_left_of_those_they_call() {
    let bookinfo = place(&graph(4, &[(1, 0), (1, 3), (3, 2)]));
    let x = |at: usize| bookinfo.boxes[at].x;
    assert!(x(1) < x(0) && x(1) < x(3) && x(3) < x(2));
    assert!((x(0) - x(3)).abs() < 1e-6, "one layer");
}

/// A tree and two lists with equal ends can be drawn without crossings.
#[test]
fn crossings_that_need_not_be_are_not_there() {
    let lines = [
        (0, 4),
        (1, 3),
        (0, 3),
        (2, 5),
        (1, 6),
        (2, 6),
        (0, 7),
        (3, 8),
        (6, 8),
    ];
    let graph = graph(9, &lines);
    let layers = layers::of(9, &lines);
    let mut chains = Chains::new(&graph, &lines, &layers);
    order::reduce_crossings(&mut chains);
    assert_eq!(crossings::count(&chains), 0, "{:?}", chains.ranks);
}

#[test]
fn what_is_not_connected_is_below() {
    let layout = place(&graph(7, &[(0, 1), (2, 3), (3, 4)]));
    let low = |boxes: &[usize]| {
        let lows = boxes.iter().map(|at| layout.boxes[*at]);
        lows.map(|one| one.y + one.height).fold(0.0, f64::max)
    };
    assert!(layout.boxes[0].y > low(&[2, 3, 4]), "the larger part first");
    assert!(layout.boxes[5].y > low(&[0, 1]));
    assert!(
        (layout.boxes[5].y - layout.boxes[6].y).abs() < 1e-6,
        "a row"
    );
    assert_eq!(place(&Graph::default()).boxes, []);
}
