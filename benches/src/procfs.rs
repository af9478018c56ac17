//! Reads memory, CPU time and children of processes from `/proc`.

use std::fs;
use std::time::Duration;

use crate::error::{Doing, Error, Result};

/// Resident memory of one or more processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// `VmRSS` now, kB.
    pub rss_kb: u64,
    /// `RssAnon` and `RssShmem`: the part that holds data, not pages of executables, kB.
    pub data_kb: u64,
    /// `VmHWM`, the highest since start or [`reset_peak`], kB.
    pub peak_kb: u64,
}

/// The share of memory that one or more processes are responsible for: a page that several map counts in parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// `Pss`, kB.
    pub pss_kb: u64,
    /// `Pss_Anon`: heaps and stacks, kB.
    pub anonymous_kb: u64,
}

impl Share {
    /// Returns the larger of both values of `self` and `other`.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            pss_kb: self.pss_kb.max(other.pss_kb),
            anonymous_kb: self.anonymous_kb.max(other.anonymous_kb),
        }
    }
}

/// Processor time used by one or more processes since they started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Time on a processor of the live threads, from `schedstat`.
    pub run: Duration,
    /// Time ready to run but waiting for a processor.
    pub wait: Duration,
    /// `utime + stime`: coarse, but counts threads that have ended.
    pub ticks: Duration,
}

impl CpuTime {
    /// Returns the difference to `earlier`.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            run: self.run.saturating_sub(earlier.run),
            wait: self.wait.saturating_sub(earlier.wait),
            ticks: self.ticks.saturating_sub(earlier.ticks),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            wait: self.wait + other.wait,
            ticks: self.ticks + other.ticks,
        }
    }
}

/// Returns `root` and all its descendants, `root` first.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        for thread in threads(pid) {
            let path = format!("/proc/{pid}/task/{thread}/children");
            let text = fs::read_to_string(path).unwrap_or_default();
            found.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Returns the memory of one process.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    parse_status(&fs::read_to_string(&path).doing(path)?)
}

/// Returns the total memory of several processes; pages that they share count in each.
pub(crate) fn memory_sum(pids: &[u32]) -> Result<Memory> {
    pids.iter().try_fold(Memory::default(), |sum, &pid| {
        let one = memory(pid)?;
        Ok(Memory {
            rss_kb: sum.rss_kb + one.rss_kb,
            data_kb: sum.data_kb + one.data_kb,
            peak_kb: sum.peak_kb + one.peak_kb,
        })
    })
}

/// Returns the total share of several processes. Reading it costs time of the processes: their pages are counted.
pub(crate) fn share(pids: &[u32]) -> Result<Share> {
    pids.iter().try_fold(Share::default(), |sum, &pid| {
        let path = format!("/proc/{pid}/smaps_rollup");
        let one = parse_rollup(&fs::read_to_string(&path).doing(path)?)?;
        Ok(Share {
            pss_kb: sum.pss_kb + one.pss_kb,
            anonymous_kb: sum.anonymous_kb + one.anonymous_kb,
        })
    })
}

/// Resets the high-water mark to the current value; without permission it stays unchanged.
pub(crate) fn reset_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Returns the total processor time of several processes.
pub(crate) fn cpu(pids: &[u32]) -> Result<CpuTime> {
    pids.iter()
        .try_fold(CpuTime::default(), |sum, &pid| Ok(sum.plus(cpu_of(pid)?)))
}

fn cpu_of(pid: u32) -> Result<CpuTime> {
    let path = format!("/proc/{pid}/stat");
    let ticks = parse_stat(&fs::read_to_string(&path).doing(path)?)?;
    let mut used = CpuTime {
        ticks,
        ..CpuTime::default()
    };
    for thread in threads(pid) {
        // A thread may end during the loop.
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")) {
            let (run, wait) = parse_schedstat(&text)?;
            used.run += run;
            used.wait += wait;
        }
    }
    Ok(used)
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn parse_status(text: &str) -> Result<Memory> {
    let field = |name| kilobytes(text, "/proc/PID/status", name);
    Ok(Memory {
        rss_kb: field("VmRSS:")?,
        data_kb: field("RssAnon:")? + field("RssShmem:")?,
        peak_kb: field("VmHWM:")?,
    })
}

fn parse_rollup(text: &str) -> Result<Share> {
    let field = |name| kilobytes(text, "/proc/PID/smaps_rollup", name);
    Ok(Share {
        pss_kb: field("Pss:")?,
        anonymous_kb: field("Pss_Anon:")?,
    })
}

/// Returns the number after a name at the beginning of a line.
fn kilobytes(text: &str, file: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Error::parse(file, format!("no {name}")))
}

fn parse_schedstat(text: &str) -> Result<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(run)), Some(Ok(wait))) => {
            Ok((Duration::from_nanos(run), Duration::from_nanos(wait)))
        }
        _ => Err(Error::parse("schedstat", text)),
    }
}

/// Parses user and system time; the command name may contain spaces and brackets.
fn parse_stat(text: &str) -> Result<Duration> {
    let bad = || Error::parse("/proc/PID/stat", text);
    let (_, after_name) = text.rsplit_once(')').ok_or_else(bad)?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields
        .next()
        .and_then(|field| field.parse().ok())
        .ok_or_else(bad)?;
    let system: u64 = fields
        .next()
        .and_then(|field| field.parse().ok())
        .ok_or_else(bad)?;
    Ok(Duration::from_nanos(
        (user + system) * (1_000_000_000 / rustix::param::clock_ticks_per_second()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t 600 kB\n\
                    RssFile:\t 400 kB\nRssShmem:\t 24 kB\nThreads:\t1\n";
        assert_eq!(
            parse_status(text).unwrap(),
            Memory {
                rss_kb: 1024,
                data_kb: 624,
                peak_kb: 2048
            }
        );
        assert!(parse_status("Name:\tzombie\n").is_err());
    }

    #[test]
    fn rollups_are_read() {
        let text = "55-7f ---p 0 00:00 0 [rollup]\nRss: 1796 kB\nPss: 316 kB\nPss_Anon:  116 kB\n";
        let expected = Share {
            pss_kb: 316,
            anonymous_kb: 116,
        };
        assert_eq!(parse_rollup(text).unwrap(), expected);
        assert!(parse_rollup("").is_err());
        let own = share(&[std::process::id()]).unwrap();
        assert!(own.pss_kb >= own.anonymous_kb && own.anonymous_kb > 0);
    }

    #[test]
    fn schedstat_is_read() {
        let (run, wait) = parse_schedstat("1500 20 3\n").unwrap();
        assert_eq!((run.as_nanos(), wait.as_nanos()), (1500, 20));
        assert!(parse_schedstat("").is_err());
    }

    #[test]
    fn stat_survives_odd_names() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194304 10 0 0 0 150 50 0 0 20 0 1 0 1 2 3";
        let seconds = parse_stat(text).unwrap().as_secs_f64();
        assert!((seconds - 200.0 / rustix::param::clock_ticks_per_second() as f64).abs() < 1e-9);
    }

    #[test]
    fn this_process_is_visible() {
        let own = std::process::id();
        assert_eq!(tree(own).first(), Some(&own));
        assert!(memory(own).unwrap().rss_kb > 100);
        assert!(cpu(&[own]).unwrap().run > Duration::ZERO);
        assert!(memory(u32::MAX - 1).is_err());
    }
}
