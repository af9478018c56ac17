//! Requests in flight: whether their cost grows with their number.

use super::table::{Table, number};
use crate::bar::Bar;
use crate::measure::{Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::Scenario;
use crate::stats;

/// The highest processor time per request over that of the fewest requests in flight: up to a thousand, and beyond.
const GROWTH: f64 = 1.25;
const GROWTH_OF_MANY: f64 = 1.5;
const MANY: usize = 1000;
/// The highest memory of a waiting request, in kB, in each proxy, with so many of them that pages do not matter.
const KB: f64 = 4.0;
const FEW: usize = 100;

/// Returns the required results; `pair`: the results are sums over two proxies.
pub(super) fn bars(cells: &[Scenario], results: &Results, pair: bool) -> Vec<Bar> {
    let (proxies, whose) = match pair {
        true => (2.0, " in each proxy"),
        false => (1.0, ""),
    };
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    let growth = others.iter().map(|cell| {
        let most = match cell.connections <= MANY {
            true => GROWTH,
            false => GROWTH_OF_MANY,
        };
        let what = format!(
            "CPU a request of {} in flight over {}",
            cell.connections, first.connections
        );
        Bar::at_most(what, most, growth(*first, *cell, results, Subject::Maglor))
    });
    let memory = others.iter().filter(|cell| cell.connections > FEW);
    let memory = memory.map(|cell| {
        let what = format!(
            "kB a waiting request{whose}, {} in flight",
            cell.connections
        );
        let all = of(*cell, results, Subject::Maglor, metric::PER_WAITING);
        Bar::at_most(what, KB, all.map(|kb| kb / proxies))
    });
    growth.chain(memory).collect()
}

/// Returns the tables of processor time and of memory.
pub(super) fn section(cells: &[Scenario], results: &Results, peers: &[Subject]) -> String {
    let Some(first) = cells.first() else {
        return String::new();
    };
    let in_parentheses = |value: Option<f64>| format!("({})", number(value));
    let cpu = |cell: Scenario, peer| {
        let value = number(of(cell, results, peer, metric::CPU));
        let growth = in_parentheses(growth(*first, cell, results, peer));
        format!("{value} {growth}")
    };
    let memory = |cell, peer| number(of(cell, results, peer, metric::PER_WAITING));
    let added = |cell, peer| {
        let of = |name| {
            let series = |subject| results.series(Phase::Waiting, Some(cell), subject, name);
            number(stats::paired_difference(
                &series(peer),
                &series(Subject::Direct),
            ))
        };
        format!("{} / {}", of(metric::P50), of(metric::P99))
    };
    let table = |value: &dyn Fn(Scenario, Subject) -> String| {
        let names = peers.iter().map(ToString::to_string);
        let mut table = Table::new(std::iter::once("in flight".to_owned()).chain(names));
        for &cell in cells {
            let mut row = vec![cell.connections.to_string()];
            row.extend(peers.iter().map(|&peer| value(cell, peer)));
            table.row(row);
        }
        table.markdown()
    };
    format!(
        "\n## Requests in flight\n\nEach waits a second for its answer. CPU µs a request (over that of the fewest):\n\n{}\n\
         Growth of data of all processes since the start, kB a waiting request:\n\n{}\n\
         Added p50 / p99, µs:\n\n{}",
        table(&cpu),
        table(&memory),
        table(&added)
    )
}

fn of(cell: Scenario, results: &Results, peer: Subject, metric: &str) -> Option<f64> {
    results.median(Phase::Waiting, Some(cell), peer, metric)
}

/// Returns the processor time per request over that of the first cell: medians, as cells are measured one after another.
fn growth(first: Scenario, cell: Scenario, results: &Results, peer: Subject) -> Option<f64> {
    let cpu = |cell| of(cell, results, peer, metric::CPU);
    Some(cpu(cell)? / cpu(first)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Record;

    #[test]
    fn growth_counts_from_the_fewest() {
        let mut results = Results::new(Box::new(std::io::sink())).unwrap();
        let cells = Scenario::waiting();
        for (cell, cpu, kb) in [
            (0, 40.0, 90.0),
            (1, 30.0, 9.0),
            (2, 50.0, 8.0),
            (3, 61.0, 3.5),
        ] {
            results
                .add(Record {
                    phase: Phase::Waiting,
                    round: 0,
                    subject: Subject::Maglor,
                    scenario: Some(cells[cell]),
                    values: vec![(metric::CPU, cpu), (metric::PER_WAITING, kb)],
                })
                .unwrap();
        }
        let reached = |pair| -> Vec<_> {
            let bars = bars(&cells, &results, pair);
            bars.iter().map(Bar::is_reached).collect()
        };
        assert_eq!(reached(false), [true, true, false, false, true]);
        assert_eq!(reached(true), [true, true, false, true, true]);
        let text = section(&cells, &results, &[Subject::Maglor, Subject::Envoy]);
        assert!(text.contains("50.0 (1.25)"), "{text}");
        assert_eq!(section(&[], &results, &[]), "");
    }
}
