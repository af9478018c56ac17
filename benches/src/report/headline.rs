//! The headline table: one row per metric, one column per proxy.

use super::bars::{added, ratio};
use super::table::{Table, number};
use crate::measure::{Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::{HEADLINE, LATENCY, Scenario};

/// A function that formats a row's value for one proxy.
type Cell<'a> = Box<dyn Fn(Subject) -> String + 'a>;

/// Returns the headline table; rows without any value are left out.
pub(super) fn table(results: &Results, peers: &[Subject]) -> Table {
    let names = peers.iter().map(ToString::to_string);
    let others = peers.iter().filter(|peer| **peer != Subject::Maglor);
    let with_maglor = peers.contains(&Subject::Maglor);
    let ratios = others
        .clone()
        .filter(|_| with_maglor)
        .map(|peer| format!("Maglor / {peer}"));
    let first = std::iter::once(String::new());
    let mut table = Table::new(first.chain(names).chain(ratios));
    for (name, paired, cell) in rows(results) {
        let mut row = vec![name.to_owned()];
        row.extend(peers.iter().map(|&peer| cell(peer)));
        if row.iter().skip(1).all(|text| text.starts_with('–')) {
            continue;
        }
        if with_maglor {
            row.extend(others.clone().map(|&peer| {
                paired.map_or(String::new(), |(cell, name)| {
                    number(ratio(results, cell, peer, name))
                })
            }));
        }
        table.row(row);
    }
    table
}

type Row<'a> = (&'static str, Option<(Scenario, &'static str)>, Cell<'a>);

fn rows(results: &Results) -> Vec<Row<'_>> {
    let mut rows = load_rows(results);
    rows.extend(process_rows(results));
    rows.extend(footprint_rows(results));
    rows
}

fn load_rows(results: &Results) -> Vec<Row<'_>> {
    let of = move |cell: Scenario, name: &'static str, unit: f64| -> Cell<'_> {
        Box::new(move |peer| {
            number(
                results
                    .median(Phase::Load, Some(cell), peer, name)
                    .map(|value| value / unit),
            )
        })
    };
    let extra: Cell<'_> = Box::new(move |peer| {
        let added = |name| number(added(results, LATENCY, peer, name));
        format!("{} / {}", added(metric::P50), added(metric::P99))
    });
    let many = Scenario {
        connections: 1000,
        ..HEADLINE
    };
    let large = Scenario {
        body: 10_000,
        ..HEADLINE
    };
    let h2c = Scenario {
        protocol: crate::scenario::Protocol::H2c,
        ..HEADLINE
    };
    let cpu = |cell| Some((cell, metric::CPU));
    vec![
        (
            "CPU µs a request: HTTP/1.1, 64 B, 64 conn.",
            cpu(HEADLINE),
            of(HEADLINE, metric::CPU, 1.0),
        ),
        ("the same, 10 kB", cpu(large), of(large, metric::CPU, 1.0)),
        ("the same, h2c", cpu(h2c), of(h2c, metric::CPU, 1.0)),
        (
            "the same, 1000 conn.",
            cpu(many),
            of(many, metric::CPU, 1.0),
        ),
        (
            "1000 req/s: HTTP/1.1, 64 B, 64 conn., CPU µs",
            cpu(LATENCY),
            of(LATENCY, metric::CPU, 1.0),
        ),
        ("added p50 / p99 µs at 1000 req/s", None, extra),
        (
            "requests/s, closed loop (64 B, 64 conn.)",
            Some((HEADLINE, metric::THROUGHPUT)),
            of(HEADLINE, metric::THROUGHPUT, 1.0),
        ),
        (
            "RSS under that load, MB",
            Some((HEADLINE, metric::RSS_PEAK)),
            of(HEADLINE, metric::RSS_PEAK, 1e3),
        ),
        (
            "RSS under load, 1000 conn., MB",
            Some((many, metric::RSS_PEAK)),
            of(many, metric::RSS_PEAK, 1e3),
        ),
    ]
}

fn process_rows(results: &Results) -> Vec<Row<'_>> {
    let of = move |phase: Phase, name: &'static str, unit: f64| -> Cell<'_> {
        Box::new(move |peer| {
            number(
                results
                    .median(phase, None, peer, name)
                    .map(|value| value / unit),
            )
        })
    };
    let idle: Cell<'_> = Box::new(move |peer| {
        let of = |name| {
            results
                .median(Phase::Idle, None, peer, name)
                .map(|kb| kb / 1e3)
        };
        let (all, worker) = (of(metric::RSS_IDLE), of(metric::RSS_IDLE_WORKER));
        if all == worker {
            number(all)
        } else {
            format!("{} ({})", number(all), number(worker))
        }
    });
    let after: Cell<'_> = Box::new(move |peer| {
        let of = |name| results.median(Phase::Burst, None, peer, name);
        let kb = of(metric::RSS_AFTER);
        format!(
            "{} ({} ×)",
            number(kb.map(|kb| kb / 1e3)),
            number(of(metric::AFTER_RATIO))
        )
    });
    vec![
        ("RSS idle, MB (largest process)", None, idle),
        (
            "RSS idle after some traffic, MB",
            None,
            of(Phase::Idle, metric::RSS_WARM, 1e3),
        ),
        (
            "kB an idle keep-alive connection",
            None,
            of(Phase::Idle, metric::PER_CONNECTION, 1.0),
        ),
        (
            "CPU µs a second with 2000 idle connections",
            None,
            of(Phase::Idle, metric::CPU_IDLE, 1.0),
        ),
        ("RSS 10 s after 2000 connections, MB (× idle)", None, after),
        (
            "start to ready, ms",
            None,
            of(Phase::Startup, metric::READY, 1.0),
        ),
        (
            "stripped binary, MB",
            None,
            of(Phase::Size, metric::BINARY, 1.0),
        ),
    ]
}

fn footprint_rows(results: &Results) -> Vec<Row<'_>> {
    let of = move |names: [&'static str; 4]| -> Cell<'_> {
        Box::new(move |peer| {
            let kb = |name| results.median(Phase::Footprint, None, peer, name);
            let shown = names.map(|name| number(kb(name).map(|kb| kb / 1e3)));
            shown.join(" / ")
        })
    };
    vec![
        (
            "Pss idle / 1000 req/s / 64 conn. / 10 s later, MB",
            None,
            of([
                metric::PSS_IDLE,
                metric::PSS_OPEN,
                metric::PSS_CLOSED,
                metric::PSS_AFTER,
            ]),
        ),
        (
            "anonymous memory, the same, MB",
            None,
            of([
                metric::ANONYMOUS_IDLE,
                metric::ANONYMOUS_OPEN,
                metric::ANONYMOUS_CLOSED,
                metric::ANONYMOUS_AFTER,
            ]),
        ),
    ]
}
