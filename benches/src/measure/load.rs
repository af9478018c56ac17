//! The load part: for each cell all proxies run, and get the load in turns.
//!
//! Proxies that wait for their turn are idle on the same processor; those that take turns within a
//! round share the noise of the same seconds, which the paired ratios rely on. With requests that wait, each proxy
//! runs only during its turn.

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

pub(super) fn run(bench: &Bench, cells: &[Scenario], results: &mut Results) -> Result<()> {
    for (index, cell) in cells.iter().enumerate() {
        eprintln!("load {}/{}: {cell}", index + 1, cells.len());
        run_cell(bench, cell, results)?;
        progress(bench, cell, results);
    }
    Ok(())
}

fn run_cell(bench: &Bench, cell: &Scenario, results: &mut Results) -> Result<()> {
    match cell.mode {
        Loop::Closed | Loop::Open => run_side_by_side(bench, cell, results),
        Loop::Waiting => run_one_by_one(bench, cell, results),
    }
}

/// Starts a proxy that takes part in the cell; a failure is a result.
fn start(bench: &Bench, cell: &Scenario, peer: &Peer, results: &mut Results) -> Option<Running> {
    match Running::start(peer, &bench.origin, bench.cpus.proxy) {
        Ok(proxy) => Some(proxy),
        Err(error) => {
            results.fail(peer.subject, cell.to_string(), error);
            None
        }
    }
}

fn peers<'a>(bench: &'a Bench, cell: &Scenario) -> impl Iterator<Item = &'a Peer> {
    let accepts = |peer: &&Peer| peer.subject.accepts(cell);
    bench.peers.iter().filter(accepts)
}

/// Measures proxies that all run during the whole cell.
fn run_side_by_side(bench: &Bench, cell: &Scenario, results: &mut Results) -> Result<()> {
    let mut proxies = Vec::new();
    for peer in peers(bench, cell) {
        proxies.extend(start(bench, cell, peer, results));
    }
    for round in 0..bench.options.rounds() {
        for proxy in proxies.iter().map(Some).chain([None]) {
            measure(bench, (cell, round), proxy, 0, results)?;
        }
    }
    Ok(())
}

/// Measures proxies that run only during their own turns. Others would keep thousands of connections to the origin,
/// which has room for those of two proxies.
fn run_one_by_one(bench: &Bench, cell: &Scenario, results: &mut Results) -> Result<()> {
    for round in 0..bench.options.rounds() {
        for peer in peers(bench, cell) {
            let Some(proxy) = start(bench, cell, peer, results) else {
                continue;
            };
            sleep(SETTLE);
            let idle_kb = procfs::memory_sum(&proxy.pids())?.data_kb;
            measure(bench, (cell, round), Some(&proxy), idle_kb, results)?;
        }
        measure(bench, (cell, round), None, 0, results)?;
    }
    Ok(())
}

/// Runs the generator against one proxy, or the origin, and records the result. `idle_kb` is the proxy's data before
/// the first request.
fn measure(
    bench: &Bench,
    (cell, round): (&Scenario, u32),
    proxy: Option<&Running>,
    idle_kb: u64,
    results: &mut Results,
) -> Result<()> {
    let subject = proxy.map_or(Subject::Direct, |one| one.subject);
    let place = || format!("{cell}, round {round}");
    let (report, memory) = match one_run(bench, cell, proxy) {
        Ok(done) => done,
        Err(error) => {
            results.fail(subject, place(), error);
            return Ok(());
        }
    };
    if let Err(error) = report.complete() {
        results.fail(subject, place(), error);
    }
    let mut values = values(&report, proxy.map(|_| memory));
    if cell.mode == Loop::Waiting && proxy.is_some() {
        let growth = memory.data_kb as f64 - idle_kb as f64;
        values.push((metric::PER_WAITING, growth / cell.connections as f64));
    }
    results.add(Record {
        phase: phase(cell),
        round,
        subject,
        scenario: Some(*cell),
        values,
    })
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
pub(super) fn one_run(
    bench: &Bench,
    cell: &Scenario,
    proxy: Option<&Running>,
) -> Result<(Report, Memory)> {
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

pub(super) fn values(report: &Report, memory: Option<Memory>) -> Vec<(&'static str, f64)> {
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
