//! Counters of the application's instances, of the links between nodes, and of processes in the
//! kernel.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, DELAY_DEVICE};

use super::pods::counts;
use crate::error::{Doing, Error, Result};
use crate::procfs;

/// Programs whose CPU time is measured separately.
const PROGRAMS: [&str; 2] = ["maglor-proxy", "maglor-app"];

/// Counters at one time, summed over all nodes and pods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    at: Instant,
    /// Calls within the mesh that have arrived.
    calls: u64,
    /// Calls among them from another node.
    away: u64,
    /// Bytes and packets that have left nodes for others, including all headers and all other
    /// traffic between pods and nodes.
    bytes: u64,
    packets: u64,
    /// Processor time of [`PROGRAMS`].
    cpu: [Duration; 2],
}

/// The counted events of a period, per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) calls: f64,
    pub(super) away: f64,
    pub(super) bytes: f64,
    pub(super) packets: f64,
    /// Cores used by all sidecars, and by all applications.
    pub(super) cpu: [f64; 2],
}

impl Counters {
    /// Reads the counters; `instances` are the pods whose arrivals are calls.
    pub(super) fn look(cluster: &Cluster, instances: Vec<Ipv4Addr>) -> Result<Self> {
        let counts = cluster.in_network(move || {
            let counts = instances.iter().map(|pod| counts(*pod));
            counts.collect::<Result<Vec<_>>>()
        });
        let counts = counts??;
        let mut counters = Self {
            at: Instant::now(),
            calls: counts.iter().map(|one| one.arrived).sum(),
            away: counts.iter().map(|one| one.from_elsewhere).sum(),
            bytes: 0,
            packets: 0,
            cpu: [Duration::ZERO; 2],
        };
        for node in cluster.nodes() {
            let path = format!("/proc/{}/net/dev", node.init());
            let (bytes, packets) = sent(&fs::read_to_string(&path).doing(path)?)?;
            counters.bytes += bytes;
            counters.packets += packets;
            for (sum, used) in counters.cpu.iter_mut().zip(cpu(node.init())?) {
                *sum += used;
            }
        }
        Ok(counters)
    }

    /// Returns the rates since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Rates {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let cores = |index: usize| {
            let used = self.cpu[index].saturating_sub(earlier.cpu[index]);
            used.as_secs_f64() / seconds
        };
        Rates {
            calls: rate(self.calls, earlier.calls),
            away: rate(self.away, earlier.away),
            bytes: rate(self.bytes, earlier.bytes),
            packets: rate(self.packets, earlier.packets),
            cpu: [cores(0), cores(1)],
        }
    }
}

/// Returns the bytes and packets that have left by the delay line, from `/proc/PID/net/dev`.
fn sent(text: &str) -> Result<(u64, u64)> {
    let line = text.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == DELAY_DEVICE).then_some(counters)
    });
    let counter = |index: usize| line?.split_whitespace().nth(index)?.parse().ok();
    // The eight counters of received traffic come first.
    let both = counter(8).zip(counter(9));
    both.ok_or_else(|| Error::parse("/proc/PID/net/dev", format!("no {DELAY_DEVICE}")))
}

/// Returns the processor time of [`PROGRAMS`] on the machine with this init process.
fn cpu(init: u32) -> Result<[Duration; 2]> {
    let mut used = [Duration::ZERO; 2];
    for pid in procfs::tree(init) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if let Some(index) = PROGRAMS.iter().position(|one| *one == name.trim_end()) {
            used[index] += procfs::cpu(&[pid])?.run;
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_is_distinguished_from_received() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n \
                    delay: 500 6 0 0 0 0 0 0 700 8 0 0 0 0 0 0\n";
        assert_eq!(sent(text).unwrap(), (700, 8));
        assert!(sent("lo: 1 2 3").is_err());
    }

    #[test]
    fn rates_are_differences_by_time() {
        let at = Instant::now();
        let counters = |seconds: u64, calls: u64| Counters {
            at: at + Duration::from_secs(seconds),
            calls,
            away: calls / 2,
            bytes: calls * 100,
            packets: 0,
            cpu: [Duration::from_millis(calls), Duration::ZERO],
        };
        let rates = counters(10, 2000).since(&counters(0, 1000));
        assert_eq!((rates.calls, rates.away, rates.bytes), (100.0, 50.0, 1e4));
        assert!((rates.cpu[0] - 0.1).abs() < 1e-9);
    }
}
