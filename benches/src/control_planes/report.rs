//! The report: raw data, and tables of medians.

use std::fmt::Write as _;
use std::time::Duration;

use super::options::Options;
use super::part::Usage;
use crate::bar::{self, Bar, beside_linkerd};
use crate::error::Result;
use crate::procfs::CpuTime;
use crate::report::{Folder, Machine, Table, command_line, number};
use crate::stats::{median, quantile};

/// A phase of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// From the start of the programs until they are ready.
    Start,
    /// From the creation of pods until their proxies have served calls to all Services.
    Join,
    Idle,
    Changes,
}

/// What a program used in a phase; memory is that at the end of the phase.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) plane: &'static str,
    pub(super) round: u32,
    pub(super) pods: u32,
    pub(super) phase: Phase,
    pub(super) part: String,
    pub(super) took: Duration,
    pub(super) usage: Usage,
    /// In the phase.
    pub(super) cpu: CpuTime,
}

/// The delays of changes.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) plane: &'static str,
    pub(super) round: u32,
    pub(super) pods: u32,
    pub(super) delays: Vec<Duration>,
}

/// All measurements.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    pub(super) series: Vec<Series>,
}

/// A way to count memory.
type Count = (&'static str, fn(&Row) -> u64);

const COUNTS: [Count; 4] = [
    ("RSS", |row| row.usage.memory.rss_kb),
    ("Pss", |row| row.usage.share.pss_kb),
    ("anonymous", |row| row.usage.share.anonymous_kb),
    ("highest RSS", |row| row.usage.memory.peak_kb),
];

impl Phase {
    fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Join => "join",
            Self::Idle => "idle",
            Self::Changes => "changes",
        }
    }
}

impl Measured {
    fn planes(&self) -> Vec<&'static str> {
        let mut planes = Vec::new();
        for row in &self.rows {
            if !planes.contains(&row.plane) {
                planes.push(row.plane);
            }
        }
        planes
    }

    /// Returns the median over rounds of the sum over the programs of a plane.
    fn total(
        &self,
        (plane, pods, phase): (&str, u32, Phase),
        value: impl Fn(&Row) -> f64,
    ) -> Option<f64> {
        let rounds = self.rows.iter().map(|row| row.round).max()?;
        median((0..=rounds).filter_map(|round| {
            let rows = self.rows.iter().filter(|row| {
                (row.plane, row.pods, row.phase, row.round) == (plane, pods, phase, round)
            });
            let values: Vec<_> = rows.map(&value).collect();
            (!values.is_empty()).then(|| values.iter().sum())
        }))
    }

    fn memory(&self, plane: &str, pods: u32, count: Count) -> Option<f64> {
        let of = |row: &Row| megabytes(count.1(row));
        self.total((plane, pods, Phase::Idle), of)
    }

    fn bars(&self, steps: &[u32]) -> Vec<Bar> {
        let planes = self.planes();
        let Some(peer) = planes.iter().find(|plane| **plane == "Linkerd") else {
            return Vec::new();
        };
        let mut bars = Vec::new();
        for &pods in steps {
            for count in &COUNTS[..3] {
                let of = |plane| self.memory(plane, pods, *count);
                let ratio = of("Maglor").zip(of(peer)).map(|(own, peer)| own / peer);
                let what = format!("{} with {pods} pods, idle, Maglor / Linkerd", count.0);
                bars.push(Bar::at_most(what, beside_linkerd::MEMORY, ratio));
            }
        }
        bars
    }

    fn memory_table(&self, steps: &[u32]) -> Table {
        let mut table = Table::new(["idle, MB", "pods", "RSS", "Pss", "anonymous", "highest RSS"]);
        for plane in self.planes() {
            for &pods in steps {
                let mut cells = vec![plane.to_owned(), pods.to_string()];
                cells.extend(COUNTS.map(|count| number(self.memory(plane, pods, count))));
                table.row(cells);
            }
        }
        table
    }

    /// Returns the memory of each program, with the most pods.
    fn parts_table(&self, pods: u32) -> Table {
        let mut table = Table::new([
            "program",
            "of",
            "RSS, MB",
            "Pss",
            "anonymous",
            "highest RSS",
            "CPU of the start, s",
        ]);
        let mut seen = Vec::new();
        for row in &self.rows {
            if seen.contains(&(row.plane, &row.part)) {
                continue;
            }
            seen.push((row.plane, &row.part));
            let own = |value: fn(&Row) -> f64| {
                move |one: &Row| {
                    if one.part == row.part {
                        value(one)
                    } else {
                        0.0
                    }
                }
            };
            let mut cells = vec![row.part.clone(), row.plane.to_owned()];
            cells.extend(COUNTS.map(|(_, count)| {
                let of = |one: &Row| match one.part == row.part {
                    true => megabytes(count(one)),
                    false => 0.0,
                };
                number(self.total((row.plane, pods, Phase::Idle), of))
            }));
            let cpu = self.total((row.plane, 0, Phase::Start), own(seconds));
            cells.push(number(cpu));
            table.row(cells);
        }
        table
    }

    fn cpu_table(&self, steps: &[u32]) -> Table {
        let mut table = Table::new([
            "CPU, s",
            "pods",
            "start",
            "pods join",
            "idle",
            "idle, ms a second",
            "changes",
            "ready after, s",
        ]);
        for plane in self.planes() {
            for &pods in steps {
                let of = |phase| self.total((plane, pods, phase), seconds);
                let idle = self.total((plane, pods, Phase::Idle), |row| {
                    seconds(row) / row.took.as_secs_f64() * 1e3
                });
                let own = |phase| number(of(phase));
                let took = self.rows.iter().filter(|row| {
                    row.plane == plane && row.phase == Phase::Start && row.pods == pods
                });
                let took = median(took.map(|row| row.took.as_secs_f64()));
                table.row(vec![
                    plane.to_owned(),
                    pods.to_string(),
                    own(Phase::Start),
                    own(Phase::Join),
                    own(Phase::Idle),
                    number(idle),
                    own(Phase::Changes),
                    number(took),
                ]);
            }
        }
        table
    }

    fn delays_table(&self, steps: &[u32]) -> Table {
        let mut table = Table::new([
            "a proxy has a change after, ms",
            "pods",
            "changes",
            "p50",
            "p90",
            "p99",
            "longest",
        ]);
        for plane in self.planes() {
            for &pods in steps {
                let series = self.series.iter();
                let series = series.filter(|one| one.plane == plane && one.pods == pods);
                let mut delays: Vec<_> = series.flat_map(|one| one.delays.clone()).collect();
                if delays.is_empty() {
                    continue;
                }
                delays.sort();
                let mut cells = vec![plane.into(), pods.to_string(), delays.len().to_string()];
                let shares = [0.5, 0.9, 0.99, 1.0];
                cells.extend(shares.map(|share| number(Some(quantile(&delays, share)))));
                table.row(cells);
            }
        }
        table
    }
}

/// Writes `raw.csv`, `delays.csv` and `summary.md`; returns whether all bars were reached.
pub(super) fn write(
    options: &Options,
    machine: &Machine,
    versions: &[(&str, String)],
    measured: &Measured,
) -> Result<bool> {
    let mut folder = Folder::create(options.out.as_deref(), machine, "control-planes")?;
    let steps = options.steps();
    folder.bars = measured.bars(&steps);
    folder.write("raw.csv", &raw(measured))?;
    folder.write("delays.csv", &delays(measured))?;
    let most = steps.last().copied().unwrap_or_default();
    let bars = bar::table(&folder.bars);
    let tables = [
        measured.memory_table(&steps),
        measured.parts_table(most),
        measured.cpu_table(&steps),
        measured.delays_table(&steps),
    ];
    let tables: Vec<_> = tables.iter().map(Table::markdown).collect();
    let main = tables.join("\n");
    let summary = format!(
        "# Control planes, {}\n\n`cargo xtask control-planes{}`\n\n{} rounds; values are medians of rounds, and sums of the \
         programs of a control plane. Idle: {} s.\n\n## Bars\n\n{bars}\n## Measurements\n\n{main}\n## Machine\n\n{}",
        machine.date,
        command_line(std::env::args().skip(1)),
        options.rounds,
        options.idle,
        machine.table(versions),
    );
    folder.finish(&summary, &format!("{bars}\n{main}"))
}

fn raw(measured: &Measured) -> String {
    let mut text = String::from(
        "plane,round,pods,phase,program,seconds,rss_kb,pss_kb,anonymous_kb,highest_rss_kb,cpu_s\n",
    );
    for row in &measured.rows {
        let values = COUNTS.map(|(_, count)| count(row).to_string()).join(",");
        let _ = writeln!(
            text,
            "{},{},{},{},{},{:.3},{values},{:.3}",
            row.plane,
            row.round,
            row.pods,
            row.phase.word(),
            row.part,
            row.took.as_secs_f64(),
            seconds(row),
        );
    }
    text
}

fn delays(measured: &Measured) -> String {
    let mut text = String::from("plane,round,pods,seconds\n");
    for series in &measured.series {
        for delay in &series.delays {
            let (plane, round, pods) = (series.plane, series.round, series.pods);
            let _ = writeln!(text, "{plane},{round},{pods},{:.6}", delay.as_secs_f64());
        }
    }
    text
}

fn seconds(row: &Row) -> f64 {
    row.cpu.ticks.as_secs_f64()
}

fn megabytes(kb: u64) -> f64 {
    u32::try_from(kb).map_or(f64::INFINITY, f64::from) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::{Memory, Share};

    fn row(plane: &'static str, round: u32, part: &str, rss_kb: u64) -> Row {
        Row {
            plane,
            round,
            pods: 0,
            phase: Phase::Idle,
            part: part.into(),
            took: Duration::from_secs(1),
            usage: Usage {
                memory: Memory {
                    rss_kb,
                    ..Memory::default()
                },
                share: Share {
                    pss_kb: rss_kb,
                    anonymous_kb: rss_kb,
                },
                cpu: CpuTime::default(),
            },
            cpu: CpuTime::default(),
        }
    }

    #[test]
    fn programs_are_summed_before_rounds_are_compared() {
        let measured = Measured {
            rows: vec![
                row("Maglor", 0, "controller", 20 << 10),
                row("Linkerd", 0, "destination", 60 << 10),
                row("Linkerd", 0, "identity", 40 << 10),
                row("Linkerd", 1, "destination", 50 << 10),
                row("Linkerd", 1, "identity", 30 << 10),
            ],
            series: Vec::new(),
        };
        assert_eq!(measured.memory("Linkerd", 0, COUNTS[0]), Some(90.0));
        let bars = measured.bars(&[0]);
        assert_eq!(bars.len(), 3);
        assert!(bars.iter().all(Bar::is_reached), "20 of 90");
        assert_eq!(raw(&measured).lines().count(), 6);
        let alone = Measured {
            rows: vec![row("Maglor", 0, "controller", 1)],
            series: Vec::new(),
        };
        assert!(alone.bars(&[0]).is_empty());
    }
}
