//! The memory part: idle, with idle connections, and after a burst.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{AFTER, Bench, Phase, Record, Results, SETTLE, load, metric};
use crate::child::Guarded;
use crate::error::Result;
use crate::peer::{Peer, Running, Subject};
use crate::procfs::{self, Memory};
use crate::scenario::Protocol;

/// The number of connections of both parts.
const CONNECTIONS: u32 = 2000;
const HELD_SETTLE: Duration = Duration::from_secs(5);
/// The duration of the measurement of the cost of idleness.
const WATCHED: Duration = Duration::from_secs(10);
const BURST: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(40);

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for round in 0..bench.options.memory_rounds() {
        eprintln!(
            "memory, round {}/{}",
            round + 1,
            bench.options.memory_rounds()
        );
        idle_connections(bench, round, results)?;
        burst(bench, round, results)?;
    }
    Ok(())
}

type Values = Vec<(&'static str, f64)>;

fn add(results: &mut Results, phase: Phase, round: u32, of: Subject, values: Values) -> Result<()> {
    let shown: Vec<_> = values
        .iter()
        .map(|(name, value)| format!("{name} {value:.1}"))
        .collect();
    eprintln!("  {of:<8} {}", shown.join("  "));
    results.add(Record {
        phase,
        round,
        subject: of,
        scenario: None,
        values,
    })
}

/// A proxy with idle connections.
#[derive(Debug)]
struct Held {
    proxy: Running,
    values: Values,
    /// Its data before the connections.
    warm_kb: u64,
    _connections: Guarded,
}

/// Measures idle connections. All proxies hold theirs at the same time, which saves time and causes
/// no interference.
fn idle_connections(bench: &Bench, round: u32, results: &mut Results) -> Result<()> {
    let mut all = Vec::new();
    for peer in &bench.peers {
        match hold(bench, peer) {
            Ok(held) => all.push(held),
            Err(error) => results.fail(peer.subject, "idle connections", error),
        }
    }
    sleep(HELD_SETTLE);
    let begun: Vec<_> = all.iter().map(|held| run_time(&held.proxy)).collect();
    sleep(WATCHED);
    for (mut held, begun) in all.into_iter().zip(begun) {
        let ended = run_time(&held.proxy);
        match memory(&held.proxy).and_then(|now| Ok((now, ended? - begun?))) {
            Ok((now, used)) => {
                let each = used.as_secs_f64() * 1e6 / WATCHED.as_secs_f64();
                held.values.push((metric::CPU_IDLE, each));
                // Pages of the executable come and go meanwhile; connections hold data.
                let growth = (now.data_kb as f64 - held.warm_kb as f64) / f64::from(CONNECTIONS);
                held.values.push((metric::RSS_HELD, now.rss_kb as f64));
                held.values.push((metric::PER_CONNECTION, growth));
                add(results, Phase::Idle, round, held.proxy.subject, held.values)?;
            }
            Err(error) => results.fail(held.proxy.subject, "idle connections", error),
        }
    }
    Ok(())
}

fn hold(bench: &Bench, peer: &Peer) -> Result<Held> {
    let proxy = Running::start(peer, &bench.origin, bench.cpus.proxy)?;
    sleep(SETTLE);
    let mut values = idle_values(&proxy)?;
    generate(bench, &proxy, 4, Duration::from_millis(300))?;
    sleep(SETTLE);
    let warm = memory(&proxy)?;
    values.push((metric::RSS_WARM, warm.rss_kb as f64));
    let arguments = arguments(&proxy, CONNECTIONS);
    let mut connections = Guarded::role("hold", &arguments, bench.cpus.load)?;
    connections.wait_ready()?;
    Ok(Held {
        proxy,
        values,
        warm_kb: warm.data_kb,
        _connections: connections,
    })
}

fn burst(bench: &Bench, round: u32, results: &mut Results) -> Result<()> {
    let mut all = Vec::new();
    for peer in &bench.peers {
        match burst_one(bench, peer) {
            Ok(done) => all.push(done),
            Err(error) => results.fail(peer.subject, "burst", error),
        }
    }
    for (proxy, mut values, idle_kb, gone) in all {
        sleep((gone + AFTER).saturating_duration_since(Instant::now()));
        match rss(&proxy) {
            Ok(kb) => {
                values.push((metric::RSS_AFTER, kb as f64));
                values.push((metric::AFTER_RATIO, kb as f64 / idle_kb as f64));
                add(results, Phase::Burst, round, proxy.subject, values)?;
            }
            Err(error) => results.fail(proxy.subject, "burst", error),
        }
    }
    Ok(())
}

fn burst_one(bench: &Bench, peer: &Peer) -> Result<(Running, Values, u64, Instant)> {
    let proxy = Running::start(peer, &bench.origin, bench.cpus.proxy)?;
    sleep(SETTLE);
    let mut values = idle_values(&proxy)?;
    let idle_kb = rss(&proxy)?;
    values.extend(generate(bench, &proxy, CONNECTIONS, BURST)?);
    Ok((proxy, values, idle_kb, Instant::now()))
}

/// Generates closed-loop load of small bodies; returns the relevant values.
fn generate(bench: &Bench, proxy: &Running, connections: u32, time: Duration) -> Result<Values> {
    let mut arguments = arguments(proxy, connections);
    let window = format!("--warmup-ms 0 --measure-ms {}", time.as_millis());
    arguments.extend(window.split(' ').map(str::to_owned));
    let (report, memory) = load::generate(bench, &arguments, &proxy.pids(), LIMIT)?;
    Ok(vec![
        (metric::REQUESTS, report.requests as f64),
        (metric::ERRORS, report.errors as f64),
        (metric::RSS_LOAD, memory.rss_kb as f64),
        (metric::RSS_PEAK, memory.peak_kb as f64),
    ])
}

fn arguments(proxy: &Running, connections: u32) -> Vec<String> {
    let target = proxy.address(Protocol::H1);
    format!("--target {target} --protocol h1 --body 64 --connections {connections}")
        .split(' ')
        .map(str::to_owned)
        .collect()
}

fn memory(proxy: &Running) -> Result<Memory> {
    procfs::memory_sum(&proxy.pids())
}

/// Returns the processor time since its start.
fn run_time(proxy: &Running) -> Result<Duration> {
    Ok(procfs::cpu(&proxy.pids())?.run)
}

fn rss(proxy: &Running) -> Result<u64> {
    Ok(memory(proxy)?.rss_kb)
}

fn idle_values(proxy: &Running) -> Result<Values> {
    let mut worker = 0;
    for pid in proxy.pids() {
        worker = worker.max(procfs::memory(pid)?.rss_kb);
    }
    Ok(vec![
        (metric::RSS_IDLE, rss(proxy)? as f64),
        (metric::RSS_IDLE_WORKER, worker as f64),
    ])
}
