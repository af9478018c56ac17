//! The load part: for each cell all proxies run, and get the load in turns.
//!
//! Proxies that wait for their turn are idle on the same processor; those that take turns within a
//! round share the noise of the same seconds, which the paired ratios rely on.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use super::{Bench, Phase, Record, Results, SETTLE, SLACK, metric};
use crate::child::Guarded;
use crate::error::{Error, Result};
use crate::load::Report;
use crate::peer::{Peer, Running, Subject};
use crate::procfs::{self, Memory};
use crate::scenario::{Loop, RATE, Scenario};

/// More connections than requests in flight, so that a late answer delays no request: one in this number.
const SPARE: usize = 50;

/// A proxy, and its data when it was idle.
struct Measured {
    proxy: Running,
    idle_kb: u64,
}

pub(super) fn run(bench: &Bench, cells: &[Scenario], results: &mut Results) -> Result<()> {
    for (index, cell) in cells.iter().enumerate() {
        eprintln!("load {}/{}: {cell}", index + 1, cells.len());
        run_cell(bench, cell, results)?;
        progress(bench, cell, results);
    }
    Ok(())
}

fn run_cell(bench: &Bench, cell: &Scenario, results: &mut Results) -> Result<()> {
    let mut proxies = Vec::new();
    let accepts = |peer: &&Peer| peer.subject.accepts(cell);
    for peer in bench.peers.iter().filter(accepts) {
        match Running::start(peer, &bench.origin, bench.cpus.proxy) {
            Ok(proxy) => proxies.push(Measured { proxy, idle_kb: 0 }),
            Err(error) => results.fail(peer.subject, cell.to_string(), error),
        }
    }
    if cell.mode == Loop::Waiting {
        sleep(SETTLE);
        for one in &mut proxies {
            one.idle_kb = procfs::memory_sum(&one.proxy.pids())?.data_kb;
        }
    }
    for round in 0..bench.options.rounds() {
        for proxy in proxies.iter().map(Some).chain([None]) {
            let subject = proxy.map_or(Subject::Direct, |one| one.proxy.subject);
            let place = || format!("{cell}, round {round}");
            match one_run(bench, cell, proxy.map(|one| &one.proxy)) {
                Ok((report, memory)) => {
                    if report.errors > 0 {
                        let first = report.first_error.as_deref().unwrap_or_default();
                        let text = format!("{} errors, first: {first}", report.errors);
                        results.fail(subject, place(), text);
                    }
                    let mut values = values(&report, proxy.map(|_| memory));
                    if let (Loop::Waiting, Some(one)) = (cell.mode, proxy) {
                        let growth = memory.data_kb as f64 - one.idle_kb as f64;
                        let each = growth / cell.connections as f64;
                        values.push((metric::PER_WAITING, each));
                    }
                    let (phase, scenario) = (phase(cell), Some(*cell));
                    results.add(Record {
                        phase,
                        round,
                        subject,
                        scenario,
                        values,
                    })?;
                }
                Err(error) => results.fail(subject, place(), error),
            }
        }
    }
    Ok(())
}

/// Returns the part of the comparison that a cell belongs to.
fn phase(cell: &Scenario) -> Phase {
    match cell.mode {
        Loop::Closed | Loop::Open => Phase::Load,
        Loop::Waiting => Phase::Waiting,
    }
}

/// Runs the generator once against one proxy, or the origin; returns also the highest observed
/// memory.
fn one_run(bench: &Bench, cell: &Scenario, proxy: Option<&Running>) -> Result<(Report, Memory)> {
    let pids = proxy.map(Running::pids).unwrap_or_default();
    let target = match proxy {
        Some(proxy) => proxy.address(cell.protocol),
        None => bench.origin.address(cell.protocol),
    };
    let (warmup, measure) = bench.options.window(cell);
    let mut arguments = arguments(cell, target, warmup, measure);
    if !pids.is_empty() {
        let list: Vec<_> = pids.iter().map(u32::to_string).collect();
        arguments.extend(["--watch".into(), list.join(",")]);
    }
    generate(bench, &arguments, &pids, warmup + measure + SLACK)
}

/// Returns the generator's arguments for a cell.
pub(super) fn arguments(
    cell: &Scenario,
    target: SocketAddr,
    warmup: Duration,
    measure: Duration,
) -> Vec<String> {
    let connections = match cell.mode {
        Loop::Closed | Loop::Open => cell.connections,
        Loop::Waiting => cell.connections + cell.connections / SPARE + 2,
    };
    let mut line = format!(
        "--target {target} --protocol {} --body {} --connections {connections} --warmup-ms {} --measure-ms {}",
        cell.protocol,
        cell.body,
        warmup.as_millis(),
        measure.as_millis(),
    );
    match cell.mode {
        Loop::Closed => {}
        Loop::Open => line.push_str(&format!(" --rate {RATE}")),
        Loop::Waiting => line.push_str(&format!(" --rate {} --waiting", cell.connections)),
    }
    line.split(' ').map(str::to_owned).collect()
}

/// Runs the generator, sampling the memory of `pids` meanwhile.
pub(super) fn generate(
    bench: &Bench,
    arguments: &[String],
    pids: &[u32],
    limit: Duration,
) -> Result<(Report, Memory)> {
    pids.iter().for_each(|&pid| procfs::reset_peak(pid));
    let mut highest = Memory::default();
    // Every 50 ms: a sample costs the generator's processor some 20 µs.
    let report = sampled(bench, arguments, limit, 10, || {
        if let Ok(now) = procfs::memory_sum(pids) {
            highest.rss_kb = highest.rss_kb.max(now.rss_kb);
            highest.data_kb = highest.data_kb.max(now.data_kb);
        }
    })?;
    highest.peak_kb = procfs::memory_sum(pids)?.peak_kb;
    Ok((report, highest))
}

/// Runs the generator, calling `sample` once every `turns` × 5 ms meanwhile.
pub(super) fn sampled(
    bench: &Bench,
    arguments: &[String],
    limit: Duration,
    turns: u32,
    mut sample: impl FnMut(),
) -> Result<Report> {
    let mut generator = Guarded::role("load", arguments, bench.cpus.load)?;
    let mut turn = 0_u32;
    let text = generator.finish(limit, || {
        if turn.is_multiple_of(turns) {
            sample();
        }
        turn += 1;
    })?;
    serde_json::from_str(&text)
        .map_err(|error| Error::parse("the generator's report", error.to_string()))
}

fn values(report: &Report, memory: Option<Memory>) -> Vec<(&'static str, f64)> {
    let requests = report.requests.max(1) as f64;
    let mut values = vec![
        (metric::REQUESTS, report.requests as f64),
        (metric::ERRORS, report.errors as f64),
        (metric::THROUGHPUT, report.requests as f64 / report.seconds),
        (metric::P50, report.p50_us),
        (metric::P99, report.p99_us),
        (metric::P999, report.p999_us),
        (metric::MAX, report.max_us),
    ];
    if let Some(memory) = memory {
        values.extend([
            (metric::CPU, report.cpu_run_ns as f64 / 1e3 / requests),
            (
                metric::CPU_TICKS,
                report.cpu_ticks_ns as f64 / 1e3 / requests,
            ),
            (
                metric::BUSY,
                report.cpu_run_ns as f64 / 1e7 / report.seconds,
            ),
            (
                metric::WAIT,
                report.cpu_wait_ns as f64 / 1e7 / report.seconds,
            ),
            (metric::RSS_LOAD, memory.rss_kb as f64),
            (metric::RSS_PEAK, memory.peak_kb as f64),
        ]);
    }
    values
}

fn progress(bench: &Bench, cell: &Scenario, results: &Results) {
    let subjects = bench
        .peers
        .iter()
        .map(|peer| peer.subject)
        .chain([Subject::Direct]);
    for subject in subjects {
        let median = |metric| results.median(phase(cell), Some(*cell), subject, metric);
        let number = |metric| median(metric).map_or("–".into(), |value| format!("{value:.1}"));
        eprintln!(
            "  {subject:<8} {:>8} µs CPU  {:>9} req/s  p50 {:>8} µs  p99 {:>8} µs",
            number(metric::CPU),
            number(metric::THROUGHPUT),
            number(metric::P50),
            number(metric::P99),
        );
    }
}
