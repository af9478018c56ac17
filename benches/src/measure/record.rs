//! Single results, kept in memory and written to `raw.csv` as they arrive.

use std::fmt;
use std::io::Write;

use crate::error::{Doing, Result};
use crate::peer::Subject;
use crate::scenario::Scenario;
use crate::stats;

/// Names of the metrics in `raw.csv`.
pub(crate) mod metric {
    /// Responses in the window.
    pub(crate) const REQUESTS: &str = "requests";
    /// Wrong or missing responses.
    pub(crate) const ERRORS: &str = "errors";
    /// Responses per second.
    pub(crate) const THROUGHPUT: &str = "requests_per_s";
    /// Processor time per response (`schedstat`).
    pub(crate) const CPU: &str = "cpu_us_per_request";
    /// Processor time per response (`utime + stime`).
    pub(crate) const CPU_TICKS: &str = "cpu_ticks_us_per_request";
    /// Share of the window in which the proxy ran.
    pub(crate) const BUSY: &str = "proxy_busy_pct";
    /// Share of the window in which it waited for its processor.
    pub(crate) const WAIT: &str = "proxy_wait_pct";
    /// Median latency.
    pub(crate) const P50: &str = "p50_us";
    /// 99 % latency.
    pub(crate) const P99: &str = "p99_us";
    /// 99.9 % latency.
    pub(crate) const P999: &str = "p999_us";
    /// Worst latency.
    pub(crate) const MAX: &str = "max_us";
    /// Highest sampled sum of `VmRSS` under load.
    pub(crate) const RSS_LOAD: &str = "rss_load_kb";
    /// The peak by `VmHWM`, reset before the run.
    pub(crate) const RSS_PEAK: &str = "rss_hwm_kb";
    /// Memory after start, before traffic.
    pub(crate) const RSS_IDLE: &str = "rss_idle_kb";
    /// The same, of the largest single process.
    pub(crate) const RSS_IDLE_WORKER: &str = "rss_idle_worker_kb";
    /// Memory when idle again after a little traffic.
    pub(crate) const RSS_WARM: &str = "rss_warm_kb";
    /// Memory with idle connections open.
    pub(crate) const RSS_HELD: &str = "rss_held_kb";
    /// Growth of data (`RssAnon`, `RssShmem`) per idle connection.
    pub(crate) const PER_CONNECTION: &str = "kb_per_idle_connection";
    /// Processor time per second with idle connections open, by `schedstat`.
    pub(crate) const CPU_IDLE: &str = "cpu_idle_us_per_s";
    /// Growth of data since the start per waiting request, the highest sample.
    pub(crate) const PER_WAITING: &str = "kb_per_waiting_request";
    /// Memory some time after the burst.
    pub(crate) const RSS_AFTER: &str = "rss_after_burst_kb";
    /// The same relative to idle.
    pub(crate) const AFTER_RATIO: &str = "rss_after_burst_over_idle";
    /// Proportional set size before traffic.
    pub(crate) const PSS_IDLE: &str = "pss_idle_kb";
    /// The same at the fixed rate of the open loop, the highest sample.
    pub(crate) const PSS_OPEN: &str = "pss_open_kb";
    /// The same in the closed loop, the highest sample.
    pub(crate) const PSS_CLOSED: &str = "pss_closed_kb";
    /// The same some time after the load.
    pub(crate) const PSS_AFTER: &str = "pss_after_kb";
    /// Anonymous memory before traffic.
    pub(crate) const ANONYMOUS_IDLE: &str = "anonymous_idle_kb";
    /// The same at the fixed rate of the open loop, the highest sample.
    pub(crate) const ANONYMOUS_OPEN: &str = "anonymous_open_kb";
    /// The same in the closed loop, the highest sample.
    pub(crate) const ANONYMOUS_CLOSED: &str = "anonymous_closed_kb";
    /// The same some time after the load.
    pub(crate) const ANONYMOUS_AFTER: &str = "anonymous_after_kb";
    /// Time from spawn to the first 200.
    pub(crate) const READY: &str = "ready_ms";
    /// Size of the stripped executable.
    pub(crate) const BINARY: &str = "binary_mb";
}

/// The columns of `raw.csv` after the ones that identify the run.
pub(crate) const METRICS: [&str; 32] = {
    use metric::*;
    [
        REQUESTS,
        ERRORS,
        THROUGHPUT,
        CPU,
        CPU_TICKS,
        BUSY,
        WAIT,
        P50,
        P99,
        P999,
        MAX,
        RSS_LOAD,
        RSS_PEAK,
        RSS_IDLE,
        RSS_IDLE_WORKER,
        RSS_WARM,
        RSS_HELD,
        PER_CONNECTION,
        CPU_IDLE,
        PER_WAITING,
        RSS_AFTER,
        AFTER_RATIO,
        PSS_IDLE,
        PSS_OPEN,
        PSS_CLOSED,
        PSS_AFTER,
        ANONYMOUS_IDLE,
        ANONYMOUS_OPEN,
        ANONYMOUS_CLOSED,
        ANONYMOUS_AFTER,
        READY,
        BINARY,
    ]
};

/// The part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Memory after a burst of active connections.
    Burst,
    /// A part of a processor.
    CpuLimit(CpuLimit),
    /// Shares of memory: idle, loaded, after the load.
    Footprint,
    /// Memory with idle connections.
    Idle,
    /// A cell of the load part.
    Load,
    /// The executable.
    Size,
    /// Time to ready.
    Startup,
    /// A cell of requests in flight.
    Waiting,
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Burst => "burst",
            Self::CpuLimit(CpuLimit::Half) => "half-core",
            Self::CpuLimit(CpuLimit::Tenth) => "tenth-core",
            Self::Footprint => "footprint",
            Self::Idle => "idle",
            Self::Load => "load",
            Self::Size => "size",
            Self::Startup => "startup",
            Self::Waiting => "waiting",
        })
    }
}

/// The share of a processor that a proxy may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuLimit {
    /// `500m` in Kubernetes.
    Half,
    /// `100m` in Kubernetes.
    Tenth,
}

impl CpuLimit {
    /// All limits, in the order of a run.
    pub(crate) const ALL: [Self; 2] = [Self::Half, Self::Tenth];

    /// Returns the share of one processor.
    pub(crate) fn share(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::Tenth => 0.1,
        }
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} core", self.share())
    }
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// The part of the comparison.
    pub phase: Phase,
    /// The round, from 0.
    pub round: u32,
    /// The subject of the run.
    pub subject: Subject,
    /// The cell, in the load part.
    pub scenario: Option<Scenario>,
    /// The measured values.
    pub values: Vec<(&'static str, f64)>,
}

/// A run that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The subject of the run.
    pub subject: Subject,
    /// Its place in the comparison.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// All runs so far.
pub(crate) struct Results {
    records: Vec<Record>,
    failures: Vec<Failure>,
    raw: Box<dyn Write>,
}

impl fmt::Debug for Results {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Results({} runs, {} failures)",
            self.records.len(),
            self.failures.len()
        )
    }
}

impl Results {
    /// Creates the results, and writes the names of the columns to `raw`.
    pub(crate) fn new(mut raw: Box<dyn Write>) -> Result<Self> {
        let names = METRICS.join(",");
        writeln!(
            raw,
            "phase,round,subject,protocol,body_bytes,connections,loop,{names}"
        )
        .doing("write raw.csv")?;
        Ok(Self {
            records: Vec::new(),
            failures: Vec::new(),
            raw,
        })
    }

    /// Keeps and writes one run.
    pub(crate) fn add(&mut self, record: Record) -> Result<()> {
        writeln!(self.raw, "{}", csv_line(&record)).doing("write raw.csv")?;
        self.raw.flush().doing("write raw.csv")?;
        self.records.push(record);
        Ok(())
    }

    /// Records a run that does not count.
    pub(crate) fn fail(
        &mut self,
        subject: Subject,
        place: impl Into<String>,
        reason: impl fmt::Display,
    ) {
        let failure = Failure {
            subject,
            place: place.into(),
            reason: reason.to_string(),
        };
        eprintln!("  FAILED {subject}, {}: {}", failure.place, failure.reason);
        self.failures.push(failure);
    }

    /// Returns the runs that do not count.
    pub(crate) fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns one metric by round; runs with errors are left out.
    pub(crate) fn series(
        &self,
        phase: Phase,
        scenario: Option<Scenario>,
        subject: Subject,
        metric: &str,
    ) -> Vec<(u32, f64)> {
        let wanted = |record: &&Record| {
            (record.phase, record.scenario, record.subject) == (phase, scenario, subject)
                && record
                    .value(metric::ERRORS)
                    .is_none_or(|errors| errors < 0.5)
        };
        let value = |record: &Record| Some((record.round, record.value(metric)?));
        self.records
            .iter()
            .filter(wanted)
            .filter_map(value)
            .collect()
    }

    /// Returns the median of [`Self::series`].
    pub(crate) fn median(
        &self,
        phase: Phase,
        scenario: Option<Scenario>,
        subject: Subject,
        metric: &str,
    ) -> Option<f64> {
        let series = self.series(phase, scenario, subject, metric);
        stats::median(series.into_iter().map(|(_, value)| value))
    }
}

impl Record {
    fn value(&self, metric: &str) -> Option<f64> {
        self.values
            .iter()
            .find(|(name, _)| *name == metric)
            .map(|(_, value)| *value)
    }
}

fn csv_line(record: &Record) -> String {
    let cell = match record.scenario {
        Some(Scenario {
            protocol,
            body,
            connections,
            mode,
        }) => {
            format!("{protocol},{body},{connections},{mode}")
        }
        None => ",,,".into(),
    };
    let Record {
        phase,
        round,
        subject,
        ..
    } = record;
    let mut line = format!("{phase},{round},{},{cell}", subject.key());
    for name in METRICS {
        line.push(',');
        if let Some(value) = record.value(name) {
            let rounded = (value * 1000.0).round() / 1000.0;
            line.push_str(&rounded.to_string());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::HEADLINE;

    fn record(round: u32, errors: f64, cpu: f64) -> Record {
        let values = vec![(metric::ERRORS, errors), (metric::CPU, cpu)];
        let (phase, subject) = (Phase::Load, Subject::Nginx);
        Record {
            phase,
            round,
            subject,
            scenario: Some(HEADLINE),
            values,
        }
    }

    #[test]
    fn lines_have_all_columns() {
        let line = csv_line(&record(2, 0.0, 19.123_456));
        assert!(
            line.starts_with("load,2,nginx,h1,64,64,closed,,0,,19.123,"),
            "{line}"
        );
        assert_eq!(line.split(',').count(), 7 + METRICS.len());
        let bare = Record {
            scenario: None,
            ..record(0, 0.0, 1.0)
        };
        assert_eq!(csv_line(&bare).split(',').count(), 7 + METRICS.len());
    }

    #[test]
    fn runs_with_errors_do_not_count() {
        let mut results = Results::new(Box::new(std::io::sink())).unwrap();
        for (round, errors, cpu) in [(0, 0.0, 10.0), (1, 3.0, 1.0), (2, 0.0, 20.0)] {
            results.add(record(round, errors, cpu)).unwrap();
        }
        let cell = Some(HEADLINE);
        let series = results.series(Phase::Load, cell, Subject::Nginx, metric::CPU);
        assert_eq!(series, [(0, 10.0), (2, 20.0)]);
        assert_eq!(
            results.median(Phase::Load, cell, Subject::Nginx, metric::CPU),
            Some(15.0)
        );
        assert_eq!(
            results.median(Phase::Load, cell, Subject::Envoy, metric::CPU),
            None
        );
    }
}
