//! What is written down.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::options::Options;
use crate::bar::{self, Bar};
use crate::error::{Doing, Result};
use crate::report::{Machine, Table, command_line};

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// From the controller's start until it served.
    pub(super) ready: Duration,
    pub(super) rss_alone_kb: u64,
    /// From the first client's start until all had everything.
    pub(super) all_served: Duration,
    pub(super) rss_connected_kb: u64,
    pub(super) changes: usize,
    /// Changes that somebody never heard of.
    pub(super) unknown: usize,
    /// From the first change until the last one was known.
    pub(super) changing: Duration,
    /// See [`super::ledger::Ledger::delays`].
    pub(super) delays: Vec<Duration>,
    pub(super) controller_cpu: Duration,
    pub(super) rss_changed_kb: u64,
    pub(super) rss_peak_kb: u64,
    /// The restarted one.
    pub(super) restart_ready: Duration,
    /// From its death until all clients were connected.
    pub(super) back: Duration,
    /// Attempts to connect, resources and bytes after its death.
    pub(super) attempts_again: u64,
    pub(super) resources_again: u64,
    pub(super) bytes_again: u64,
}

impl Figures {
    fn percentile(&self, share: f64) -> Option<f64> {
        let last = self.delays.len().checked_sub(1)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a rank among thousands"
        )]
        let rank = (share * last as f64).ceil() as usize;
        self.delays.get(rank).map(Duration::as_secs_f64)
    }

    fn bars(&self, options: &Options) -> Vec<Bar> {
        let peak = self.rss_peak_kb.max(self.rss_changed_kb);
        let known = self.changes - self.unknown;
        vec![
            Bar::at_most("controller, highest RSS, MB", 150.0, Some(megabytes(peak))),
            Bar::at_most("a change reaches all, p99, s", 1.0, self.percentile(0.99)),
            Bar::at_least(
                "changes that reached all",
                f64::from(options.rate * options.seconds),
                u32::try_from(known).ok().map(f64::from),
            ),
            Bar::at_most(
                "all proxies back after a restart, s",
                5.0,
                Some(self.back.as_secs_f64()),
            ),
            Bar::at_most(
                "resources sent again, for each proxy",
                1.0,
                Some(ratio(self.resources_again, options.proxies)),
            ),
        ]
    }
}

fn megabytes(kb: u64) -> f64 {
    u32::try_from(kb).map_or(f64::INFINITY, f64::from) / 1024.0
}

fn ratio(count: u64, of: u32) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from) / f64::from(of.max(1))
}

/// Writes `summary.md` and `delays.csv`, prints the bars; returns whether all were reached.
///
/// # Errors
/// They cannot be written.
#[allow(clippy::print_stdout, reason = "this is what a person waits for")]
pub(super) fn write(options: &Options, machine: &Machine, figures: &Figures) -> Result<bool> {
    let directory = options.out.clone().unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("results")
            .join(format!("{}-distribution", machine.date))
    });
    fs::create_dir_all(&directory).doing("make the directory of results")?;
    let mut delays = String::from("seconds\n");
    for delay in &figures.delays {
        let _ = writeln!(delays, "{:.6}", delay.as_secs_f64());
    }
    fs::write(directory.join("delays.csv"), delays).doing("write delays.csv")?;
    let bars = figures.bars(options);
    let mut facts = Table::new(["what", "here"]);
    for (name, value) in &machine.facts {
        facts.row(vec![name.clone(), value.clone()]);
    }
    let summary = format!(
        "# Distribution of changes, {}\n\n`cargo xtask distribution{}`\n\n{} Services of {} pods, {} proxies that use {} \
         Services each, {} changes a second\n\n## Bars\n\n{}\n## Figures\n\n{}\n## Machine\n\n{}",
        machine.date,
        command_line(std::env::args().skip(1)),
        options.services,
        options.endpoints,
        options.proxies,
        options.uses,
        options.rate,
        bar::table(&bars),
        table(figures).markdown(),
        facts.markdown(),
    );
    fs::write(directory.join("summary.md"), &summary).doing("write summary.md")?;
    println!("{}\n{}", bar::table(&bars), table(figures).markdown());
    eprintln!("written to {}", directory.display());
    Ok(bars.iter().all(Bar::is_reached))
}

fn table(figures: &Figures) -> Table {
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    let delay = |share| {
        let delay = figures.percentile(share);
        delay.map_or_else(|| "none".to_owned(), |delay| format!("{delay:.3} s"))
    };
    let memory = |kb| format!("{:.1} MB", megabytes(kb));
    let rows = [
        ("start to serving", seconds(figures.ready)),
        ("RSS without proxies", memory(figures.rss_alone_kb)),
        ("all proxies served after", seconds(figures.all_served)),
        ("RSS with all proxies", memory(figures.rss_connected_kb)),
        ("changes", figures.changes.to_string()),
        (
            "of which some proxy never heard",
            figures.unknown.to_string(),
        ),
        ("the changes took", seconds(figures.changing)),
        ("until all knew of one: p50", delay(0.5)),
        ("p90", delay(0.9)),
        ("p99", delay(0.99)),
        ("longest", delay(1.0)),
        (
            "controller's processor time meanwhile",
            seconds(figures.controller_cpu),
        ),
        ("RSS after the changes", memory(figures.rss_changed_kb)),
        ("highest RSS", memory(figures.rss_peak_kb)),
        (
            "restarted: start to serving",
            seconds(figures.restart_ready),
        ),
        ("restarted: all proxies back after", seconds(figures.back)),
        (
            "restarted: attempts to connect",
            figures.attempts_again.to_string(),
        ),
        (
            "restarted: resources sent",
            figures.resources_again.to_string(),
        ),
        ("restarted: bytes sent", figures.bytes_again.to_string()),
    ];
    let mut table = Table::new(["what", "measured"]);
    for (what, measured) in rows {
        table.row(vec![what.into(), measured]);
    }
    table
}
