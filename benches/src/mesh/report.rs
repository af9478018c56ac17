//! The report of an experiment: raw data as it arrives, charts, `summary.md`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::options::Options;
use super::stage::Measured;
use crate::bar::{self, Bar};
use crate::error::{Doing, Error, Result};
use crate::report::{Findings, Machine, Table, command_line};

/// The utilization above which a processor is too busy for latencies to be those of queues.
const BUSY_PCT: f64 = 80.0;

/// The directory of results, while it is written.
#[derive(Debug)]
pub(super) struct Report {
    directory: PathBuf,
    runs: fs::File,
    batches: fs::File,
    sections: String,
    bars: Vec<Bar>,
    /// Cases whose processors were too busy.
    busy: Vec<String>,
    /// Cases that another program has disturbed in all attempts.
    disturbed: Vec<String>,
}

impl Report {
    /// Creates an empty report, replacing an older one in the same directory.
    ///
    /// # Errors
    /// The directory cannot be created or written.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        let directory = options.out.clone().unwrap_or_else(|| {
            let end = if options.quick { "-quick" } else { "" };
            let name = format!("{}-mesh{end}", machine.date);
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("results")
                .join(name)
        });
        fs::create_dir_all(directory.join("charts")).doing("make the directory of results")?;
        let file = |name: &str, head: &str| {
            let mut file = fs::File::create(directory.join(name)).doing(format!("make {name}"))?;
            writeln!(file, "{head}").doing(format!("write {name}"))?;
            Ok::<_, Error>(file)
        };
        Ok(Self {
            runs: file(
                "runs.csv",
                "experiment,case,requests,failed,offered_rps,answered_rps,mean_ms,ci95_ms,p50_ms,p99_ms,exact_ms,added_ms,added_p50_ms,added_p99_ms,visits,work_ms,rho,\
                 timer_late_ms,lag_mean_ms,lag_p99_ms,proxies,proxy_rss_mb,proxies_us,application_us,generator_us,\
                 proxies_busy_pct,proxies_wait_pct,harness_busy_pct",
            )?,
            batches: file("batches.csv", "experiment,case,batch,mean_ms")?,
            directory,
            sections: String::new(),
            bars: Vec::new(),
            busy: Vec::new(),
            disturbed: Vec::new(),
        })
    }

    /// Writes the results of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&mut self, experiment: &str, case: &str, run: &Measured) -> Result<()> {
        let key = format!("{experiment},\"{case}\"");
        let [proxies_us, app_us, generator_us] = run.cpu;
        writeln!(
            self.runs,
            "{key},{},{},{:.2},{:.2},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.3},{:.4},{:.4},{:.4},{:.4},{:.4},{},{:.2},\
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
        if run.is_disturbed() {
            self.disturbed.push(case.to_owned());
        }
        Ok(())
    }

    /// Creates a further file of raw data.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.directory.join(name), text).doing(format!("write {name}"))
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

    /// Writes `summary.md`, prints the bars; returns whether all were reached.
    ///
    /// # Errors
    /// It cannot be written.
    #[allow(clippy::print_stdout, reason = "this is what a person waits for")]
    pub(super) fn finish(self, machine: &Machine, options: &Options) -> Result<bool> {
        let mut facts = Table::new(["what", "here"]);
        for (name, value) in &machine.facts {
            facts.row(vec![name.clone(), value.clone()]);
        }
        facts.row(vec!["seed".into(), options.seed.to_string()]);
        let bars = bar::table(&self.bars);
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
            self.sections,
            facts.markdown(),
        );
        fs::write(self.directory.join("summary.md"), summary).doing("write summary.md")?;
        println!("## Bars\n\n{bars}");
        eprintln!("written to {}", self.directory.display());
        Ok(self.bars.iter().all(Bar::is_reached))
    }
}
