//! The findings: Fig. 8b beside the authors' values, Figs. 8c and 8d, the share of Proxy-Services.

use maglor_lab::des::Estimate;
use maglor_testkit::app::Shape;

use super::{Cell, INVENTED, PODS, PUBLISHED, RATE, WAYS};
use crate::bar::Bar;
use crate::chart;
use crate::mesh::shop::published::{Costs, Published};
use crate::mesh::shop::{Stretch, Way};
use crate::mesh::stage::Measured;
use crate::report::{Findings, Table, interval, number};

/// The highest latency that a second Proxy-Service adds in the paper, milliseconds (note 10).
const MORE_WITH_TWO_MS: f64 = 8.0;
/// The paper's upper limit of the share of Proxy-Services in all processor time, percent.
const SHARE: f64 = 5.0;

/// Returns all findings.
pub(super) fn findings(
    cells: &[Cell],
    published: &Published,
    stretch: Stretch,
    costs: Shape,
) -> Findings {
    let mut text = format!(
        "Poisson arrivals of the 22 steps in turn, 200 users. Costs are exponential, in the published \
         configuration their distribution is `{costs}`. Each pod of that has its limit of processor time, with a quota \
         each 100 ms. `pods.csv` has the processor time of each pod of `{PODS}`, `sock-shop-{PUBLISHED}.json` and `sock-shop-{INVENTED}.json` are the work models.\n\n"
    );
    if stretch != Stretch::NONE {
        text.push_str(&format!(
            "Everything takes {0} times as long as in Sock Shop, quotas' periods too: where the tables say N requests a \
             second, N / {0} are sent, and their latencies are the measured ones divided by {0}. What proxies and sockets \
             add is thus divided, too.\n\n",
            stretch.0
        ));
    }
    text.push_str(&latencies(cells, published, stretch));
    text.push_str(&pods(cells, published));
    text.push_str(&shares(cells, stretch));
    text.push_str(&configuration(&published.costs()));
    text.push_str(&format!("Sources:\n\n{}", published.sources()));
    Findings {
        title: "Fig. 8b–8d with the authors' configuration of Sock Shop".into(),
        text,
        bars: bars(cells, published, stretch),
        charts: vec![figure(cells, published, stretch)],
    }
}

impl Cell {
    /// Estimates a value over the rounds.
    fn over(&self, value: impl Fn(&Measured) -> f64) -> Estimate {
        Measured::over(&self.runs, value)
    }

    fn mean_ms(&self, stretch: Stretch) -> Estimate {
        self.over(|run| run.mean.value / stretch.0)
    }

    fn failed(&self) -> usize {
        self.runs.iter().map(|run| run.failed).sum()
    }
}

fn of<'a>(cells: &'a [Cell], configuration: &str, way: &Way, rate: u32) -> Option<&'a Cell> {
    let mut all = cells.iter();
    all.find(|cell| {
        cell.configuration == configuration && cell.way.name == way.name && cell.rate == rate
    })
}

/// Returns Fig. 8b.
fn latencies(cells: &[Cell], published: &Published, stretch: Stretch) -> String {
    let mut table = Table::new([
        "configuration, policy",
        "requests a second",
        "**mean ms**",
        "p99 ms",
        "answered %",
        "the authors' mean ms",
        "at",
        "their p95",
        "failed",
    ]);
    for cell in cells {
        let theirs = (cell.configuration == PUBLISHED)
            .then(|| published.nearest(cell.way.name, f64::from(cell.rate)))
            .flatten();
        let theirs = theirs.as_ref();
        table.row(vec![
            format!("{}, {}", cell.configuration, cell.way.name),
            cell.rate.to_string(),
            interval(cell.mean_ms(stretch), 1),
            interval(cell.over(|run| run.p99 / stretch.0), 1),
            interval(cell.over(|run| 100.0 * run.throughput / run.offered), 1),
            number(theirs.map(|row| row.mean_ms)),
            number(theirs.map(|row| row.rate)),
            number(theirs.map(|row| row.p95_ms)),
            cell.failed().to_string(),
        ]);
    }
    let rounds = cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
    format!(
        "### Fig. 8b\n\n{rounds} runs each; intervals of 95 % over runs. The authors' rates are those that were answered, so \
         theirs are lower than the load where it was not sustained.\n\n{}\n",
        table.markdown()
    )
}

/// Returns the used processor time of the pods of one service in a run, percent of the limit, in ascending order.
fn used(run: &Measured, limit: f64) -> Vec<f64> {
    let own = run.pods.iter().filter(|(host, _)| host == PODS);
    let mut used: Vec<_> = own.map(|(_, used)| 100.0 * used / limit).collect();
    used.sort_by(f64::total_cmp);
    used
}

/// Returns Figs. 8c and 8d.
fn pods(cells: &[Cell], published: &Published) -> String {
    let costs = published.costs();
    let own = costs.iter().find(|one| one.name == PODS);
    let limit = own.and_then(|one| one.cpu_millis).unwrap_or(1000.0) / 1000.0;
    let mut table = Table::new([
        "policy",
        "requests a second",
        "least busy pod %",
        "mean of the pods %",
        "busiest pod %",
        "busiest / least",
        "the authors' mean %",
    ]);
    for cell in cells.iter().filter(|one| one.configuration == PUBLISHED) {
        let least = |run: &Measured| used(run, limit).first().copied().unwrap_or_default();
        let most = |run: &Measured| used(run, limit).last().copied().unwrap_or_default();
        let mean = |run: &Measured| {
            let used = used(run, limit);
            used.iter().sum::<f64>() / used.len().max(1) as f64
        };
        let theirs = published.nearest(cell.way.name, f64::from(cell.rate));
        let theirs = theirs.and_then(|row| row.cpu_percent.get(PODS).copied());
        table.row(vec![
            cell.way.name.into(),
            cell.rate.to_string(),
            interval(cell.over(least), 1),
            interval(cell.over(mean), 1),
            interval(cell.over(most), 1),
            number(Some(cell.over(|run| most(run) / least(run)).value)),
            number(theirs),
        ]);
    }
    format!(
        "### Figs. 8c and 8d: processor time of the pods of `{PODS}`\n\nIn percent of a pod's limit, by the work that arrived at \
         it; all pods of each run.\n\n{}\n",
        table.markdown()
    )
}

/// The processor time of a run, ms per request of a client.
struct Spent {
    proxy_services: f64,
    sidecars: f64,
    application: f64,
}

impl Spent {
    fn of(run: &Measured, stretch: Stretch) -> Self {
        let proxy_services = run.central_us / 1000.0;
        Self {
            proxy_services,
            sidecars: run.cpu[0] / 1000.0 - proxy_services,
            // The emulated work is as much longer as everything is slower; the proxies' is real.
            application: run.work * run.calls / stretch.0,
        }
    }

    /// Returns the share of Proxy-Services, percent.
    fn share(&self) -> f64 {
        100.0 * self.proxy_services / (self.proxy_services + self.sidecars + self.application)
    }
}

/// Returns the share of Proxy-Services in all processor time.
fn shares(cells: &[Cell], stretch: Stretch) -> String {
    let mut table = Table::new([
        "configuration",
        "requests a second",
        "Proxy-Services, ms a request",
        "sidecars",
        "application (emulated)",
        "**Proxy-Services %**",
    ]);
    for cell in cells.iter().filter(|one| one.way.central > 0) {
        let spent = |value: fn(&Spent) -> f64| cell.over(|run| value(&Spent::of(run, stretch)));
        table.row(vec![
            cell.configuration.into(),
            cell.rate.to_string(),
            format!("{:.3}", spent(|one| one.proxy_services).value),
            format!("{:.3}", spent(|one| one.sidecars).value),
            format!("{:.2}", spent(|one| one.application).value),
            interval(spent(Spent::share), 1),
        ]);
    }
    format!(
        "### The Proxy-Services' share of all processor time\n\nThe paper has less than {SHARE} %. Proxies' time is real, the \
         application's is that of its work model.\n\n{}\n",
        table.markdown()
    )
}

fn configuration(costs: &[Costs]) -> String {
    let mut table = Table::new([
        "service",
        "replicas",
        "limit, millicores",
        "Proxy-Service",
        "calls a request",
        "CPU ms a call",
        "the cost is",
    ]);
    for one in costs {
        table.row(vec![
            one.name.clone(),
            one.replicas.to_string(),
            one.cpu_millis
                .map_or_else(|| "–".into(), |millis| format!("{millis:.0}")),
            if one.proxy_service { "yes" } else { "no" }.into(),
            number(Some(one.calls)),
            number(Some(one.ms)),
            one.source.clone(),
        ]);
    }
    format!("### The configuration\n\n{}\n", table.markdown())
}

fn bars(cells: &[Cell], published: &Published, stretch: Stretch) -> Vec<Bar> {
    let failed: usize = cells.iter().map(Cell::failed).sum();
    let ours = |way: &Way| {
        let cell = of(cells, PUBLISHED, way, RATE)?;
        Some(cell.mean_ms(stretch).value)
    };
    let theirs = |way: &Way| {
        let row = published.nearest(way.name, f64::from(RATE))?;
        Some(row.mean_ms)
    };
    let ratio = |value: &dyn Fn(&Way) -> Option<f64>, other: &Way| {
        value(&Way::PROXY_SERVICE)
            .zip(value(other))
            .map(|(one, other)| one / other)
    };
    let beside = |other: &Way| {
        Bar::at_most(
            format!(
                "shop-published: latency with Proxy-Services / {} at {RATE} requests/s, the authors' ratio",
                other.name
            ),
            ratio(&theirs, other).unwrap_or_default(),
            ratio(&ours, other),
        )
    };
    let central = cells
        .iter()
        .filter(|one| one.way.central == 1 && one.configuration == PUBLISHED);
    let mut share = central.map(|cell| cell.over(|run| Spent::of(run, stretch).share()).value);
    vec![
        Bar::at_most("shop-published: failed requests", 0.0, Some(failed as f64)),
        beside(&Way::RANDOM),
        beside(&Way::LOR),
        Bar::at_most(
            "shop-published: ms more with 2 Proxy-Services, highest difference",
            MORE_WITH_TWO_MS,
            with_two(cells, stretch),
        ),
        Bar::at_most(
            "shop-published: share of Proxy-Services in all CPU, %, highest load",
            SHARE,
            share.next_back(),
        ),
    ]
}

/// Returns the highest latency that a second Proxy-Service adds at any load, milliseconds.
fn with_two(cells: &[Cell], stretch: Stretch) -> Option<f64> {
    let two = cells.iter().filter(|cell| cell.way.central == 2);
    let more = two.filter_map(|cell| {
        let one = of(cells, cell.configuration, &Way::PROXY_SERVICE, cell.rate)?;
        Some(cell.mean_ms(stretch).value - one.mean_ms(stretch).value)
    });
    more.max_by(f64::total_cmp)
}

fn figure(cells: &[Cell], published: &Published, stretch: Stretch) -> maglor_lab::chart::Figure {
    let mut lines = Vec::new();
    for way in &WAYS {
        let own = cells
            .iter()
            .filter(|cell| cell.configuration == PUBLISHED && cell.way.name == way.name);
        let ours = own
            .clone()
            .map(|cell| (f64::from(cell.rate), cell.mean_ms(stretch).value));
        lines.push(chart::line(format!("{}, Maglor", way.name), ours));
        let theirs = own.filter_map(|cell| {
            let row = published.nearest(way.name, f64::from(cell.rate))?;
            Some((f64::from(cell.rate), row.mean_ms))
        });
        lines.push(chart::line(format!("{}, the authors", way.name), theirs));
    }
    chart::chart(
        "shop-published",
        "Sock Shop with the authors' configuration",
        "requests a second",
        "mean latency, ms",
        lines,
    )
}
