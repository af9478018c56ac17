//! Half a processor: whether a Proxy-Service serves what the paper's does.

use super::table::{Table, number};
use crate::bar::Bar;
use crate::measure::{Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::HEADLINE;

/// Requests a second of one instance in the paper on LOR, note 7.
const PUBLISHED: f64 = 14_000.0;

/// Returns the required result.
pub(super) fn bar(results: &Results) -> Bar {
    let measured = of(results, Subject::Maglor, metric::THROUGHPUT);
    Bar::at_least("requests a second of half a core", PUBLISHED, measured)
}

/// Returns the table.
pub(super) fn section(results: &Results, peers: &[Subject]) -> String {
    let mut table = Table::new([
        "proxy",
        "requests/s",
        "CPU µs a request",
        "p50 µs",
        "p99 µs",
    ]);
    for &peer in peers {
        let metrics = [metric::THROUGHPUT, metric::CPU, metric::P50, metric::P99];
        let values = metrics.map(|name| number(of(results, peer, name)));
        table.row([vec![peer.to_string()], values.to_vec()].concat());
    }
    format!(
        "\n## Half a core\n\n64 connections in a closed loop, 64-byte responses; 50 ms of processor time in each 100 ms, as \
         Kubernetes limits it. The paper's proxy serves {PUBLISHED} requests a second.\n\n{}",
        table.markdown()
    )
}

fn of(results: &Results, peer: Subject, metric: &str) -> Option<f64> {
    results.median(Phase::HalfCore, Some(HEADLINE), peer, metric)
}
