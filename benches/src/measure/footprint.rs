//! The footprint part: shares of memory before, under and after load, each proxy alone.
//!
//! A page that several processes map counts in parts, so no other proxy runs meanwhile. CPU time and latency are
//! measured by the load part: reading the shares costs time of the proxy.

use std::thread::sleep;
use std::time::Duration;

use super::{AFTER, Bench, Phase, Record, Results, SETTLE, SLACK, load, metric};
use crate::error::Result;
use crate::peer::{Peer, Running};
use crate::procfs::{self, Share};
use crate::scenario::{HEADLINE, LATENCY, Scenario};

const LOADED: Duration = Duration::from_secs(3);
const LOADED_QUICK: Duration = Duration::from_secs(1);
/// 100 ms between samples.
const TURNS: u32 = 20;

type Values = Vec<(&'static str, f64)>;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let rounds = bench.options.memory_rounds();
    for round in 0..rounds {
        eprintln!("footprint, round {}/{rounds}", round + 1);
        for peer in &bench.peers {
            let subject = peer.subject;
            match one(bench, peer) {
                Ok(values) => {
                    let shown: Vec<_> = values
                        .iter()
                        .map(|(name, value)| format!("{name} {value:.0}"))
                        .collect();
                    eprintln!("  {subject:<8} {}", shown.join("  "));
                    results.add(Record {
                        phase: Phase::Footprint,
                        round,
                        subject,
                        scenario: None,
                        values,
                    })?;
                }
                Err(error) => {
                    results.fail(subject, format!("footprint, round {round}"), error);
                }
            }
        }
    }
    Ok(())
}

fn one(bench: &Bench, peer: &Peer) -> Result<Values> {
    let proxy = Running::start(peer, &bench.origin, bench.cpus.proxy)?;
    sleep(SETTLE);
    let idle = procfs::share(&proxy.pids())?;
    // In this order: what the closed loop leaves behind would count at the lower rate, too.
    let open = loaded(bench, &proxy, LATENCY)?;
    let closed = loaded(bench, &proxy, HEADLINE)?;
    sleep(AFTER);
    let after = procfs::share(&proxy.pids())?;
    let columns = [
        (idle, metric::PSS_IDLE, metric::ANONYMOUS_IDLE),
        (open, metric::PSS_OPEN, metric::ANONYMOUS_OPEN),
        (closed, metric::PSS_CLOSED, metric::ANONYMOUS_CLOSED),
        (after, metric::PSS_AFTER, metric::ANONYMOUS_AFTER),
    ];
    let values = |(share, pss, anonymous): (Share, _, _)| {
        [
            (pss, share.pss_kb as f64),
            (anonymous, share.anonymous_kb as f64),
        ]
    };
    Ok(columns.into_iter().flat_map(values).collect())
}

/// Returns the highest share under the load of a cell.
fn loaded(bench: &Bench, proxy: &Running, cell: Scenario) -> Result<Share> {
    let time = match bench.options.quick {
        true => LOADED_QUICK,
        false => LOADED,
    };
    let target = proxy.address(cell.protocol);
    let arguments = load::arguments(&cell, target, Duration::ZERO, time);
    let pids = proxy.pids();
    let mut highest = Share::default();
    let report = load::sampled(bench, &arguments, time + SLACK, TURNS, || {
        if let Ok(now) = procfs::share(&pids) {
            highest = highest.max(now);
        }
    })?;
    report.complete()?;
    Ok(highest)
}
