//! The report of a run.

use std::fmt::Write as _;
use std::time::Duration;

use super::changes::Series;
use super::ledger::Delays;
use super::options::{Options, Through};
use crate::bar::{self, Bar};
use crate::error::Result;
use crate::report::{Folder, Machine, Table, command_line, number};

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// The time from the controller's start until it served.
    pub(super) ready: Duration,
    pub(super) rss_alone_kb: u64,
    /// The time from the first client's start until all clients had all resources.
    pub(super) all_served: Duration,
    pub(super) rss_connected_kb: u64,
    pub(super) series: Vec<Series>,
    pub(super) rss_changed_kb: u64,
    pub(super) rss_peak_kb: u64,
    /// The time from the restart until it served.
    pub(super) restart_ready: Duration,
    /// The time from its death until all clients were connected.
    pub(super) back: Duration,
    /// Attempts to connect, resources and bytes after its death.
    pub(super) attempts_again: u64,
    pub(super) resources_again: u64,
    pub(super) bytes_again: u64,
}

/// Returns a percentile of an ascending list, in seconds.
fn percentile(delays: &[Duration], share: f64) -> Option<f64> {
    let last = delays.len().checked_sub(1)?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a rank among thousands"
    )]
    let rank = (share * last as f64).ceil() as usize;
    delays.get(rank).map(Duration::as_secs_f64)
}

impl Figures {
    /// Returns what was changed last.
    pub(super) fn through(&self) -> Option<Through> {
        self.series.last().map(|series| series.through)
    }

    fn bars(&self, options: &Options) -> Vec<Bar> {
        let peak = self.rss_peak_kb.max(self.rss_changed_kb);
        let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
        let mut bars = vec![Bar::at_most(
            "controller, highest RSS, MB",
            150.0,
            Some(megabytes(peak)),
        )];
        for series in &self.series {
            let of = format!("{} {} a second", series.rate, series.through.word());
            let p99 = |delays| percentile(delays, 0.99);
            bars.push(Bar::at_most(
                format!("{of}: all know, p99, s"),
                1.0,
                p99(&series.delays.whole),
            ));
            bars.push(Bar::at_most(
                format!("{of}: from the slice until all know, p99, s"),
                1.0,
                p99(&series.delays.ours),
            ));
            bars.push(Bar::at_least(
                format!("{of}: changes that reached all"),
                f64::from(series.rate * options.seconds),
                Some(count(series.changes - series.unknown)),
            ));
        }
        bars.push(Bar::at_most(
            "all proxies back after a restart, s",
            5.0,
            Some(self.back.as_secs_f64()),
        ));
        bars.push(Bar::at_most(
            "resources sent again, for each proxy",
            1.0,
            Some(ratio(self.resources_again, options.proxies)),
        ));
        bars
    }

    /// Returns the delays of each part, at each rate.
    fn series(&self) -> Table {
        let mut table = Table::new([
            "changed",
            "a second",
            "changes",
            "unheard",
            "took, s",
            "all know: p50, s",
            "p90",
            "p99",
            "longest",
            "until the slice: p50, s",
            "p99",
            "from there: p50, s",
            "p99",
            "controller, % of a core",
        ]);
        for series in &self.series {
            let Delays {
                whole,
                kubernetes,
                ours,
            } = &series.delays;
            let at = |delays: &[Duration], share| number(percentile(delays, share));
            let took = series.took.as_secs_f64();
            table.row(vec![
                series.through.word().to_owned(),
                series.rate.to_string(),
                series.changes.to_string(),
                series.unknown.to_string(),
                format!("{took:.1}"),
                at(whole, 0.5),
                at(whole, 0.9),
                at(whole, 0.99),
                at(whole, 1.0),
                at(kubernetes, 0.5),
                at(kubernetes, 0.99),
                at(ours, 0.5),
                at(ours, 0.99),
                format!("{:.0}", series.cpu.as_secs_f64() / took * 100.0),
            ]);
        }
        table
    }
}

fn megabytes(kb: u64) -> f64 {
    u32::try_from(kb).map_or(f64::INFINITY, f64::from) / 1024.0
}

fn ratio(count: u64, of: u32) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from) / f64::from(of.max(1))
}

/// Writes `summary.md` and `delays.csv`, prints the bars; returns whether all were reached.
pub(super) fn write(options: &Options, machine: &Machine, figures: &Figures) -> Result<bool> {
    let mut folder = Folder::create(options.out.as_deref(), machine, "distribution")?;
    folder.bars = figures.bars(options);
    let mut delays = String::from("changed,rate,seconds\n");
    for series in &figures.series {
        let (through, rate) = (series.through.word(), series.rate);
        for delay in &series.delays.whole {
            let _ = writeln!(delays, "{through},{rate},{:.6}", delay.as_secs_f64());
        }
    }
    folder.write("delays.csv", &delays)?;
    let bars = bar::table(&folder.bars);
    let (series, table) = (figures.series().markdown(), table(figures).markdown());
    let summary = format!(
        "# Distribution of changes, {}\n\n`cargo xtask distribution{}`\n\n{} Services of {} pods, {} proxies that use {} \
         Services each\n\n## Bars\n\n{bars}\n## Changes\n\n{series}\n## Figures\n\n{table}\n## Machine\n\n{}",
        machine.date,
        command_line(std::env::args().skip(1)),
        options.services,
        options.endpoints,
        options.proxies,
        options.uses,
        machine.table(&[]),
    );
    folder.finish(&summary, &format!("{bars}\n{series}\n{table}"))
}

fn table(figures: &Figures) -> Table {
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    let memory = |kb| format!("{:.1} MB", megabytes(kb));
    let rows = [
        ("start to serving", seconds(figures.ready)),
        ("RSS without proxies", memory(figures.rss_alone_kb)),
        ("all proxies served after", seconds(figures.all_served)),
        ("RSS with all proxies", memory(figures.rss_connected_kb)),
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
