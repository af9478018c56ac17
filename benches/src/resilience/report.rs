//! The report of a run: raw data, written as it arrives, configurations, charts, `summary.md`.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use super::options::Options;
use super::stage::Run;
use super::window::{Window, count_in, due_in, second};
use crate::bar;
use crate::error::{Doing, Result};
use crate::report::{Folder, Machine, command_line};

/// The wait for a processor, in percent, above which latencies are doubtful.
const NOISY_PCT: f64 = 5.0;

/// The folder of results, while it is written.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) folder: Folder,
    runs: fs::File,
    seconds: fs::File,
    /// The maximum time that a process waited for its processor, in percent.
    waited: f64,
}

/// Returns a run's name in legends.
pub(super) fn line_name(run: &Run) -> String {
    format!("{}, {}", run.case, run.subject)
}

impl Report {
    /// Creates an empty report, in place of an older one in the same directory.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        let end = if options.quick { "-quick" } else { "" };
        let name = format!("resilience{end}");
        let folder = Folder::create(options.out.as_deref(), machine, &name)?;
        let values = "requests,ok,failed,good,p50_ms,p95_ms,p99_ms,attempts,blocked";
        let runs = format!("experiment,case,proxy,{values},proxy_wait_pct,harness_wait_pct");
        let seconds = format!("experiment,case,proxy,second,{values}");
        Ok(Self {
            runs: folder.file("runs.csv", &runs)?,
            seconds: folder.file("seconds.csv", &seconds)?,
            folder,
            waited: 0.0,
        })
    }

    /// Records the results of runs; a success within `good` counts as good.
    pub(super) fn keep(&mut self, runs: &[Run], good: Duration) -> Result<()> {
        for run in runs {
            let key = format!(
                "{},{},{}",
                run.experiment.key(),
                run.case,
                run.subject.key()
            );
            let whole = values(
                &Window::of(&run.samples, good),
                run.attempts.len(),
                run.blocked.len(),
            );
            let (theirs, own) = (run.proxy_waited, run.harness_waited);
            writeln!(self.runs, "{key},{whole},{theirs:.2},{own:.2}").doing("write runs.csv")?;
            self.waited = self.waited.max(theirs).max(own);
            for at in 0..run.seconds() {
                let window = Window::of(due_in(&run.samples, second(at)), good);
                let values = values(
                    &window,
                    count_in(&run.attempts, second(at)),
                    count_in(&run.blocked, second(at)),
                );
                writeln!(self.seconds, "{key},{at},{values}").doing("write seconds.csv")?;
            }
            let case = run.case.replace(" % ", "-").replace(' ', "-");
            let name = format!("{}-{case}-{}", run.experiment.key(), run.subject.key());
            self.folder
                .write(&format!("configurations/{name}.yaml"), &run.configuration)?;
            self.folder
                .write(&format!("counters/{name}.txt"), &run.counters)?;
        }
        Ok(())
    }

    /// Writes `summary.md` and prints the bars; returns whether all were reached.
    pub(super) fn finish(self, machine: &Machine) -> Result<bool> {
        let bars = bar::table(&self.folder.bars);
        let noise = if self.waited > NOISY_PCT {
            format!(
                "**The machine was not quiet**: in one run, client and endpoints or the proxy waited {:.0} % \
                 of the time for a processor that another program used; latencies mean little.\n\n",
                self.waited
            )
        } else {
            String::new()
        };
        let summary = format!(
            "# Resilience, {}\n\nMade by `cargo xtask resilience{}`. `runs.csv` has a line for each run, \
             `seconds.csv` one for each second of it, `configurations/` what the proxies were given, `counters/` what they counted; \
             benches/README.md says what is done.\n\n## Bars\n\n{noise}{bars}\n{}## Machine\n\n{}",
            machine.date,
            command_line(std::env::args().skip(1)),
            self.folder.sections,
            machine.table(&[]),
        );
        self.folder.finish(&summary, &format!("## Bars\n\n{bars}"))
    }
}

fn values(window: &Window, attempts: usize, blocked: usize) -> String {
    let Window {
        requests,
        ok,
        good,
        p50,
        p95,
        p99,
    } = *window;
    let failed = window.failed();
    format!("{requests},{ok},{failed},{good},{p50:.3},{p95:.3},{p99:.3},{attempts},{blocked}")
}
