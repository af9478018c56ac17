//! The CPU limit part: requests a second of each proxy with a part of a processor, as the paper on LOR limits its
//! Proxy-Services.

use std::thread::sleep;

use super::{Bench, CpuLimit, Phase, Record, Results, SETTLE, load};
use crate::cpu_quota::CpuQuota;
use crate::error::Result;
use crate::peer::{Peer, Running};
use crate::scenario::HEADLINE;

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    for limit in CpuLimit::ALL {
        for round in 0..bench.options.rounds() {
            eprintln!("{limit}: round {}", round + 1);
            for peer in &bench.peers {
                match measure(bench, peer, limit, round) {
                    Ok(record) => results.add(record)?,
                    Err(error) => results.fail(peer.subject, format!("{limit}, {round}"), error),
                }
            }
        }
    }
    Ok(())
}

/// Measures one proxy, which runs only meanwhile.
fn measure(bench: &Bench, peer: &Peer, limit: CpuLimit, round: u32) -> Result<Record> {
    let quota = CpuQuota::new(limit.share())?;
    let proxy = Running::start(peer, &bench.origin, bench.cpus.proxy)?;
    sleep(SETTLE);
    for pid in proxy.pids() {
        quota.limit(pid)?;
    }
    let (report, memory) = load::one_run(bench, &HEADLINE, Some(&proxy))?;
    report.complete()?;
    Ok(Record {
        phase: Phase::CpuLimit(limit),
        round,
        subject: peer.subject,
        scenario: Some(HEADLINE),
        values: load::values(&report, Some(memory)),
    })
}
