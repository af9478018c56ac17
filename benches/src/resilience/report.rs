//! The report of a run: raw data, written as it arrives, configurations, charts, `summary.md`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::options::Options;
use super::stage::Run;
use super::window::{Window, count_in, due_in, second};
use crate::bar::{self, Bar};
use crate::error::{Doing, Error, Result};
use crate::report::{Findings, Machine, Table, command_line};

/// The wait for a processor, in percent, above which latencies are doubtful.
const NOISY_PCT: f64 = 5.0;

/// The directory of results, while it is written.
#[derive(Debug)]
pub(super) struct Report {
    directory: PathBuf,
    runs: fs::File,
    seconds: fs::File,
    sections: String,
    bars: Vec<Bar>,
    /// The maximum time that a process waited for its processor, in percent.
    waited: f64,
}

/// Returns a run's name in legends.
pub(super) fn line_name(run: &Run) -> String {
    format!("{}, {}", run.case, run.subject)
}

impl Report {
    /// Creates an empty report, in place of an older one in the same directory.
    ///
    /// # Errors
    /// The directory cannot be created or written.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        let directory = options.out.clone().unwrap_or_else(|| {
            let end = if options.quick { "-quick" } else { "" };
            let name = format!("{}-resilience{end}", machine.date);
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("results")
                .join(name)
        });
        for part in ["", "charts", "configurations", "counters"] {
            fs::create_dir_all(directory.join(part)).doing("make the directory of results")?;
        }
        let file = |name: &str, head: &str| {
            let mut file = fs::File::create(directory.join(name)).doing(format!("make {name}"))?;
            writeln!(file, "{head}").doing(format!("write {name}"))?;
            Ok::<_, Error>(file)
        };
        let values = "requests,ok,failed,good,p50_ms,p95_ms,p99_ms,attempts";
        Ok(Self {
            runs: file(
                "runs.csv",
                &format!("experiment,case,proxy,{values},proxy_wait_pct,harness_wait_pct"),
            )?,
            seconds: file(
                "seconds.csv",
                &format!("experiment,case,proxy,second,{values}"),
            )?,
            directory,
            sections: String::new(),
            bars: Vec::new(),
            waited: 0.0,
        })
    }

    /// Records the results of runs; a success within `good` counts as good.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&mut self, runs: &[Run], good: Duration) -> Result<()> {
        for run in runs {
            let key = format!(
                "{},{},{}",
                run.experiment.key(),
                run.case,
                run.subject.key()
            );
            let whole = values(&Window::of(&run.samples, good), run.attempts.len());
            let (theirs, own) = (run.proxy_waited, run.harness_waited);
            writeln!(self.runs, "{key},{whole},{theirs:.2},{own:.2}").doing("write runs.csv")?;
            self.waited = self.waited.max(theirs).max(own);
            for at in 0..run.seconds() {
                let window = Window::of(due_in(&run.samples, second(at)), good);
                let values = values(&window, count_in(&run.attempts, second(at)));
                writeln!(self.seconds, "{key},{at},{values}").doing("write seconds.csv")?;
            }
            let case = run.case.replace(" % ", "-").replace(' ', "-");
            let name = format!("{}-{case}-{}", run.experiment.key(), run.subject.key());
            let path = |part: &str, end: &str| self.directory.join(part).join(name.clone() + end);
            fs::write(path("configurations", ".yaml"), &run.configuration)
                .doing("write a configuration")?;
            fs::write(path("counters", ".txt"), &run.counters).doing("write counters")?;
        }
        Ok(())
    }

    /// Adds the findings of an experiment.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, findings: Findings) -> Result<()> {
        let mut text = format!("## {}\n\n{}", findings.title, findings.text);
        for chart in &findings.charts {
            let name = format!("charts/{}.svg", chart.file);
            fs::write(self.directory.join(&name), chart.svg()).doing("write a chart")?;
            text.push_str(&format!("\n![]({name})\n"));
        }
        self.sections.push_str(&text);
        self.sections.push('\n');
        eprintln!("\n{}\n{}", findings.text, bar::table(&findings.bars));
        self.bars.extend(findings.bars);
        Ok(())
    }

    /// Writes `summary.md` and prints the bars; returns whether all were reached.
    ///
    /// # Errors
    /// It cannot be written.
    #[allow(clippy::print_stdout, reason = "this is what a person waits for")]
    pub(super) fn finish(self, machine: &Machine) -> Result<bool> {
        let mut facts = Table::new(["what", "here"]);
        for (name, value) in &machine.facts {
            facts.row(vec![name.clone(), value.clone()]);
        }
        let bars = bar::table(&self.bars);
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
            self.sections,
            facts.markdown(),
        );
        fs::write(self.directory.join("summary.md"), summary).doing("write summary.md")?;
        println!("## Bars\n\n{bars}");
        eprintln!("written to {}", self.directory.display());
        Ok(self.bars.iter().all(Bar::is_reached))
    }
}

fn values(window: &Window, attempts: usize) -> String {
    let Window {
        requests,
        ok,
        good,
        p50,
        p95,
        p99,
    } = *window;
    let failed = window.failed();
    format!("{requests},{ok},{failed},{good},{p50:.3},{p95:.3},{p99:.3},{attempts}")
}
