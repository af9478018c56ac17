//! Metrics of the process, `process_*`, which are read from `/proc/self` for each exposition.
//!
//! Names and meanings are those of other Prometheus clients. Values that cannot be read are omitted.

use std::fs;

use super::exposition::{Header, Page, Type, Value};

/// The number of clock ticks per second in `/proc`: `USER_HZ`, which is part of the kernel's ABI and not its timer
/// rate.
const USER_HZ: f64 = 100.0;

/// The name, help text and type of each metric, in the order of [`Reading::values`].
const METRICS: [(&str, &str, Type); 7] = [
    (
        "process_cpu_seconds_total",
        "CPU time in user and kernel mode.",
        Type::Counter,
    ),
    (
        "process_max_fds",
        "Limit of open file descriptors.",
        Type::Gauge,
    ),
    ("process_open_fds", "Open file descriptors.", Type::Gauge),
    (
        "process_resident_memory_bytes",
        "Resident memory.",
        Type::Gauge,
    ),
    (
        "process_start_time_seconds",
        "Start time of the process, in seconds since the Unix epoch.",
        Type::Gauge,
    ),
    ("process_threads", "Threads of the process.", Type::Gauge),
    (
        "process_virtual_memory_bytes",
        "Virtual memory.",
        Type::Gauge,
    ),
];

/// The writer of the `process_*` metrics.
#[derive(Debug)]
pub(crate) struct Process {
    /// The start time of the process, which is read once, because it does not change; `None` if it could not be read.
    start_time: Option<f64>,
}

impl Process {
    pub(crate) fn new() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            start_time: start_time(&stat, &boot),
        }
    }
}

impl Process {
    pub(crate) fn write(&self, page: &mut Page) {
        let values = Reading::now(self.start_time).values();
        for ((name, help, kind), value) in METRICS.into_iter().zip(values) {
            if let Some(value) = value {
                let mut family = page.family(Header { name, help, kind });
                family.push(std::iter::empty(), Value::Number(value));
            }
        }
    }
}

/// The values from `/proc/self` at one moment.
#[derive(Debug, Default)]
struct Reading {
    cpu_seconds: Option<f64>,
    max_fds: Option<f64>,
    open_fds: Option<f64>,
    resident_bytes: Option<f64>,
    start_time: Option<f64>,
    threads: Option<f64>,
    virtual_bytes: Option<f64>,
}

impl Reading {
    fn now(start_time: Option<f64>) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
        let status = read("status").unwrap_or_default();
        let kilobytes = |key| Some(field(&status, key)? * 1024.0);
        Self {
            cpu_seconds: read("stat").ok().and_then(|stat| cpu_seconds(&stat)),
            max_fds: read("limits").ok().and_then(|limits| max_fds(&limits)),
            open_fds: open_fds(),
            resident_bytes: kilobytes("VmRSS:"),
            start_time,
            threads: field(&status, "Threads:"),
            virtual_bytes: kilobytes("VmSize:"),
        }
    }

    fn values(self) -> [Option<f64>; METRICS.len()] {
        [
            self.cpu_seconds,
            self.max_fds,
            self.open_fds,
            self.resident_bytes,
            self.start_time,
            self.threads,
            self.virtual_bytes,
        ]
    }
}

/// Returns the number that follows `key` at the beginning of a line.
fn field(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns field `n` of `/proc/self/stat`, counted from 1 as in proc(5), and at least 3.
fn stat_field(stat: &str, n: usize) -> Option<f64> {
    // The second field, the command, may hold spaces and parentheses; the others follow the last.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(n.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, 14)? + stat_field(stat, 15)?) / USER_HZ)
}

fn start_time(stat: &str, system: &str) -> Option<f64> {
    Some(field(system, "btime ")? + stat_field(stat, 22)? / USER_HZ)
}

fn max_fds(limits: &str) -> Option<f64> {
    field(limits, "Max open files")
}

fn open_fds() -> Option<f64> {
    // One of the descriptors is that of the directory being read.
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as f64 - 1.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::Format;

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 1500 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_time(stat, "cpu 1 2\nbtime 1000\n"), Some(1015.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn limits_may_be_infinite() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(max_fds(limits), Some(1024.0));
        // f64 reads neither "unlimited" nor an empty file.
        assert_eq!(max_fds("Max open files  unlimited  unlimited  files"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let process = Process::new();
        let mut page = Page::new(Format::Text);
        process.write(&mut page);
        let text = page.finish();
        for (name, _, _) in METRICS {
            assert!(text.contains(&format!("\n{name} ")), "{name} in {text}");
        }
        assert!(process.start_time.unwrap() > 1.6e9);
    }
}
