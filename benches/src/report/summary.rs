//! The text of `summary.md`, of the `README.md` of a result, and of the final output.

use std::path::Path;

use super::bars::{self, added, ratio};
use super::cpu_limit;
use super::headline;
use super::machine::Machine;
use super::table::{Table, number};
use super::waiting;
use crate::bar::{self, Bar};
use crate::measure::{Bench, Phase, Results, metric};
use crate::options::Part;
use crate::peer::Subject;
use crate::scenario::{Loop, Scenario};

/// The wait for its processor, in percent, above which a proxy's results are doubtful.
const NOISY_PCT: f64 = 5.0;

/// The summary of a comparison.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    /// The full text of `summary.md`.
    pub document: String,
    /// The part that is printed.
    pub short: String,
    /// Whether all runs counted and all bars were reached.
    pub passed: bool,
}

/// Summarizes the results.
pub(crate) fn summary(bench: &Bench, results: &Results) -> Summary {
    let peers: Vec<_> = bench.peers.iter().map(|peer| peer.subject).collect();
    let mut short = format!(
        "## Side by side\n\n{}",
        headline::table(results, &peers).markdown()
    );
    let mut passed = results.failures().is_empty() && bench.left_out.is_none();
    if peers.contains(&Subject::Maglor) {
        let mut bars = bars::bars(
            results,
            &phases(&bench.options.parts),
            &peers,
            bench.options.pair,
        );
        if bench.options.parts.contains(&Part::Waiting) {
            let cells = bench.options.waiting();
            bars.extend(waiting::bars(&cells, results, bench.options.pair));
        }
        if bench.options.parts.contains(&Part::CpuLimit) {
            bars.extend(cpu_limit::bars(results));
        }
        passed &= bars.iter().all(Bar::is_reached);
        short.push_str(&format!("\n## Bars\n\n{}", bar::table(&bars)));
    }
    short.push_str(&format!(
        "\n## Validity\n\n{}",
        validity(bench, results, &peers)
    ));
    let mut document = format!("# Summary\n\n{}\n{short}", notes(bench));
    if bench.options.parts.contains(&Part::Load) {
        document.push_str(&cells(bench, results, &peers));
    }
    if bench.options.parts.contains(&Part::Waiting) {
        document.push_str(&waiting::section(&bench.options.waiting(), results, &peers));
    }
    if bench.options.parts.contains(&Part::CpuLimit) {
        document.push_str(&cpu_limit::section(results, &peers));
    }
    Summary {
        document,
        short,
        passed,
    }
}

/// Prints the short form.
#[allow(clippy::print_stdout, reason = "this is what a person waits for")]
pub(crate) fn print(summary: &Summary) {
    println!("{}", summary.short);
}

fn notes(bench: &Bench) -> String {
    format!(
        "Medians of {} alternating rounds ({} for memory, {} starts); ratios are medians of the \
         ratios within a round. One worker, one processor. Added: over the direct latency.\n",
        bench.options.rounds(),
        bench.options.memory_rounds(),
        bench.options.starts(),
    )
}

/// Returns the phases of parts whose bars are those of [`bars`]; the others have their own.
fn phases(parts: &[Part]) -> Vec<Phase> {
    let phase = |part: &Part| match part {
        Part::CpuLimit | Part::Waiting => None,
        Part::Footprint => Some(Phase::Footprint),
        Part::Load => Some(Phase::Load),
        Part::Memory => Some(Phase::Idle),
        Part::Startup => Some(Phase::Startup),
    };
    parts.iter().filter_map(phase).collect()
}

/// Returns the text about runs that do not count, and runs that another program disturbed.
pub(super) fn validity(bench: &Bench, results: &Results, peers: &[Subject]) -> String {
    let mut text = String::new();
    if results.failures().is_empty() {
        text.push_str("Every run counted: no error, no missing answer.\n");
    }
    if let Some(left_out) = &bench.left_out {
        text.push_str(&format!("- **{left_out}**\n"));
    }
    for failure in results.failures() {
        let reason = failure.reason.replace('\n', " ");
        text.push_str(&format!(
            "- **{}**, {}: {reason}\n",
            failure.subject, failure.place
        ));
    }
    text.push_str(&noise(bench, results, peers));
    text
}

/// Returns the text about how often and how long another program occupied the proxies' processor.
fn noise(bench: &Bench, results: &Results, peers: &[Subject]) -> String {
    let cells = |phase, cells: Vec<Scenario>| cells.into_iter().map(move |cell| (phase, cell));
    let wait = |(phase, cell), peer| results.median(phase, Some(cell), peer, metric::WAIT);
    let waits: Vec<f64> = cells(Phase::Load, bench.options.scenarios())
        .chain(cells(Phase::Waiting, bench.options.waiting()))
        .flat_map(|cell| peers.iter().filter_map(move |&peer| wait(cell, peer)))
        .collect();
    let noisy = waits.iter().filter(|wait| **wait > NOISY_PCT).count();
    if noisy == 0 {
        return String::new();
    }
    let worst = waits.iter().copied().fold(0.0, f64::max);
    format!(
        "\n**Noisy**: in {noisy} of {} medians the proxy waited more than {NOISY_PCT} % of the \
         time for its processor (worst {worst:.0} %): latency and throughput mean little.\n",
        waits.len(),
    )
}

/// One metric over all cells: its name and the function that returns its value.
struct Section<'a> {
    title: &'static str,
    metric: &'static str,
    mode: Option<Loop>,
    value: Box<dyn Fn(Scenario, Subject) -> Option<f64> + 'a>,
    ratios: bool,
}

fn cells(bench: &Bench, results: &Results, peers: &[Subject]) -> String {
    let plain = |title, metric, unit: f64, mode, ratios| Section {
        title,
        metric,
        mode,
        ratios,
        value: Box::new(move |cell, subject| {
            results
                .median(Phase::Load, Some(cell), subject, metric)
                .map(|value| value / unit)
        }),
    };
    let over_direct = |title, metric| Section {
        title,
        metric,
        mode: Some(Loop::Open),
        ratios: false,
        value: Box::new(move |cell, subject| added(results, cell, subject, metric)),
    };
    let closed = Some(Loop::Closed);
    let sections = [
        plain("CPU µs a request", metric::CPU, 1.0, None, true),
        plain("Requests a second", metric::THROUGHPUT, 1.0, closed, true),
        plain("p50, µs", metric::P50, 1.0, None, true),
        plain("p99, µs", metric::P99, 1.0, None, true),
        over_direct("Added p50 at 1000 req/s, µs", metric::P50),
        over_direct("Added p99 at 1000 req/s, µs", metric::P99),
        plain(
            "RSS under load (high-water mark), MB",
            metric::RSS_PEAK,
            1e3,
            None,
            true,
        ),
    ];
    sections
        .iter()
        .map(|section| section_text(bench, results, peers, section))
        .collect()
}

fn section_text(bench: &Bench, results: &Results, peers: &[Subject], of: &Section<'_>) -> String {
    let direct = [metric::P50, metric::P99, metric::THROUGHPUT].contains(&of.metric)
        && !of.title.starts_with("Added");
    let subjects: Vec<_> = peers
        .iter()
        .copied()
        .chain(direct.then_some(Subject::Direct))
        .collect();
    let rivals: Vec<_> = peers
        .iter()
        .copied()
        .filter(|peer| of.ratios && *peer != Subject::Maglor && peers.contains(&Subject::Maglor))
        .collect();
    let names = subjects.iter().map(ToString::to_string);
    let ratios = rivals.iter().map(|peer| format!("Maglor / {peer}"));
    let mut table = Table::new(
        std::iter::once("cell".to_owned())
            .chain(names)
            .chain(ratios),
    );
    for cell in bench.options.scenarios() {
        if of.mode.is_none_or(|mode| mode == cell.mode) {
            let mut row = vec![cell.to_string()];
            row.extend(
                subjects
                    .iter()
                    .map(|&subject| number((of.value)(cell, subject))),
            );
            row.extend(
                rivals
                    .iter()
                    .map(|&peer| number(ratio(results, cell, peer, of.metric))),
            );
            table.row(row);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!("\n## {}\n\n{}", of.title, table.markdown())
}

/// Returns the `README.md` of a result: machine, versions, command.
pub(crate) fn readme(bench: &Bench, machine: &Machine) -> String {
    format!(
        "# Comparison of {}\n\n{}\n\
         Proxy on processor {}, generator on {}, origin on {}.\n\n\
         Made by:\n\n```\ncargo run --release -p maglor-benches --bin compare --{}\n```\n\n\
         `raw*.csv` has every run, `summary.md` the medians; `benches/README.md` says how each \
         number is measured and what makes the work equal.\n",
        machine.date,
        machine.table(&[]),
        bench.cpus.proxy,
        bench.cpus.load,
        bench.cpus.origin,
        command_line(std::env::args().skip(1)),
    )
}

/// Returns the arguments as passed, with directories removed.
pub(crate) fn command_line(arguments: impl Iterator<Item = String>) -> String {
    arguments
        .map(|argument| match Path::new(&argument).file_name() {
            Some(name) if argument.contains('/') => format!(" {}", name.to_string_lossy()),
            _ => format!(" {argument}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lose_their_directories() {
        let arguments = ["--quick", "--maglor", "/a/b/maglor-proxy"].map(String::from);
        assert_eq!(
            command_line(arguments.into_iter()),
            " --quick --maglor maglor-proxy"
        );
    }
}
