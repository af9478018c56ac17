//! The startup part: time from spawn to the first 200, and the size of the executable.

use std::fs;
use std::process::Command;

use super::{Bench, Phase, Record, Results, metric};
use crate::error::{Doing, Result};
use crate::peer::{Peer, Running};

pub(super) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    eprintln!("start-up: {} starts each", bench.options.starts());
    for peer in &bench.peers {
        let values = vec![(metric::BINARY, stripped_mb(peer)?)];
        results.add(record(Phase::Size, 0, peer, values))?;
    }
    for round in 0..bench.options.starts() {
        for peer in &bench.peers {
            match Running::start(peer, &bench.origin, bench.cpus.proxy) {
                Ok(running) => {
                    let values = vec![(metric::READY, running.ready_after.as_secs_f64() * 1e3)];
                    results.add(record(Phase::Startup, round, peer, values))?;
                }
                Err(error) => results.fail(peer.subject, "start-up", error),
            }
        }
    }
    Ok(())
}

fn record(phase: Phase, round: u32, peer: &Peer, values: Vec<(&'static str, f64)>) -> Record {
    Record {
        phase,
        round,
        subject: peer.subject,
        scenario: None,
        values,
    }
}

/// Returns the size after `strip`; without that tool, of the file as it is.
fn stripped_mb(peer: &Peer) -> Result<f64> {
    let file = format!("maglor-compare-{}-stripped", std::process::id());
    let copy = std::env::temp_dir().join(file);
    let stripped = Command::new("strip")
        .arg("-o")
        .arg(&copy)
        .arg(&peer.binary)
        .status();
    let measured = if stripped.is_ok_and(|status| status.success()) {
        &copy
    } else {
        &peer.binary
    };
    let bytes = fs::metadata(measured).doing("look at an executable")?.len();
    let _ = fs::remove_file(&copy);
    Ok(bytes as f64 / 1e6)
}
