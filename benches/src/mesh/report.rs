//! The report of an experiment: raw data as it arrives, charts, `summary.md`.

use std::fs;
use std::io::Write as _;

use super::options::Options;
use super::stage::Measured;
use crate::bar;
use crate::error::{Doing, Result};
use crate::report::{Folder, Machine, command_line};

/// The utilization above which a processor is too busy for latencies to be those of queues.
const BUSY_PCT: f64 = 80.0;

/// The folder of results, while it is written.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) folder: Folder,
    runs: fs::File,
    batches: fs::File,
    /// Cases whose processors were too busy.
    busy: Vec<String>,
    /// Cases that another program has disturbed in all attempts.
    disturbed: Vec<String>,
    options: Options,
}

impl Report {
    /// Creates an empty report, replacing an older one in the same directory.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        let name = if options.quick { "mesh-quick" } else { "mesh" };
        let folder = Folder::create(options.out.as_deref(), machine, name)?;
        Ok(Self {
            runs: folder.file(
                "runs.csv",
                "experiment,case,requests,failed,offered_rps,answered_rps,mean_ms,ci95_ms,p50_ms,p99_ms,exact_ms,added_ms,added_p50_ms,added_p99_ms,visits,work_ms,rho,\
                 timer_late_ms,lag_mean_ms,lag_p99_ms,proxies,proxy_rss_mb,proxy_anonymous_mb,proxies_us,application_us,generator_us,\
                 proxies_busy_pct,proxies_wait_pct,harness_busy_pct",
            )?,
            batches: folder.file("batches.csv", "experiment,case,batch,mean_ms")?,
            folder,
            busy: Vec::new(),
            disturbed: Vec::new(),
            options: options.clone(),
        })
    }

    /// Writes the results of a run.
    pub(super) fn keep(&mut self, experiment: &str, case: &str, run: &Measured) -> Result<()> {
        let key = format!("{experiment},\"{case}\"");
        let [proxies_us, app_us, generator_us] = run.cpu;
        writeln!(
            self.runs,
            "{key},{},{},{:.2},{:.2},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.3},{:.4},{:.4},{:.4},{:.4},{:.4},{},{:.2},{:.3},\
             {proxies_us:.2},{app_us:.2},{generator_us:.2},{:.1},{:.1},{:.1}",
            run.requests,
            run.failed,
            run.offered,
            run.throughput,
            run.mean.value,
            run.mean.half_width,
            run.p50,
            run.p99,
            run.exact,
            run.added.0,
            run.added_p50,
            run.added.1,
            run.calls,
            run.work,
            run.rho,
            run.late,
            run.lag.0,
            run.lag.1,
            run.proxies,
            run.memory,
            run.anonymous,
            run.proxies_busy,
            run.proxies_wait,
            run.harness_busy,
        )
        .doing("write runs.csv")?;
        for (index, mean) in run.batches.iter().enumerate() {
            writeln!(self.batches, "{key},{index},{mean:.4}").doing("write batches.csv")?;
        }
        if run.proxies_busy.max(run.harness_busy) > BUSY_PCT {
            self.busy.push(case.to_owned());
        }
        if run.is_disturbed(&self.options) {
            self.disturbed.push(case.to_owned());
        }
        Ok(())
    }

    /// Writes `summary.md`, prints the bars; returns whether all were reached.
    pub(super) fn finish(self, machine: &Machine, options: &Options) -> Result<bool> {
        let bars = bar::table(&self.folder.bars);
        let named = |what: &str, cases: &[String]| {
            if cases.is_empty() {
                return String::new();
            }
            format!("**{what}**: {}.\n\n", cases.join("; "))
        };
        let busy = format!(
            "A processor was in use for more than {BUSY_PCT:.0} % of the time, latencies are not those of queues alone"
        );
        let disturbed = "The machine was not quiet, latencies are too high";
        let notes = named(&busy, &self.busy) + &named(disturbed, &self.disturbed);
        let summary = format!(
            "# Experiments on whole applications, {}\n\n`cargo xtask mesh{}`\n\n{notes}{}## Bars\n\n{bars}\n## Machine\n\n{}",
            machine.date,
            command_line(std::env::args().skip(1)),
            self.folder.sections,
            machine.table(&[("seed", options.seed.to_string())]),
        );
        self.folder.finish(&summary, &format!("## Bars\n\n{bars}"))
    }
}
