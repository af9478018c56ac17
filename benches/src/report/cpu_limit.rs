//! A part of a processor: whether a Proxy-Service serves what the paper's does.

use super::table::{Table, number};
use crate::bar::Bar;
use crate::measure::{CpuLimit, Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::HEADLINE;

/// Returns the required results.
pub(super) fn bars(results: &Results) -> impl Iterator<Item = Bar> {
    CpuLimit::ALL.into_iter().map(|limit| {
        let measured = of(results, limit, Subject::Maglor, metric::THROUGHPUT);
        Bar::at_least(
            format!("requests a second with {limit}"),
            published(limit),
            measured,
        )
    })
}

/// Returns the table.
pub(super) fn section(results: &Results, peers: &[Subject]) -> String {
    let mut table = Table::new([
        "limit",
        "paper's requests/s",
        "proxy",
        "requests/s",
        "CPU µs a request",
        "p50 µs",
        "p99 µs",
    ]);
    for limit in CpuLimit::ALL {
        for &peer in peers {
            let metrics = [metric::THROUGHPUT, metric::CPU, metric::P50, metric::P99];
            let values = metrics.map(|name| number(of(results, limit, peer, name)));
            let row = [
                limit.to_string(),
                published(limit).to_string(),
                peer.to_string(),
            ];
            table.row([row.to_vec(), values.to_vec()].concat());
        }
    }
    format!(
        "\n## Limited CPU\n\n64 connections in a closed loop, 64-byte responses; 50 or 10 ms of processor time in each 100 ms, \
         as Kubernetes limits it. A proxy is stopped for the rest of each period, which is its p99.\n\n{}",
        table.markdown()
    )
}

/// Requests a second of one Proxy-Service in the paper on LOR: note 7 has 14 000 for half a core, §IV "thousands" for
/// 100m.
fn published(limit: CpuLimit) -> f64 {
    match limit {
        CpuLimit::Half => 14_000.0,
        CpuLimit::Tenth => 2_000.0,
    }
}

fn of(results: &Results, limit: CpuLimit, peer: Subject, metric: &str) -> Option<f64> {
    results.median(Phase::CpuLimit(limit), Some(HEADLINE), peer, metric)
}
