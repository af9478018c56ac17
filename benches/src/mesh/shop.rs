//! Fig. 8 of the paper on LOR: the call graph of Sock Shop under 100–600 requests a second.
//!
//! Who calls whom is the application's (front end; catalogue, user, carts and orders, each with a
//! database; payment, shipping with its queue), what clients ask is the paper's Table II. How many
//! replicas there are and what a request costs them is ours, because the paper's text does not say: the
//! front end has the paper's 30, and every service but the databases has a load of about 0.9 at 600
//! requests a second, where the paper's application gave up with the policies that know least.

use std::time::Duration;

use maglor_sim::des::Estimate;
use maglor_testkit::app::{Service, WorkModel};

use super::plan::Shape;
use super::report::Report;
use super::stage::{Case, Measured, Stage};
use crate::bar::Bar;
use crate::chart::{Chart, Line};
use crate::error::Result;
use crate::peer::Subject;
use crate::report::{Findings, Table, number};

/// Table II: a user's 22 steps, by the front end's paths.
const STEPS: [&str; 22] = [
    "/home",
    "/login",
    "/category",
    "/catalogue",
    "/detail",
    "/catalogue",
    "/detail",
    "/catalogue",
    "/detail",
    "/basket",
    "/cart-post",
    "/orders",
    "/cart-delete",
    "/cart-post",
    "/orders",
    "/cart-delete",
    "/cart-post",
    "/cart-delete",
    "/orders",
    "/cart-delete",
    "/cart-post",
    "/orders",
];
/// The front end's paths and whom it calls for them, one after the other.
const FRONT: [(&str, &[&str]); 9] = [
    ("/home", &[]),
    ("/login", &["user", "carts"]),
    ("/category", &["catalogue"]),
    ("/catalogue", &["catalogue", "catalogue__size"]),
    ("/detail", &["catalogue", "carts"]),
    ("/basket", &["carts", "catalogue"]),
    ("/cart-post", &["catalogue", "carts"]),
    ("/cart-delete", &["carts"]),
    ("/orders", &["user", "orders"]),
];
/// Name, replicas, milliseconds, callees.
const BEHIND: [(&str, u32, f64, &[&str]); 11] = [
    ("catalogue", 10, 21.5, &["catalogue-db"]),
    ("catalogue-db", 8, 5.0, &[]),
    ("user", 5, 18.0, &["user-db"]),
    ("user-db", 4, 5.0, &[]),
    ("carts", 10, 19.0, &["carts-db"]),
    ("carts-db", 8, 5.0, &[]),
    (
        "orders",
        5,
        41.0,
        &[
            "user__address",
            "carts__items",
            "payment",
            "shipping",
            "orders-db",
        ],
    ),
    ("orders-db", 2, 5.0, &[]),
    ("payment", 2, 16.0, &[]),
    ("shipping", 2, 16.0, &["queue"]),
    ("queue", 2, 5.0, &[]),
];
const FRONT_REPLICAS: u32 = 30;
const FRONT_MS: f64 = 45.0;
const RATES: [u32; 6] = [100, 200, 300, 400, 500, 600];
const RATES_QUICK: [u32; 2] = [200, 500];
const WARM_UP: Duration = Duration::from_secs(4);

/// How calls are balanced.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    policy: &'static str,
    /// One more proxy before each service.
    central: bool,
    /// Inbound sidecars tell the true queues.
    collaborates: bool,
}

const fn way(name: &'static str, policy: &'static str) -> Way {
    Way {
        name,
        policy,
        central: false,
        collaborates: false,
    }
}

const WAYS: [Way; 5] = [
    way("random", "random"),
    way("round-robin", "round-robin"),
    way("lor(choices=2)", "lor(choices=2)"),
    Way {
        central: true,
        ..way("Proxy-Service", "lor(choices=2)")
    },
    Way {
        collaborates: true,
        ..way("ledger", "ledger(group=40)")
    },
];

#[derive(Debug, Clone)]
struct Cell {
    way: &'static str,
    rate: u32,
    measured: Measured,
}

fn model() -> WorkModel {
    let front = FRONT.iter().map(|(path, callees)| {
        let service = Service::exponential(FRONT_REPLICAS, FRONT_MS / 1000.0);
        let service = service
            .at("front-end", path)
            .calling(callees.iter().copied());
        (format!("front-end{path}"), service)
    });
    let behind = BEHIND.iter().map(|(name, replicas, ms, callees)| {
        let service = Service::exponential(*replicas, ms / 1000.0);
        ((*name).to_owned(), service.calling(callees.iter().copied()))
    });
    WorkModel::new(front.chain(behind))
}

/// Runs it.
///
/// # Errors
/// A case cannot be run.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let rates: &[u32] = if stage.options.quick {
        &RATES_QUICK
    } else {
        &RATES
    };
    let model = model();
    let text = serde_json::to_string_pretty(&model).unwrap_or_default();
    report.file("sock-shop.json", &text)?;
    let mut cells = Vec::new();
    let wanted = &stage.options.policies;
    let chosen = |way: &&Way| wanted.is_empty() || wanted.iter().any(|name| name == way.name);
    for way in WAYS.iter().filter(chosen) {
        for &rate in rates {
            let case = Case {
                name: format!("shop: {}, {rate} requests a second", way.name),
                model: model.clone(),
                shape: Shape {
                    entry: "front-end/home".into(),
                    entrances: 1,
                    policy: way.policy.into(),
                    outbound: true,
                    inbound: way.collaborates,
                    collaborates: way.collaborates,
                    proxy_service: way.central.then(|| way.policy.into()),
                    processes: 1,
                },
                rate: f64::from(rate),
                paths: STEPS.map(str::to_owned).into(),
                warm_up: WARM_UP,
                measured: stage.options.measured(6, 15),
            };
            let measured = stage.run(&case).await?;
            report.keep("shop", &case.name, &measured)?;
            cells.push(Cell {
                way: way.name,
                rate,
                measured,
            });
        }
    }
    Ok(Findings {
        title: "Fig. 8 on real proxies: Sock Shop's call graph".into(),
        text: table(&cells),
        bars: bars(&cells),
        charts: vec![chart(&cells)],
    })
}

fn of(cells: &[Cell], way: &str, rate: u32) -> Option<f64> {
    let mut own = cells
        .iter()
        .filter(|cell| cell.way == way && cell.rate == rate);
    own.next().map(|cell| cell.measured.mean.value)
}

fn bars(cells: &[Cell]) -> Vec<Bar> {
    let failed: usize = cells.iter().map(|cell| cell.measured.failed).sum();
    let busiest = cells.iter().map(|cell| cell.rate).max().unwrap_or_default();
    let beside = |way: &str| {
        let pair = of(cells, "Proxy-Service", busiest).zip(of(cells, way, busiest));
        pair.map(|(central, other)| central / other)
    };
    vec![
        Bar::at_most("shop: failed requests", 0.0, Some(failed as f64)),
        Bar::at_most(
            "shop: Proxy-Service / random, busiest",
            0.9,
            beside("random"),
        ),
        Bar::at_most(
            "shop: Proxy-Service / lor(2), busiest",
            1.0,
            beside("lor(choices=2)"),
        ),
    ]
}

fn table(cells: &[Cell]) -> String {
    let mut table = Table::new([
        "policy",
        "requests a second",
        "mean ms",
        "p99 ms",
        "visits a request",
        "added µs a visit",
        "proxies",
        "their CPU, µs a visit",
        "busy %",
        "failed",
    ]);
    for cell in cells {
        let run = &cell.measured;
        let Estimate { value, half_width } = run.mean;
        table.row(vec![
            cell.way.into(),
            cell.rate.to_string(),
            format!("{value:.1} ± {half_width:.1}"),
            number(Some(run.p99)),
            number(Some(run.visits)),
            number(Some(1000.0 * run.added.0 / run.visits)),
            run.proxies.to_string(),
            number(Some(run.cpu[0] / run.visits)),
            number(Some(run.proxies_busy)),
            run.failed.to_string(),
        ]);
    }
    format!(
        "Poisson arrivals of the 22 steps in turn; exponential service. Replicas and service times are in \
         `sock-shop.json`, a work model of µBench.\n\n{}",
        table.markdown()
    )
}

fn chart(cells: &[Cell]) -> Chart {
    let line = |way: &Way| {
        let own = cells.iter().filter(|cell| cell.way == way.name);
        let points = own.map(|cell| (f64::from(cell.rate), cell.measured.mean.value));
        Line::new(format!("{}, measured", way.name), Subject::Maglor, points)
    };
    Chart::new(
        "shop",
        "Sock Shop's call graph",
        "requests a second",
        "mean latency, ms",
        WAYS.iter().map(line).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each service is visited for a request, by following all calls.
    fn visits(model: &WorkModel, name: &str, into: &mut Vec<String>) {
        let (name, service) = model.called(name).unwrap();
        into.push(service.host(name).to_owned());
        for callee in service
            .external_services
            .iter()
            .flat_map(|group| &group.services)
        {
            visits(model, callee, into);
        }
    }

    #[test]
    fn no_service_is_overloaded_and_most_are_busy_at_600() {
        let model = model();
        let mut all = Vec::new();
        for step in STEPS {
            visits(&model, &format!("front-end{step}"), &mut all);
        }
        for (host, replicas) in model.hosts() {
            let count = all.iter().filter(|one| *one == host).count() as f64;
            let mut services = model
                .services()
                .filter(|(name, one)| one.host(name) == host);
            let work = services.next().unwrap().1.work().mean.as_secs_f64();
            let load = 600.0 * count / 22.0 * work / f64::from(replicas);
            println!("{host}: {load:.2}");
            let low = if host.ends_with("-db") || host == "queue" {
                0.2
            } else {
                0.8
            };
            assert!((low..0.95).contains(&load), "{host}: {load}");
        }
    }
}
