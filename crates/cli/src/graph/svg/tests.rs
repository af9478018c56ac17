use std::path::{Path, PathBuf};

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

fn lines(text: &str) -> usize {
    text.matches("marker-end").count()
}

#[test]
fn circles_and_nothing_are_drawn() {
    let circle = snapshot(
        &["a", "b", "c"],
        &[("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")],
    );
    let drawn = text(&circle);
    assert_eq!(lines(&drawn), 3);
    assert!(drawn.contains(">itself: 1.0/s · 0.00 ms<"), "{drawn}");
    assert_eq!(drawn.matches("class=\"edge good back\"").count(), 1);
    assert!(drawn.contains("from right to left: part of a circle"));
    assert!(text(&Snapshot::default()).ends_with("</svg>\n"));
    let odd = snapshot(&["<&>\u{1}"], &[("<&>\u{1}", "gone")]);
    assert!(text(&odd).contains("&lt;&amp;&gt;\u{fffd}"));
}

#[test]
fn what_happens_is_seen_and_read() {
    let mut shop = snapshot(
        &["shop/web", "shop/cart", "shop/db"],
        &[("shop/web", "shop/cart"), ("shop/cart", "shop/db")],
    );
    shop.services[1].mtls = Some(true);
    shop.edges[0].rps = 100.0;
    shop.edges[0].failures = 3.0;
    shop.edges[1].rps = 0.0;
    shop.edges[1].bytes_per_second = 2e6;
    let drawn = text(&shop);
    for part in [
        "<title id=\"title\">Communication graph: 3 services, 2 edges</title>",
        "100/s in all; failing: shop/web → shop/cart: 100/s · 0.00 ms · 3.0 % fail.</desc>",
        "<title>shop/web → shop/cart: 100/s · 0.00 ms · 3.0 % fail, mutual TLS</title>",
        "class=\"edge degraded\"",
        "class=\"box degraded\"><title>shop/cart</title>",
        "class=\"edge tcp\"",
        ">2000.0 kB/s<",
        "class=\"name\">web<",
        ">shop · 1 replica<",
        ">mutual TLS<",
        ">TCP connections<",
    ] {
        assert!(drawn.contains(part), "{part} is missing:\n{drawn}");
    }
    assert!(
        !drawn.contains("less than 95 %"),
        "nothing fails that often"
    );
    // One for the label, and one for the legend.
    assert_eq!(drawn.matches("href=\"#lock\"").count(), 2);
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// `UPDATE=1` draws the pictures again; check them afterwards.
#[test]
fn the_pictures_of_the_documentation_are_what_is_drawn() {
    for services in [5, 12, 50] {
        let file = pictures().join(format!("graph-{services}.json"));
        let read = std::fs::read_to_string(&file).unwrap();
        let snapshot: Snapshot = serde_json::from_str(&read).unwrap();
        assert_eq!(snapshot.services.len(), services);
        let drawn = text(&snapshot);
        let picture = file.with_extension("svg");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&picture, &drawn).unwrap();
        }
        let kept = std::fs::read_to_string(&picture).unwrap_or_default();
        assert!(
            kept == drawn,
            "{} is stale: run with UPDATE=1",
            picture.display()
        );
    }
}

/// A large mesh with cycles: each step processes the whole graph a few times, and not once for each call.
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
    assert_eq!(lines(&drawn), pairs.len());
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}
