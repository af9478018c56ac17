//! The half-core part: requests a second of each proxy with half a processor, the limit of the Proxy-Service in the
//! paper on LOR (note 7: 14 000 requests a second).

use std::thread::sleep;

use super::{Bench, Phase, Record, Results, SETTLE, load};
use crate::cpu_quota::CpuQuota;
use crate::error::Result;
use crate::peer::{Peer, Running};
use crate::scenario::HEADLINE;

/// The share of a processor.
const SHARE: f64 = 0.5;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for round in 0..bench.options.rounds() {
        eprintln!("half a core: round {}", round + 1);
        for peer in &bench.peers {
            match measure(bench, peer, round) {
                Ok(record) => results.add(record)?,
                Err(error) => results.fail(peer.subject, format!("half a core, {round}"), error),
            }
        }
    }
    Ok(())
}

/// Measures one proxy, which runs only meanwhile.
fn measure(bench: &Bench, peer: &Peer, round: u32) -> Result<Record> {
    let quota = CpuQuota::new(SHARE)?;
    let proxy = Running::start(peer, &bench.origin, bench.cpus.proxy)?;
    sleep(SETTLE);
    for pid in proxy.pids() {
        quota.limit(pid)?;
    }
    let (report, memory) = load::one_run(bench, &HEADLINE, Some(&proxy))?;
    report.complete()?;
    Ok(Record {
        phase: Phase::HalfCore,
        round,
        subject: peer.subject,
        scenario: Some(HEADLINE),
        values: load::values(&report, Some(memory)),
    })
}
