//! The report of a run.

use std::fmt::Write as _;

use maglor_lab::chart::Figure;

use super::options::Options;
use super::usage::Usage;
use super::{Pages, Run, Way};
use crate::bar::{self, Bar, beside_linkerd};
use crate::chart;
use crate::error::Result;
use crate::report::{Folder, Machine, Table, command_line, number};
use crate::stats::{median, paired_ratio};

/// The highest processor time of Maglor's data plane over that of Istio's, as of a single proxy over Envoy's.
const CPU_BESIDE_ENVOY: f64 = 0.5;

/// The results so far.
pub(super) struct Report {
    folder: Folder,
    runs: Vec<Run>,
}

impl Report {
    /// Creates an empty report.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        Ok(Self {
            folder: Folder::create(options.out.as_deref(), machine, "users")?,
            runs: Vec::new(),
        })
    }

    /// Records a measurement.
    pub(super) fn run(&mut self, run: Run) -> Result<()> {
        self.runs.push(run);
        let mut text = String::from(
            "round,way,users,requests,pages_s,failed,partial,mean_ms,p50_ms,p95_ms,p99_ms,application_cores,data_plane_cores,\
             control_plane_cores,machine_cores,application_pss_kb,data_plane_pss_kb,control_plane_pss_kb,\
             application_anonymous_kb,data_plane_anonymous_kb,control_plane_anonymous_kb\n",
        );
        for run in &self.runs {
            let (pages, usage) = (&run.pages, &run.usage);
            let _ = write!(
                text,
                "{},{},{},{}",
                run.round,
                run.way,
                run.users,
                row(pages)
            );
            for cores in usage.cores {
                let _ = write!(text, ",{cores:.4}");
            }
            let _ = write!(text, ",{:.4}", usage.machine);
            for memory in usage.memory {
                let _ = write!(text, ",{}", memory.pss_kb);
            }
            for memory in usage.memory {
                let _ = write!(text, ",{}", memory.anonymous_kb);
            }
            text.push('\n');
        }
        self.folder.write("runs.csv", &text)?;
        let mut text = String::from(
            "round,way,users,second,requests,pages_s,failed,partial,mean_ms,p50_ms,p95_ms,p99_ms\n",
        );
        for run in &self.runs {
            for (second, pages) in run.seconds.iter().enumerate() {
                let (round, way, users) = (run.round, run.way, run.users);
                let _ = writeln!(text, "{round},{way},{users},{second},{}", row(pages));
            }
        }
        self.folder.write("seconds.csv", &text)
    }

    /// Writes `summary.md` and the charts, and prints the bars; returns whether all were reached.
    pub(super) fn finish(&mut self, machine: &Machine, options: &Options) -> Result<bool> {
        self.folder.bars = self.bars(options);
        let bars = bar::table(&self.folder.bars);
        let charts = self.folder.charts(&self.charts(options))?;
        let (pages, usage) = (self.pages(options), self.usage(options));
        let (pages, usage) = (pages.markdown(), usage.markdown());
        let text = format!(
            "# Users on Bookinfo, {}\n\n`cargo xtask users{}`\n\n## Bars\n\n{bars}\n## Pages\n\nMedians of {} rounds; latencies are \
             those of all pages with status 200. A partial page has status 200, and says that details, reviews or ratings \
             are not available.\n\n{pages}\n{charts}\n## Processors and memory\n\nMedians. Memory is the share that \
             processes have of all pages (`Pss`), at the end of the measured time. The machine's percentage has the users \
             left out.\n\n{usage}\n## Machine\n\n{}",
            machine.date,
            command_line(std::env::args().skip(1)),
            options.rounds,
            machine.table(&[]),
        );
        self.folder
            .finish(&text, &format!("{bars}\n{pages}\n{usage}"))
    }

    fn of(&self, way: Way, users: u32) -> impl Iterator<Item = &Run> {
        let runs = self.runs.iter();
        runs.filter(move |run| run.way == way && run.users == users)
    }

    fn median(&self, way: Way, users: u32, value: impl Fn(&Run) -> f64) -> Option<f64> {
        median(self.of(way, users).map(value))
    }

    /// Returns the ratio of Maglor's value to another way's: the median over rounds.
    fn ratio(&self, other: Way, users: u32, value: impl Fn(&Run) -> f64) -> Option<f64> {
        let series = |way| -> Vec<_> {
            let runs = self.of(way, users);
            runs.map(|run| (run.round, value(run))).collect()
        };
        paired_ratio(&series(Way::Maglor), &series(other))
    }

    fn bars(&self, options: &Options) -> Vec<Bar> {
        let ways = options.ways();
        let mut bars = Vec::new();
        if !ways.contains(&Way::Maglor) {
            return bars;
        }
        for users in options.users.iter().copied() {
            let failed =
                |way: Way| self.median(way, users, |run| run.pages.percent(run.pages.failed));
            if let Some(most) = failed(Way::Plain) {
                let what = format!("{users} users: % failed, at most those of plain Kubernetes");
                bars.push(Bar::at_most(what, most, failed(Way::Maglor)));
            }
            if !ways.contains(&Way::Istio) {
                continue;
            }
            let mut beside = |what: &str, most: f64, value: fn(&Run) -> f64| {
                let what = format!("{users} users: {what} / Istio's");
                bars.push(Bar::at_most(
                    what,
                    most,
                    self.ratio(Way::Istio, users, value),
                ));
            };
            beside("mean", 1.0, |run| run.pages.mean);
            beside("p95", 1.0, |run| run.pages.p95);
            beside("data plane's CPU a page", CPU_BESIDE_ENVOY, |run| {
                run.usage.cores[1] / run.pages.rate
            });
            beside("data plane's memory", beside_linkerd::MEMORY, |run| {
                run.usage.memory[1].pss_kb as f64
            });
            beside("control plane's memory", beside_linkerd::MEMORY, |run| {
                run.usage.memory[2].pss_kb as f64
            });
        }
        bars
    }

    fn pages(&self, options: &Options) -> Table {
        let mut table = Table::new([
            "users, way",
            "pages/s",
            "mean, ms",
            "p50, ms",
            "p95, ms",
            "p99, ms",
            "failed, %",
            "partial, %",
        ]);
        self.rows(options, &mut table, |way, users| {
            let values: [fn(&Run) -> f64; 7] = [
                |run| run.pages.rate,
                |run| run.pages.mean,
                |run| run.pages.p50,
                |run| run.pages.p95,
                |run| run.pages.p99,
                |run| run.pages.percent(run.pages.failed),
                |run| run.pages.percent(run.pages.partial),
            ];
            values.map(|value| self.median(way, users, value)).into()
        });
        table
    }

    fn usage(&self, options: &Options) -> Table {
        let mut table = Table::new([
            "users, way",
            "machine, %",
            "application, cores",
            "data plane, cores",
            "control plane, cores",
            "data plane, ms a page",
            "application, MB",
            "data plane, MB",
            "control plane, MB",
        ]);
        let processors =
            std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        self.rows(options, &mut table, |way, users| {
            let of =
                |value: &dyn Fn(&Usage) -> f64| self.median(way, users, |run| value(&run.usage));
            let megabytes = |class: usize| of(&|usage| usage.memory[class].pss_kb as f64 / 1e3);
            vec![
                of(&|usage| 100.0 * usage.machine / processors),
                of(&|usage| usage.cores[0]),
                of(&|usage| usage.cores[1]),
                of(&|usage| usage.cores[2]),
                self.median(way, users, |run| 1e3 * run.usage.cores[1] / run.pages.rate),
                megabytes(0),
                megabytes(1),
                megabytes(2),
            ]
        });
        table
    }

    fn rows(
        &self,
        options: &Options,
        table: &mut Table,
        cells: impl Fn(Way, u32) -> Vec<Option<f64>>,
    ) {
        for users in options.users.iter().copied() {
            for way in options.ways() {
                let cells = cells(way, users).into_iter().map(number);
                let name = std::iter::once(format!("{users}, {way}"));
                table.row(name.chain(cells).collect());
            }
        }
    }

    /// A chart of latency by time for each number of users.
    fn charts(&self, options: &Options) -> Vec<Figure> {
        let chart = |users: &u32| {
            let line = |way: Way| {
                let length = options.ramp_s + options.seconds;
                let points = (0..length).filter_map(|second| {
                    let at = usize::try_from(second).ok()?;
                    let rows = self.of(way, *users).filter_map(|run| run.seconds.get(at));
                    Some((second as f64, median(rows.map(|row| row.mean))?))
                });
                chart::line(way.to_string(), points)
            };
            let lines = options.ways().into_iter().map(line).collect();
            let title = format!("{users} users");
            let (x, y) = (
                "s since the first user",
                "ms, mean of the pages requested then",
            );
            chart::chart(&format!("users-{users}"), &title, x, y, lines)
        };
        options.users.iter().map(chart).collect()
    }
}

/// The columns of both files.
fn row(pages: &Pages) -> String {
    format!(
        "{},{:.2},{},{},{:.1},{:.1},{:.1},{:.1}",
        pages.requests,
        pages.rate,
        pages.failed,
        pages.partial,
        pages.mean,
        pages.p50,
        pages.p95,
        pages.p99,
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::procfs::Share;

    fn run(way: Way, mean: f64, failed: usize) -> Run {
        let memory = Share {
            pss_kb: mean as u64 * 1000,
            anonymous_kb: 500,
        };
        Run {
            round: 1,
            way,
            users: 1000,
            pages: Pages {
                requests: 1000,
                rate: 100.0,
                failed,
                partial: 0,
                mean,
                p50: mean,
                p95: mean,
                p99: mean,
            },
            usage: Usage {
                cores: [0.5, mean / 100.0, 0.01],
                memory: [memory; 3],
                machine: 1.0,
            },
            seconds: Vec::new(),
        }
    }

    #[test]
    fn maglor_is_compared_with_both() {
        let line = "users --app a --images i --istio x --users 1000";
        let options = Options::try_parse_from(line.split(' ')).unwrap();
        let report = Report {
            folder: Folder::default(),
            runs: vec![
                run(Way::Plain, 10.0, 0),
                run(Way::Maglor, 20.0, 1),
                run(Way::Istio, 50.0, 0),
            ],
        };
        let bars = report.bars(&options);
        let reached: Vec<_> = bars.iter().map(Bar::is_reached).collect();
        // More failures than plain Kubernetes, and two fifths of Istio's values.
        assert_eq!(reached, [false, true, true, true, false, false]);
        assert_eq!(report.pages(&options).markdown().lines().count(), 5);
        assert_eq!(report.usage(&options).markdown().lines().count(), 5);
    }
}
