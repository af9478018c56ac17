//! Fig. 8 of the paper on LOR: the call graph of Sock Shop under 100–600 requests a second and more.
//!
//! The call graph is the application's (front end; catalogue, user, carts and orders, each with a
//! database; payment, shipping with its queue), the clients' requests are the paper's Table II. The
//! numbers of replicas and the costs of requests are ours, because the paper's text does not state
//! them: the front end has the paper's 30, and every service but the databases has a load of about
//! 0.9 at 600 requests a second, where the paper's application became unstable with the simplest
//! policies.
//!
//! The load is the paper's, too: 200 users ([`users`](super::users)) who send at a rate as long as
//! one of them is free. A policy's *highest load before instability* is the last one at which as
//! many responses are received as requests are sent: "it failed to sustain higher throughput" is
//! what the paper calls unstable. By Little's law 200 users sustain a rate as long as its latency
//! is below 200 / rate, so a better policy sustains more.
//!
//! `sweep` finds that load, `passage` is Figs. 8e and 8f, `findings` the results. `configurations` is another experiment:
//! the authors' own configuration (`published`) beside this one.

pub(super) mod configurations;
mod findings;
mod passage;
mod published;
mod sweep;

use std::time::Duration;

use maglor_testkit::app::{Service, WorkModel};

use super::report::Report;
use super::shape::{Central, Shape};
use super::stage::{Case, Measured, Stage};
use crate::error::Result;
use crate::report::Findings;
use sweep::Sweep;

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
/// The front end's paths and the services called for them, one after another.
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
/// The name, number of replicas, milliseconds and callees of each service.
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
/// The number of users, as in the paper.
const USERS: u32 = 200;
/// The steps of the load: the first one upwards, the second for the highest load; requests per
/// second.
const STEPS_OF_LOAD: (u32, u32) = (200, 25);
const STEPS_OF_LOAD_QUICK: (u32, u32) = (300, 75);
/// The share of requests with a response during the measurement from which on a load is sustained.
/// Requests in progress then, at most one per user, may be half of the rest.
const SUSTAINED: f64 = 0.97;
const WARM_UP: Duration = Duration::from_secs(4);
/// The service that clients call.
const ENTRY: &str = "front-end";

/// How calls are balanced.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    policy: &'static str,
    /// The number of Proxy-Services before each service.
    central: u32,
    /// Whether inbound sidecars report their queues.
    collaborates: bool,
    /// The highest load in the paper, if it has this policy.
    paper: Option<u32>,
}

const fn way(name: &'static str, policy: &'static str, paper: u32) -> Way {
    Way {
        name,
        policy,
        central: 0,
        collaborates: false,
        paper: Some(paper),
    }
}

impl Way {
    const RING_HASH: Self = way("ring-hash", "ring-hash(min=1024)", 400);
    const RANDOM: Self = way("random", "random", 450);
    const ROUND_ROBIN: Self = way("round-robin", "round-robin", 450);
    const LOR: Self = way("lor(choices=2)", "lor(choices=2)", 450);
    const PROXY_SERVICE: Self = Self {
        central: 1,
        ..way("Proxy-Service", "lor(choices=2)", 600)
    };
    /// The paper's note 10; its figures have no line for them.
    const TWO_PROXY_SERVICES: Self = Self {
        central: 2,
        paper: None,
        ..way("2 Proxy-Services", "lor(choices=2)", 0)
    };
    const LEDGER: Self = Self {
        collaborates: true,
        paper: None,
        ..way("ledger", "ledger(group=40)", 0)
    };
    const ALL: [Self; 6] = [
        Self::RING_HASH,
        Self::RANDOM,
        Self::ROUND_ROBIN,
        Self::LOR,
        Self::PROXY_SERVICE,
        Self::LEDGER,
    ];

    /// Returns the Proxy-Services before all hosts.
    fn proxy_services(&self) -> Option<Central> {
        (self.central > 0).then(|| Central {
            count: self.central,
            ..Central::everywhere(self.policy)
        })
    }
}

/// The factor by which everything is slower than in Sock Shop, so that a machine can run all
/// proxies: service times are longer, and rates are lower.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretch(f64);

impl Stretch {
    const NONE: Self = Self(1.0);
    /// The default of `--service-ms`, which leaves everything unchanged.
    const UNIT_MS: f64 = 20.0;

    fn of(stage: &Stage) -> Self {
        Self(f64::from(stage.options.service_ms.max(1)) / Self::UNIT_MS)
    }
}

/// A policy under a load.
#[derive(Debug, Clone)]
struct Cell {
    way: Way,
    rate: u32,
    measured: Measured,
}

impl Cell {
    fn is_sustained(&self) -> bool {
        self.measured.throughput >= SUSTAINED * self.measured.offered
    }
}

/// The highest load that a policy sustains.
#[derive(Debug, Clone, Copy)]
struct Highest {
    way: Way,
    rate: u32,
}

/// Returns Sock Shop, with services as `made`.
fn model(stretch: Stretch, made: impl Fn(&str, Service) -> Service) -> WorkModel {
    let seconds = |ms: f64| stretch.0 * ms / 1000.0;
    let front = FRONT.iter().map(|(path, callees)| {
        let service = Service::exponential(FRONT_REPLICAS, seconds(FRONT_MS));
        let service = service.at(ENTRY, path).calling(callees.iter().copied());
        (format!("{ENTRY}{path}"), made(ENTRY, service))
    });
    let behind = BEHIND.iter().map(|(name, replicas, ms, callees)| {
        let service = Service::exponential(*replicas, seconds(*ms));
        let service = service.calling(callees.iter().copied());
        ((*name).to_owned(), made(name, service))
    });
    WorkModel::new(front.chain(behind))
}

/// Returns the hosts that one request calls for each of the steps, by following all calls.
fn calls(model: &WorkModel) -> Vec<&str> {
    let mut all = Vec::new();
    let mut next: Vec<_> = STEPS.map(|step| format!("{ENTRY}{step}")).into();
    while let Some(name) = next.pop() {
        let Some((name, service)) = model.called(&name) else {
            continue;
        };
        all.push(service.host(name));
        let groups = service.external_services.iter();
        next.extend(groups.flat_map(|group| group.services.clone()));
    }
    all
}

/// Returns the load of each host under one request per second. All requests of one host cost the
/// same.
fn loads(model: &WorkModel) -> Vec<(&str, f64)> {
    let calls = calls(model);
    let load = |(host, replicas): (&'_ str, u32)| {
        let count = calls.iter().filter(|one| **one == host).count() as f64;
        let own = model
            .services()
            .find(|(name, service)| service.host(name) == host);
        let work = own.map_or(0.0, |(_, service)| service.work().mean.as_secs_f64());
        count / STEPS.len() as f64 * work / f64::from(replicas)
    };
    let hosts = model.hosts().into_iter();
    hosts.map(|one| (one.0, load(one))).collect()
}

fn shape(way: &Way) -> Shape {
    Shape {
        entry: format!("{ENTRY}/home"),
        entrances: 1,
        policy: way.policy.into(),
        outbound: true,
        inbound: way.collaborates,
        collaborates: way.collaborates,
        proxy_service: way.proxy_services(),
        processes: 1,
    }
}

fn case(stage: &Stage, model: &WorkModel, way: &Way, rate: u32) -> Case {
    Case {
        name: format!("shop: {}, {rate} requests a second", way.name),
        model: model.clone(),
        shape: shape(way),
        rate: f64::from(rate) / Stretch::of(stage).0,
        paths: STEPS.map(str::to_owned).into(),
        users: Some(USERS),
        warm_up: WARM_UP,
        measured: stage.options.measured(6, 20),
    }
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report) -> Result<Findings> {
    let stretch = Stretch::of(stage);
    let model = model(stretch, |_, service| service);
    let text = serde_json::to_string_pretty(&model).unwrap_or_default();
    report.folder.write("sock-shop.json", &text)?;
    let (coarse, fine) = match stage.options.quick {
        true => STEPS_OF_LOAD_QUICK,
        false => STEPS_OF_LOAD,
    };
    // Above it some queue grows under any policy.
    let busiest = loads(&model).into_iter().map(|(_, load)| load);
    let capacity = stretch.0 / busiest.fold(0.0, f64::max);
    let most = capacity as u32 / fine * fine;
    let wanted = &stage.options.policies;
    let chosen = |way: &&Way| wanted.is_empty() || wanted.iter().any(|name| name == way.name);
    let (mut cells, mut highest) = (Vec::new(), Vec::new());
    for way in Way::ALL.iter().filter(chosen) {
        let mut sweep = Sweep::new(coarse, fine, most);
        while let Some(rate) = sweep.next() {
            let case = case(stage, &model, way, rate);
            let measured = stage.run(&case).await?;
            report.keep("shop", &case.name, &measured)?;
            let cell = Cell {
                way: *way,
                rate,
                measured,
            };
            sweep.attempted(rate, cell.is_sustained());
            cells.push(cell);
        }
        highest.push(Highest {
            way: *way,
            rate: sweep.highest(),
        });
    }
    let passages = passage::run(stage, report).await?;
    Ok(findings::findings(
        &cells, &highest, &passages, stretch, capacity,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_service_is_overloaded_and_most_are_busy_at_600() {
        for stretch in [Stretch::NONE, Stretch(2.5)] {
            let model = model(stretch, |_, service| service);
            let loads = loads(&model);
            assert_eq!(loads.len(), 1 + BEHIND.len());
            for (host, load) in loads {
                let load = 600.0 / stretch.0 * load;
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
}
