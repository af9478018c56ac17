use super::*;

/// A mesh of services that call each other in a ring with chords, with rates that depend on the time.
fn mesh(services: usize, edges: usize, at: u64) -> Mesh {
    let name = |number: usize| format!("namespace-{}/service-{number}", number % 5);
    let signals = |number: usize| {
        let rps = 10.0 + number as f64 + (at / 60 % 10) as f64;
        Signals {
            rps,
            failures: rps / 100.0,
            mean_ms: Some(3.0),
            p50_ms: Some(2.0),
            p99_ms: Some(20.0 + (at % 7) as f64),
            in_flight: 2.0,
        }
    };
    let vertices = (0..services).map(|number| {
        let vertex = Vertex {
            signals: Some(signals(number)),
            ..Vertex::default()
        };
        (name(number), vertex)
    });
    let edges = (0..edges).map(|number| Edge {
        from: name(number % services),
        to: name((number + 1 + number / services) % services),
        signals: signals(number),
        ..Edge::default()
    });
    Mesh {
        vertices: vertices.collect(),
        edges: edges.collect(),
        ..Mesh::default()
    }
}

const START: u64 = 1_764_200_000;
const DAY: u64 = 24 * 3600;

fn filled(services: usize, edges: usize, seconds: u64) -> History {
    let mut history = History::default();
    for at in (0..seconds).step_by(10) {
        history.record(START + at, &mesh(services, edges, at));
    }
    history
}

#[test]
fn a_day_of_50_services_and_500_edges_is_below_10_mb() {
    let before = allocations::present();
    let history = filled(50, 500, DAY + 3600);
    let allocated = usize::try_from(allocations::present() - before).unwrap();
    let size = history.size();
    assert_eq!((history.fine.len(), history.coarse.len()), (360, 1440));
    let (oldest, newest) = history.range().unwrap();
    assert!(newest - oldest >= DAY - 120, "{oldest} {newest}");
    // 8 bytes for each of 550 series and 1800 samples are 7.9 MB.
    assert!((7_900_000..8_200_000).contains(&size), "{size}");
    println!("{allocated} bytes allocated, {size} bytes by its own account");
    assert!(allocated < 10_000_000, "{allocated}");
    let difference = allocated.abs_diff(size);
    assert!(
        difference < size / 50,
        "{allocated} allocated, {size} by its own account"
    );
}

#[test]
fn the_size_is_bounded_however_large_the_mesh_and_however_often_it_changes() {
    let mut history = History::new(400_000);
    for at in (0..DAY / 2).step_by(10) {
        // Every ten minutes all names are new.
        let mut mesh = mesh(40, 100, at);
        let change = at / 600;
        for edge in &mut mesh.edges {
            edge.from.push_str(&format!("-{change}"));
            edge.to.push_str(&format!("-{change}"));
        }
        let vertices = std::mem::take(&mut mesh.vertices).into_iter();
        mesh.vertices = vertices
            .map(|(name, vertex)| (format!("{name}-{change}"), vertex))
            .collect();
        history.record(START + at, &mesh);
        assert!(history.size() <= 400_000, "{at}: {}", history.size());
    }
    assert!(history.at(START + DAY).is_some());
    assert!(
        history.generations.len() < 40,
        "{}",
        history.generations.len()
    );
}

#[test]
fn the_past_is_what_it_was() {
    let history = filled(5, 12, 2 * 3600);
    for (back, error) in [(30, 0.001), (90 * 60, 0.08)] {
        let time = START + 2 * 3600 - back;
        let (at, past) = history.at(time).unwrap();
        assert!(at <= time && time - at < 70, "{at} {time}");
        let truth = mesh(5, 12, at - START);
        assert_eq!(past.edges.len(), 12);
        for edge in &past.edges {
            let of = |one: &&Edge| (&one.from, &one.to) == (&edge.from, &edge.to);
            let true_edge = truth.edges.iter().find(of).unwrap();
            let ratio = edge.signals.rps / true_edge.signals.rps;
            assert!((ratio - 1.0).abs() < error, "{back}: {ratio}");
            let failed = 1.0 - edge.signals.success().unwrap();
            assert!((failed - 0.01).abs() < 0.0005, "{failed}");
        }
    }
    assert_eq!(history.at(0).unwrap().0, history.range().unwrap().0);
    assert!(History::default().at(START).is_none());
}

#[test]
fn a_series_has_equal_steps_and_gaps() {
    let mut history = History::default();
    for at in (0..3600)
        .step_by(10)
        .filter(|at| !(1000..2000).contains(at))
    {
        history.record(START + at, &mesh(5, 12, 0));
    }
    let name = "namespace-1/service-1";
    let series = history.series(Of::Vertex(name), START, START + 3600, 360);
    let series = series.unwrap();
    assert_eq!(
        (series.from, series.step, series.points.len()),
        (START, 10, 360)
    );
    let gap = series.points.iter().filter(|point| point.is_none()).count();
    assert!((99..=102).contains(&gap), "{gap}");
    let few = history.series(Of::Mesh, START, START + 3600, 30).unwrap();
    assert_eq!((few.step, few.points.len()), (120, 30));
    let total: f64 = (0..5).map(|number| 10.0 + f64::from(number)).sum();
    assert!((few.points[1].unwrap().rps - total).abs() < 0.1, "{few:?}");
    let edge = Of::Edge("namespace-0/service-0", name);
    assert!(history.series(edge, START, START + 60, 10).is_some());
    assert!(
        history
            .series(Of::Vertex("none"), START, START + 60, 10)
            .is_none()
    );
}
