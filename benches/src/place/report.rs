//! The report of a run.

use std::fmt::Write as _;
use std::time::Duration;

use maglor_lab::chart::Figure;

use super::bookinfo::{self, SERVICES};
use super::degrade::Degraded;
use super::options::Options;
use super::plan::even_share;
use super::stage::Placement;
use super::{Moved, Run, Way};
use crate::bar::{self, Bar};
use crate::chart;
use crate::error::Result;
use crate::report::{Folder, Machine, Table, command_line, number};
use crate::stats::median;

/// The required decrease of the mean latency at every delay, and at this one, in percent.
const LATENCY: f64 = 15.0;
const LATENCY_FAR: (Duration, f64) = (Duration::from_millis(10), 40.0);
/// The required decrease of calls and bytes between nodes, in percent.
const CROSSING: f64 = 60.0;

/// The results so far.
pub(super) struct Report {
    folder: Folder,
    runs: Vec<Run>,
    moved: Vec<Moved>,
    degraded: Vec<Degraded>,
    /// The CPU of a node, in thousandths of a core.
    pub(super) node_millis: u64,
}

impl Report {
    /// Creates an empty report.
    pub(super) fn new(options: &Options, machine: &Machine) -> Result<Self> {
        Ok(Self {
            folder: Folder::create(options.out.as_deref(), machine, "place")?,
            runs: Vec::new(),
            moved: Vec::new(),
            degraded: Vec::new(),
            node_millis: 0,
        })
    }

    /// Records a measurement.
    pub(super) fn run(&mut self, run: Run) -> Result<()> {
        self.runs.push(run);
        let mut text = String::from(
            "round,way,delay_ms,requests,failed,mean_ms,p50_ms,p95_ms,p99_ms,lag_p99_ms,calls_s,cross_node_calls_s,\
             cross_node_bytes_s,cross_node_packets_s,sidecars_cores,applications_cores\n",
        );
        for run in &self.runs {
            let rates = &run.rates;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.2},{:.2},{:.0},{:.1},{:.4},{:.4}",
                run.round,
                run.way,
                run.delay.as_millis(),
                run.requests,
                run.failed,
                run.mean,
                run.p50,
                run.p95,
                run.p99,
                run.lag,
                rates.calls,
                rates.away,
                rates.bytes,
                rates.packets,
                rates.cpu[0],
                rates.cpu[1],
            );
        }
        self.folder.write("runs.csv", &text)
    }

    /// Records a transition to a way of placement.
    pub(super) fn moved(&mut self, moved: Moved) -> Result<()> {
        self.moved.push(moved);
        let mut text = String::from(
            "round,way,planned_moves,planned_share,even_share,requests,failed,seconds,placement\n",
        );
        for one in &self.moved {
            let planned = one
                .planned
                .map_or(String::new(), |share| format!("{share:.4}"));
            let _ = writeln!(
                text,
                "{},{},{},{planned},{:.4},{},{},{:.1},\"{}\"",
                one.round,
                one.way,
                one.moves,
                even_share(&one.placement),
                one.requests,
                one.failed,
                one.seconds,
                described(&one.placement),
            );
        }
        self.folder.write("moves.csv", &text)
    }

    /// Records the results of local-first routing without local replicas.
    pub(super) fn degraded(&mut self, degraded: Degraded) -> Result<()> {
        self.degraded.push(degraded);
        let mut text = String::from("round,state,calls_s,cross_node_calls_s\n");
        for one in &self.degraded {
            for seen in &one.seen {
                let (state, calls, away) = (seen.state, seen.calls, seen.away);
                let _ = writeln!(text, "{},{state},{calls:.2},{away:.2}", one.round);
            }
        }
        self.folder.write("degraded.csv", &text)
    }

    /// Writes `summary.md` and the charts, and prints the bars; returns whether all were reached.
    pub(super) fn finish(&mut self, machine: &Machine, options: &Options) -> Result<bool> {
        self.folder.bars = self.bars(options);
        let bars = bar::table(&self.folder.bars);
        let charts = self.folder.charts(&self.charts(options))?;
        let latency = self.table(options).markdown();
        let moves = self.moves().markdown();
        let degraded = self.without_local().markdown();
        let text = format!(
            "# Where replicas run, {}\n\n`cargo xtask place{}`\n\n{}\n## Bars\n\n{bars}\n## Latency and traffic\n\nMedians of \
             {} rounds.\n\n{latency}\n{charts}\n## Moves\n\n{moves}\n## Local replicas go\n\n{degraded}\n## Machine\n\n{}",
            machine.date,
            command_line(std::env::args().skip(1)),
            self.application(options),
            options.rounds,
            machine.table(&[("seed", options.seed.to_string())]),
        );
        let main = format!("{bars}\n{latency}\n{moves}\n{degraded}");
        self.folder.finish(&text, &main)
    }

    fn application(&self, options: &Options) -> String {
        let of = |service: &bookinfo::Service| format!("{} × {}", service.replicas, service.name);
        let services: Vec<_> = SERVICES.iter().map(of).collect();
        let shares = SERVICES
            .iter()
            .map(|one| one.share * u64::from(one.replicas));
        let millis = shares.sum::<u64>() * self.node_millis / 1000;
        format!(
            "Bookinfo with {}: its pods request {millis} thousandths of a core, sidecars not counted, {:.0} % of three \
             nodes of {} and {:.0} % of one. {} requests a second.\n",
            services.join(", "),
            100.0 * millis as f64 / (3 * self.node_millis).max(1) as f64,
            self.node_millis,
            100.0 * millis as f64 / self.node_millis.max(1) as f64,
            options.rate,
        )
    }

    fn of(&self, way: Way, delay: Duration) -> impl Iterator<Item = &Run> {
        let runs = self.runs.iter();
        runs.filter(move |run| run.way == way && run.delay == delay)
    }

    fn median(&self, way: Way, delay: Duration, value: fn(&Run) -> f64) -> Option<f64> {
        median(self.of(way, delay).map(value))
    }

    /// Returns the decrease of a value compared with the default, in percent: the median over
    /// rounds.
    fn fall(&self, way: Way, delay: Duration, value: fn(&Run) -> f64) -> Option<f64> {
        let falls = self.of(way, delay).filter_map(|run| {
            let mut defaults = self.of(Way::Default, delay);
            let default = defaults.find(|one| one.round == run.round)?;
            Some(100.0 * (1.0 - value(run) / value(default)))
        });
        median(falls)
    }

    fn bars(&self, options: &Options) -> Vec<Bar> {
        let mut bars = Vec::new();
        let own = [Way::Placement, Way::LocalFirst].into_iter();
        for way in own.filter(|way| options.ways.contains(way)) {
            for delay in options.delays() {
                let at = format!("{way}, {} ms", delay.as_millis());
                let least = match delay == LATENCY_FAR.0 {
                    true => LATENCY_FAR.1,
                    false => LATENCY,
                };
                bars.push(Bar::at_least(
                    format!("{at}: mean latency below the default's, %"),
                    least,
                    self.fall(way, delay, |run| run.mean),
                ));
                bars.push(Bar::at_least(
                    format!("{at}: fewer calls between nodes, %"),
                    CROSSING,
                    self.fall(way, delay, |run| run.rates.away),
                ));
                bars.push(Bar::at_least(
                    format!("{at}: fewer bytes between nodes, %"),
                    CROSSING,
                    self.fall(way, delay, |run| run.rates.bytes),
                ));
            }
        }
        let sum = |failed: usize| Some(failed as f64);
        let still = self.runs.iter().map(|run| run.failed).sum();
        bars.push(Bar::at_most("failed while nothing moves", 0.0, sum(still)));
        let moving = self.moved.iter().map(|one| one.failed).sum();
        bars.push(Bar::at_most("failed while pods move", 0.0, sum(moving)));
        let without = self.degraded.iter().map(|one| one.failed).sum();
        let what = "failed while local replicas go, come back and are ejected";
        bars.push(Bar::at_most(what, 0.0, sum(without)));
        bars
    }

    fn table(&self, options: &Options) -> Table {
        let mut table = Table::new([
            "delay, way",
            "mean, ms",
            "p95, ms",
            "mean, %",
            "calls/s",
            "between nodes",
            "%",
            "kB/s between nodes",
            "%",
            "sidecars, cores",
            "failed",
        ]);
        for delay in options.delays() {
            for way in options.ways.iter().copied() {
                let cell = |value: fn(&Run) -> f64| number(self.median(way, delay, value));
                let fall = |value: fn(&Run) -> f64| {
                    let fall = self.fall(way, delay, value);
                    fall.map_or("–".into(), |fall| format!("{:+.0}", 0.0 - fall))
                };
                let failed: usize = self.of(way, delay).map(|run| run.failed).sum();
                table.row(vec![
                    format!("{} ms, {way}", delay.as_millis()),
                    cell(|run| run.mean),
                    cell(|run| run.p95),
                    fall(|run| run.mean),
                    cell(|run| run.rates.calls),
                    cell(|run| run.rates.away),
                    fall(|run| run.rates.away),
                    cell(|run| run.rates.bytes / 1e3),
                    fall(|run| run.rates.bytes),
                    cell(|run| run.rates.cpu[0]),
                    failed.to_string(),
                ]);
            }
        }
        table
    }

    fn moves(&self) -> Table {
        let mut table = Table::new([
            "round, way",
            "replicas moved by the plan",
            "% leave by the plan",
            "seconds",
            "requests meanwhile",
            "failed",
            "where replicas were then",
        ]);
        for one in &self.moved {
            table.row(vec![
                format!("{}, {}", one.round, one.way),
                one.moves.to_string(),
                number(one.planned.map(|share| 100.0 * share)),
                format!("{:.0}", one.seconds),
                one.requests.to_string(),
                one.failed.to_string(),
                described(&one.placement),
            ]);
        }
        table
    }

    fn without_local(&self) -> Table {
        let mut table = Table::new([
            "round, details",
            "calls/s",
            "leave their node, %",
            "requests",
            "failed",
        ]);
        for one in &self.degraded {
            for seen in &one.seen {
                table.row(vec![
                    format!("{}, {}", one.round, seen.state),
                    number(Some(seen.calls)),
                    number(Some(100.0 * seen.away / seen.calls.max(1e-9))),
                    String::new(),
                    String::new(),
                ]);
            }
            table.row(vec![
                format!("{}, in all", one.round),
                String::new(),
                String::new(),
                one.requests.to_string(),
                one.failed.to_string(),
            ]);
        }
        table
    }

    fn charts(&self, options: &Options) -> [Figure; 2] {
        let lines = |value: fn(&Run) -> f64| {
            let line = |way: Way| {
                let points = options.delays().filter_map(|delay| {
                    Some((delay.as_secs_f64() * 1e3, self.median(way, delay, value)?))
                });
                chart::line(way.to_string(), points)
            };
            Way::ALL.into_iter().map(line).collect()
        };
        let x = "delay between nodes, one way, ms";
        [
            chart::chart("mean", "Mean latency", x, "ms", lines(|run| run.mean)),
            chart::chart("p95", "95th percentile", x, "ms", lines(|run| run.p95)),
        ]
    }
}

/// `productpage node-1:1 node-2:1; …`.
fn described(placement: &Placement) -> String {
    let of = |(service, nodes): (&String, &std::collections::BTreeMap<String, u32>)| {
        let nodes: Vec<_> = nodes
            .iter()
            .map(|(node, count)| format!("{node}:{count}"))
            .collect();
        format!("{service} {}", nodes.join(" "))
    };
    placement.iter().map(of).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::place::Rates;

    fn run(round: u32, way: Way, delay: u64, mean: f64, away: f64) -> Run {
        Run {
            round,
            way,
            delay: Duration::from_millis(delay),
            requests: 100,
            failed: 0,
            mean,
            p50: mean,
            p95: mean,
            p99: mean,
            lag: 0.1,
            rates: Rates {
                calls: 400.0,
                away,
                bytes: away * 1000.0,
                packets: away,
                cpu: [0.1, 0.1],
            },
        }
    }

    #[test]
    fn bars_compare_within_rounds() {
        let options = Options::try_parse_from(["place", "--delays", "10"]).unwrap();
        let report = Report {
            folder: Folder::default(),
            runs: vec![
                run(1, Way::Default, 10, 50.0, 270.0),
                run(1, Way::Placement, 10, 35.0, 100.0),
                run(1, Way::LocalFirst, 10, 20.0, 50.0),
                run(2, Way::Default, 10, 100.0, 270.0),
                run(2, Way::LocalFirst, 10, 40.0, 50.0),
            ],
            moved: Vec::new(),
            degraded: Vec::new(),
            node_millis: 2000,
        };
        let bars = report.bars(&options);
        let reached: Vec<_> = bars.iter().map(Bar::is_reached).collect();
        assert_eq!(reached, [&[false][..], &[true; 8]].concat());
        let fall = report.fall(Way::LocalFirst, Duration::from_millis(10), |run| run.mean);
        assert!((fall.unwrap() - 60.0).abs() < 1e-9);
        assert_eq!(report.table(&options).markdown().lines().count(), 6);
    }
}
