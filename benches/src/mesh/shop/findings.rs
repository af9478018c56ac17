//! The findings of Fig. 8: tables, bars, a chart.

use maglor_lab::chart::Figure;

use super::passage::{self, Passage};
use super::{Cell, Highest, STEPS_OF_LOAD, Stretch, USERS, Way};
use crate::bar::Bar;
use crate::chart;
use crate::report::{Findings, Table, interval, number};

/// Returns all findings.
pub(super) fn findings(
    cells: &[Cell],
    highest: &[Highest],
    passages: &[Passage],
    stretch: Stretch,
    capacity: f64,
) -> Findings {
    let mut bars = passage::bars(passages);
    let mut charts = Vec::new();
    let mut text = format!(
        "Poisson arrivals of the 22 steps in turn, {USERS} users; exponential service. Replicas and service times are in \
         `sock-shop.json`, a work model of µBench; whatever balances, {capacity:.0} requests a second are the most there \
         can be.\n\n"
    );
    if stretch != Stretch::NONE {
        text.push_str(&format!(
            "Everything takes {0} times as long as in Sock Shop: where the tables say N requests a second, N / {0} are \
             sent, and latencies are as they were measured.\n\n",
            stretch.0
        ));
    }
    // No policy is requested if only the passage is of interest.
    if !cells.is_empty() {
        bars.extend(sweep(cells, highest));
        text.push_str(&limits(cells, highest));
        text.push_str(&runs(cells));
        text.push_str(&central(cells));
        charts.push(chart(cells));
    }
    text.push_str(&passage::text(passages));
    Findings {
        title: "Fig. 8 on real proxies: Sock Shop's call graph".into(),
        text,
        bars,
        charts,
    }
}

fn of<'a>(cells: &'a [Cell], way: &Way, rate: u32) -> Option<&'a Cell> {
    let mut own = cells
        .iter()
        .filter(|cell| cell.way.name == way.name && cell.rate == rate);
    own.next()
}

fn sweep(cells: &[Cell], highest: &[Highest]) -> Vec<Bar> {
    let failed: usize = cells.iter().map(|cell| cell.measured.failed).sum();
    let of = |way: &Way| {
        let own = highest.iter().find(|one| one.way.name == way.name);
        own.map(|one| f64::from(one.rate))
    };
    let above = |way: &Way, other: &Way| of(way).zip(of(other)).map(|(one, other)| one - other);
    let step = f64::from(STEPS_OF_LOAD.1);
    let before = |what: &str| format!("shop: highest load before instability, {what}");
    vec![
        Bar::at_most("shop: failed requests", 0.0, Some(failed as f64)),
        Bar::at_least(
            before("Proxy-Service"),
            Way::PROXY_SERVICE.paper.map_or(0.0, f64::from),
            of(&Way::PROXY_SERVICE),
        ),
        Bar::at_least(
            before("Proxy-Service above lor(2)"),
            step,
            above(&Way::PROXY_SERVICE, &Way::LOR),
        ),
        Bar::at_least(
            before("lor(2) above ring-hash"),
            step,
            above(&Way::LOR, &Way::RING_HASH),
        ),
        Bar::at_least(
            before("ledger above Proxy-Service"),
            0.0,
            above(&Way::LEDGER, &Way::PROXY_SERVICE),
        ),
    ]
}

/// Returns the highest loads.
fn limits(cells: &[Cell], highest: &[Highest]) -> String {
    let mut table = Table::new([
        "policy",
        "**highest load before instability**",
        "mean ms there",
        "not sustained",
        "answered there",
        "the paper's",
    ]);
    for Highest { way, rate } in highest {
        let above = cells
            .iter()
            .filter(|cell| cell.way.name == way.name && cell.rate > *rate)
            .min_by_key(|cell| cell.rate);
        let there = of(cells, way, *rate);
        table.row(vec![
            way.name.into(),
            rate.to_string(),
            number(there.map(|cell| cell.measured.mean.value)),
            above.map_or_else(|| "–".into(), |cell| cell.rate.to_string()),
            above.map_or_else(
                || "–".into(),
                |cell| format!("{:.0} %", 100.0 * share(cell)),
            ),
            way.paper
                .map_or_else(|| "–".into(), |paper| paper.to_string()),
        ]);
    }
    format!(
        "### Fig. 8b: the highest load before instability\n\n{}\n",
        table.markdown()
    )
}

/// Returns the share of requests with a response.
fn share(cell: &Cell) -> f64 {
    cell.measured.throughput / cell.measured.offered
}

fn runs(cells: &[Cell]) -> String {
    let mut table = Table::new([
        "policy",
        "requests a second",
        "answered %",
        "sustained",
        "mean ms",
        "p99 ms",
        "calls a request",
        "added µs a visit",
        "proxies",
        "their CPU, µs a visit",
        "busy %",
        "failed",
    ]);
    for cell in cells {
        let run = &cell.measured;
        table.row(vec![
            cell.way.name.into(),
            cell.rate.to_string(),
            format!("{:.1}", 100.0 * share(cell)),
            if cell.is_sustained() { "yes" } else { "no" }.into(),
            interval(run.mean, 1),
            number(Some(run.p99)),
            number(Some(run.calls)),
            number(Some(1000.0 * run.added.0 / run.calls)),
            run.proxies.to_string(),
            number(Some(run.cpu[0] / run.calls)),
            number(Some(run.proxies_busy)),
            run.failed.to_string(),
        ]);
    }
    format!("Every run:\n\n{}\n", table.markdown())
}

/// Returns Fig. 8e: a line for each service, a column for each load.
fn central(cells: &[Cell]) -> String {
    let central = |cell: &&Cell| !cell.measured.central.is_empty() && cell.is_sustained();
    let mut cells: Vec<_> = cells.iter().filter(central).collect();
    cells.sort_by_key(|cell| cell.rate);
    let Some(first) = cells.first() else {
        return String::new();
    };
    let rates = cells.iter().map(|cell| cell.rate.to_string());
    let mut table = Table::new(["Proxy-Service of".to_owned()].into_iter().chain(rates));
    for (row, (host, _)) in first.measured.central.iter().enumerate() {
        let used = cells.iter().map(|cell| {
            let used = cell.measured.central.get(row).map(|(_, used)| *used);
            number(used)
        });
        table.row([host.clone()].into_iter().chain(used).collect());
    }
    format!(
        "### Fig. 8e: CPU of Proxy-Services, µs a request\n\nBy requests a second of clients; each is a process that shares \
         its processor with all other proxies.\n\n{}\n",
        table.markdown()
    )
}

/// Draws the chart. As in the paper, a line ends with the last load that is sustained.
fn chart(cells: &[Cell]) -> Figure {
    let line = |way: &Way| {
        let own = cells
            .iter()
            .filter(|cell| cell.way.name == way.name && cell.is_sustained());
        let mut points: Vec<_> = own
            .map(|cell| (f64::from(cell.rate), cell.measured.mean.value))
            .collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        chart::line(way.name, points)
    };
    chart::chart(
        "shop",
        "Sock Shop's call graph, up to the highest load before instability",
        "requests a second",
        "mean latency, ms",
        Way::ALL.iter().map(line).collect(),
    )
}
