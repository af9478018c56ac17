//! The bars of a comparison: its required results, and whether they are reached.

use super::table::{Table, number};
use crate::measure::{Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::{HEADLINE, LATENCY, Scenario};
use crate::stats;

/// A condition on a measured value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    what: String,
    limit: f64,
    measured: Option<f64>,
}

impl Bar {
    /// Returns whether it was reached; without a measurement it was not.
    pub(super) fn reached(&self) -> bool {
        self.measured.is_some_and(|measured| measured <= self.limit)
    }
}

/// Returns the bars that the executed phases can decide.
pub(super) fn bars(results: &Results, ran: &[Phase], peers: &[Subject]) -> Vec<Bar> {
    let mut bars = Vec::new();
    if ran.contains(&Phase::Load) {
        for (peer, limit) in [
            (Subject::Haproxy, 1.0),
            (Subject::Nginx, 1.0),
            (Subject::Envoy, 0.25),
        ] {
            if peers.contains(&peer) {
                let measured = ratio(results, HEADLINE, peer, metric::CPU);
                bars.push(bar(format!("CPU a request / {peer}'s"), limit, measured));
            }
        }
        if peers.contains(&Subject::Haproxy) {
            for name in [metric::P50, metric::P99] {
                let measured = added_over(results, Subject::Haproxy, name);
                let short = name.trim_end_matches("_us");
                bars.push(bar(
                    format!("added {short} at 1000 req/s / HAProxy's"),
                    1.0,
                    measured,
                ));
            }
        }
    }
    let own = |phase, metric| results.median(phase, None, Subject::Maglor, metric);
    if ran.contains(&Phase::Idle) {
        let idle = own(Phase::Idle, metric::RSS_IDLE).map(|kb| kb / 1e3);
        bars.push(bar("RSS idle, MB", 6.0, idle));
        let each = own(Phase::Idle, metric::PER_CONNECTION);
        bars.push(bar("kB an idle keep-alive connection", 3.0, each));
        let after = own(Phase::Burst, metric::AFTER_RATIO);
        bars.push(bar("RSS 10 s after 2000 connections / idle", 1.3, after));
    }
    if ran.contains(&Phase::Startup) {
        bars.push(bar(
            "start to ready, ms",
            15.0,
            own(Phase::Startup, metric::READY),
        ));
        bars.push(bar(
            "stripped binary, MB",
            10.0,
            own(Phase::Size, metric::BINARY),
        ));
    }
    bars
}

fn bar(what: impl Into<String>, limit: f64, measured: Option<f64>) -> Bar {
    Bar {
        what: what.into(),
        limit,
        measured,
    }
}

/// Returns the ratio of Maglor's value to that of `peer`, paired by round.
pub(super) fn ratio(results: &Results, cell: Scenario, peer: Subject, metric: &str) -> Option<f64> {
    let own = results.series(Phase::Load, Some(cell), Subject::Maglor, metric);
    let other = results.series(Phase::Load, Some(cell), peer, metric);
    stats::paired_ratio(&own, &other)
}

/// Returns the latency that `subject` adds to the direct latency, paired by round.
pub(super) fn added(
    results: &Results,
    cell: Scenario,
    subject: Subject,
    metric: &str,
) -> Option<f64> {
    let own = results.series(Phase::Load, Some(cell), subject, metric);
    let direct = results.series(Phase::Load, Some(cell), Subject::Direct, metric);
    stats::paired_difference(&own, &direct)
}

fn added_over(results: &Results, peer: Subject, metric: &str) -> Option<f64> {
    let own = added(results, LATENCY, Subject::Maglor, metric)?;
    Some(own / added(results, LATENCY, peer, metric)?)
}

/// Formats the bars as a table.
pub(super) fn table(bars: &[Bar]) -> Table {
    let mut table = Table::new(["bar", "at most", "measured", "verdict"]);
    for bar in bars {
        let verdict = if bar.reached() { "pass" } else { "FAIL" };
        let limit = number(Some(bar.limit));
        table.row(vec![
            bar.what.clone(),
            limit,
            number(bar.measured),
            verdict.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Record;

    #[test]
    fn verdicts_follow_the_ratio() {
        let mut results = Results::new(Box::new(std::io::sink())).unwrap();
        let peers = [
            (Subject::Maglor, 18.0),
            (Subject::Haproxy, 20.0),
            (Subject::Envoy, 60.0),
        ];
        for (subject, cpu) in peers {
            let (phase, scenario) = (Phase::Load, Some(HEADLINE));
            let values = vec![(metric::CPU, cpu)];
            results
                .add(Record {
                    phase,
                    round: 0,
                    subject,
                    scenario,
                    values,
                })
                .unwrap();
        }
        let bars = bars(
            &results,
            &[Phase::Load],
            &[Subject::Haproxy, Subject::Envoy],
        );
        let reached: Vec<_> = bars.iter().take(2).map(Bar::reached).collect();
        assert_eq!(reached, [true, false]);
        assert!(!bars[2].reached(), "an unmeasured bar is not reached");
        assert!(table(&bars).markdown().contains("FAIL"));
    }
}
