//! The chain of counters of the paper on service meshes at the edge: without sidecars, with Maglor's, with Envoy's and,
//! if it is passed, with linkerd2-proxy, in one run.
//!
//! Two deployments of 12 instances call each other in turn until the counter has reached its
//! objective; users send ten requests each, one after another, all users at the same time
//! (§5.3–5.5). The paper's instances are Flask applications; these compute nothing, so that the
//! cost of the mesh is measured. A sidecar has an inbound and an outbound side in one process, as
//! the paper's have.

use std::sync::Arc;
use std::time::Duration;

use maglor_sim::chart::Figure;
use maglor_testkit::app::{Service, WorkModel};
use tokio::time::sleep;

use super::fleet::{Fleet, Places};
use super::load::{self, Target};
use super::plan::{Plan, Shape};
use super::redirected;
use super::report::Report;
use super::stage::Stage;
use crate::bar::Bar;
use crate::chart;
use crate::error::{Doing, Result};
use crate::peer::{Credentials, Peer, Subject};
use crate::redirection::Redirection;
use crate::report::{Findings, Table, number};
use crate::stats::quantile;
use crate::sys;

const INSTANCES: u32 = 12;
/// 800 users on 80 services have 64 000 calls in progress, each with two ends in the application.
const PROCESSES: u32 = 12;
const EACH: u32 = 10;
const EACH_QUICK: u32 = 2;
const SERVICES: [u32; 4] = [10, 20, 40, 80];
const SERVICES_QUICK: [u32; 2] = [10, 40];
const USERS: [u32; 4] = [100, 200, 400, 800];
const USERS_QUICK: [u32; 1] = [100];
const CLOSING: Duration = Duration::from_millis(100);
const HEAD: &str = "mesh,services,users,requests,failed,mean_ms,p50_ms,p95_ms,p99_ms,requests_a_second,\
                    proxies_us_a_hop,application_us_a_hop,proxies_rss_mb,proxies_peak_mb,\
                    proxies_pss_mb,proxies_anonymous_mb\n";

/// One point.
#[derive(Debug, Clone)]
struct Cell {
    mesh: Subject,
    services: u32,
    users: u32,
    failed: usize,
    requests: usize,
    /// The latency in milliseconds: mean, median, 95th and 99th percentile.
    latency: [f64; 4],
    /// Users' requests per second.
    throughput: f64,
    /// The processor time per hop from service to service: proxies, application; µs.
    cpu: [f64; 2],
    /// The memory of all proxies at the end, and the maximum; MB.
    memory: [f64; 2],
    /// The share of memory of all proxies at the end: Pss, anonymous; MB.
    share: [f64; 2],
}

/// Returns a chain of `services` steps over two deployments.
fn model(services: u32) -> WorkModel {
    let name = |step: u32| format!("step-{step:03}");
    let one = |step: u32| {
        let host = if step.is_multiple_of(2) {
            "counter-a"
        } else {
            "counter-b"
        };
        let mut service = Service::exponential(INSTANCES, 0.0);
        // No work, and so no queue.
        service.internal_service.queue = None;
        let service = service.at(host, &format!("/{step}"));
        let next = name(step + 1);
        let service = if step + 1 < services {
            service.calling([next.as_str()])
        } else {
            service
        };
        (name(step), service)
    };
    WorkModel::new((0..services).map(one))
}

/// The sidecars that Maglor's are compared with.
#[derive(Debug)]
pub(super) struct Rivals {
    pub(super) envoy: Peer,
    pub(super) linkerd: Option<Linkerd>,
}

/// linkerd2-proxy.
#[derive(Debug)]
pub(super) enum Linkerd {
    /// All sidecars run behind the redirection that it needs.
    Behind(Redirection, Peer),
    /// There is no redirection, for this reason.
    LeftOut(String),
}

impl Rivals {
    /// Returns the sidecars in the order of a round, with their programs; without sidecars first.
    fn meshes<'a>(&'a self, maglor: &'a Peer) -> Vec<(Subject, &'a Peer)> {
        let mut meshes = vec![(Subject::Direct, maglor), (Subject::Maglor, maglor)];
        if let Some(Linkerd::Behind(_, peer)) = &self.linkerd {
            meshes.push((Subject::Linkerd, peer));
        }
        meshes.push((Subject::Envoy, &self.envoy));
        meshes
    }

    fn redirection(&self) -> Option<Redirection> {
        match &self.linkerd {
            Some(Linkerd::Behind(redirection, _)) => Some(*redirection),
            Some(Linkerd::LeftOut(_)) | None => None,
        }
    }

    /// Returns the note about what was left out.
    fn note(&self) -> String {
        match &self.linkerd {
            Some(Linkerd::LeftOut(reason)) => format!("**{reason}**\n\n"),
            Some(Linkerd::Behind(..)) => {
                "Connections are redirected to all sidecars by the kernel.\n\n".into()
            }
            None => String::new(),
        }
    }
}

/// Runs the experiment.
pub(super) async fn run(stage: &Stage, report: &mut Report, rivals: &Rivals) -> Result<Findings> {
    let quick = stage.options.quick;
    let services: &[u32] = if quick { &SERVICES_QUICK } else { &SERVICES };
    let users: &[u32] = if quick { &USERS_QUICK } else { &USERS };
    let each = if quick { EACH_QUICK } else { EACH };
    // The load is as high as possible: all processes use all processors.
    let all = [&*stage.places.app, &*stage.places.proxies].concat();
    sys::pin_to(&all).doing("free the harness")?;
    let places = Places {
        app: all.clone(),
        proxies: all,
    };
    let credentials = stage.options.mtls.then(Credentials::new).transpose()?;
    let credentials = credentials.map(Arc::new);
    let mut cells = Vec::new();
    let mut raw = HEAD.to_owned();
    for &services in services {
        for &users in users {
            for (mesh, peer) in rivals.meshes(&stage.maglor) {
                eprintln!("counter: {services} services, {users} users, {mesh}");
                let chain = Chain {
                    mesh,
                    services,
                    users,
                    each,
                };
                let connections = Connections {
                    redirection: rivals.redirection(),
                    credentials: credentials.clone(),
                };
                let cell = chain.run(stage, &places, peer, connections).await?;
                raw.push_str(&cell.csv());
                cells.push(cell);
            }
        }
    }
    report.folder.write("counter.csv", &raw)?;
    sys::pin_to(&stage.places.app).doing("pin the harness")?;
    Ok(Findings {
        title: "The chain of counters".into(),
        text: rivals.note() + &table(&cells, each, stage.options.mtls),
        bars: bars(&cells, rivals.linkerd.is_some()),
        charts: charts(&cells),
    })
}

/// How connections reach sidecars, and whether these use mutual TLS between each other.
#[derive(Debug)]
struct Connections {
    redirection: Option<Redirection>,
    credentials: Option<Arc<Credentials>>,
}

/// One point to measure.
#[derive(Debug, Clone, Copy)]
struct Chain {
    mesh: Subject,
    services: u32,
    users: u32,
    /// Requests of each user.
    each: u32,
}

impl Chain {
    async fn run(
        self,
        stage: &Stage,
        places: &Places,
        peer: &Peer,
        connections: Connections,
    ) -> Result<Cell> {
        let Self {
            mesh,
            services,
            users,
            each,
        } = self;
        let meshed = mesh != Subject::Direct;
        let model = model(services);
        let shape = Shape {
            entry: "step-000".into(),
            // The generator of the paper is meshed, too.
            entrances: u32::from(meshed),
            policy: "lor(choices=2)".into(),
            outbound: meshed,
            inbound: meshed,
            collaborates: false,
            proxy_service: None,
            processes: PROCESSES,
        };
        let mut plan = Plan::new(&model, &shape)?;
        plan.credentials = connections.credentials;
        if let Some(redirection) = connections.redirection {
            redirected::redirect(&mut plan, redirection)?;
        }
        let target = Target {
            addresses: plan.targets.clone(),
            host: plan.host.clone(),
            paths: vec!["/0".into()],
            users: None,
        };
        let fleet = Fleet::start(plan, &model, peer, places, stage.options.seed).await?;
        // Connections, and lazy initialization, are not measured.
        load::users(&target, users, 1).await?;
        let before = fleet.used()?;
        let (samples, took) = load::users(&target, users, each).await?;
        let used = fleet.used()?.since(before);
        let (memory, share) = (fleet.memory()?, fleet.share()?);
        drop(fleet);
        sleep(CLOSING).await;
        let mut good: Vec<_> = samples.iter().filter(|one| one.status == 200).collect();
        good.sort_by_key(|one| one.latency);
        let sorted: Vec<_> = good.iter().map(|one| one.latency).collect();
        let sum: Duration = sorted.iter().sum();
        let hops = (samples.len() * services as usize).max(1) as f64;
        let per_hop = |time: Duration| time.as_nanos() as f64 / 1000.0 / hops;
        let cell = Cell {
            mesh,
            services,
            users,
            failed: samples.len() - sorted.len(),
            requests: samples.len(),
            latency: [
                sum.as_secs_f64() * 1000.0 / sorted.len().max(1) as f64,
                quantile(&sorted, 0.5),
                quantile(&sorted, 0.95),
                quantile(&sorted, 0.99),
            ],
            throughput: samples.len() as f64 / took.as_secs_f64(),
            cpu: [used.proxies.run, used.app.run].map(per_hop),
            memory: [memory.rss_kb, memory.peak_kb].map(|kb| kb as f64 / 1000.0),
            share: [share.pss_kb, share.anonymous_kb].map(|kb| kb as f64 / 1000.0),
        };
        let [mean, ..] = cell.latency;
        eprintln!(
            "  {mean:.1} ms, {:.0} requests a second, proxies {:.0} us a hop, {:.0} MB; {} failed",
            cell.throughput, cell.cpu[0], cell.memory[1], cell.failed
        );
        Ok(cell)
    }
}

impl Cell {
    fn csv(&self) -> String {
        let [mean, p50, p95, p99] = self.latency;
        let [proxies, app] = self.cpu;
        let [memory, peak] = self.memory;
        let [pss, anonymous] = self.share;
        format!(
            "{},{},{},{},{},{mean:.3},{p50:.3},{p95:.3},{p99:.3},{:.2},{proxies:.2},{app:.2},{memory:.1},{peak:.1},{pss:.1},{anonymous:.1}\n",
            self.mesh.key(),
            self.services,
            self.users,
            self.requests,
            self.failed,
            self.throughput,
        )
    }
}

/// Returns Maglor's values over those of another mesh, point by point.
fn beside(cells: &[Cell], mesh: Subject, value: fn(&Cell) -> f64) -> impl Iterator<Item = f64> {
    let own = cells.iter().filter(|cell| cell.mesh == Subject::Maglor);
    own.filter_map(move |cell| {
        let same = |other: &&Cell| {
            let place = |cell: &Cell| (cell.services, cell.users);
            other.mesh == mesh && place(other) == place(cell)
        };
        let other = cells.iter().find(same)?;
        Some(value(cell) / value(other))
    })
}

/// Returns the bars of the comparison with linkerd2-proxy, ahead of which Maglor has to be at every point.
fn beside_linkerd(cells: &[Cell]) -> Vec<Bar> {
    let worst = |what: &str, most, value| {
        let all = beside(cells, Subject::Linkerd, value);
        let name = format!("counter: {what}, Maglor / linkerd2-proxy, worst");
        Bar::at_most(name, most, all.reduce(f64::max))
    };
    vec![
        worst("mean latency", 1.0, |cell| cell.latency[0]),
        worst("p99", 1.0, |cell| cell.latency[3]),
        worst("memory of sidecars", 0.25, |cell| cell.memory[1]),
        worst("Pss of sidecars", 0.25, |cell| cell.share[0]),
        worst("anonymous memory of sidecars", 0.25, |cell| cell.share[1]),
    ]
}

fn bars(cells: &[Cell], with_linkerd: bool) -> Vec<Bar> {
    let failed: usize = cells.iter().map(|cell| cell.failed).sum();
    let beside_envoy = |value| crate::stats::median(beside(cells, Subject::Envoy, value));
    let mut bars = vec![
        Bar::at_most("counter: failed requests", 0.0, Some(failed as f64)),
        Bar::at_most(
            "counter: mean latency, Maglor / Envoy, median",
            0.8,
            beside_envoy(|cell| cell.latency[0]),
        ),
        Bar::at_most(
            "counter: CPU of sidecars a hop, Maglor / Envoy, median",
            0.5,
            beside_envoy(|cell| cell.cpu[0]),
        ),
        Bar::at_most(
            "counter: memory of sidecars, Maglor / Envoy, median",
            0.33,
            beside_envoy(|cell| cell.memory[1]),
        ),
    ];
    if with_linkerd {
        bars.extend(beside_linkerd(cells));
    }
    bars
}

fn mesh_name(mesh: Subject) -> String {
    match mesh {
        Subject::Direct => "none".into(),
        other => other.to_string(),
    }
}

fn table(cells: &[Cell], each: u32, mtls: bool) -> String {
    let mut table = Table::new([
        "services",
        "users",
        "sidecars",
        "mean ms",
        "p50",
        "p95",
        "p99",
        "requests a second",
        "sidecars, µs a hop",
        "application, µs a hop",
        "sidecars' memory, MB",
        "Pss / anonymous, MB",
        "failed",
    ]);
    for cell in cells {
        let meshed = cell.mesh != Subject::Direct;
        let mut row = vec![
            cell.services.to_string(),
            cell.users.to_string(),
            mesh_name(cell.mesh),
        ];
        row.extend(cell.latency.map(|value| number(Some(value))));
        row.extend([
            number(Some(cell.throughput)),
            number(meshed.then_some(cell.cpu[0])),
            number(Some(cell.cpu[1])),
            number(meshed.then_some(cell.memory[1])),
            cell.share
                .map(|mb| number(meshed.then_some(mb)))
                .join(" / "),
            cell.failed.to_string(),
        ]);
        table.row(row);
    }
    let between = match mtls {
        true => "mutual TLS between sidecars",
        false => "plain text",
    };
    format!(
        "Two deployments of {INSTANCES} instances, {each} requests a user, all users at once; {between}. A hop is a \
         call from service to service, with an outbound and an inbound pass of a sidecar; the client's is one. Memory is \
         the peak of all {} sidecars together (pages of the executable count in each); Pss and anonymous memory are \
         those at the end of the load.\n\n{}",
        2 * INSTANCES + 1,
        table.markdown()
    )
}

fn charts(cells: &[Cell]) -> Vec<Figure> {
    let most = cells
        .iter()
        .map(|cell| cell.services)
        .max()
        .unwrap_or_default();
    let chart = |file: &str, title: &str, y: &str, value: fn(&Cell) -> f64, meshes: &[Subject]| {
        let line = |&mesh: &Subject| {
            let own = cells
                .iter()
                .filter(|one| one.mesh == mesh && one.services == most);
            let points = own.map(|cell| (f64::from(cell.users), value(cell)));
            chart::line(format!("{most} services, {}", mesh_name(mesh)), points)
        };
        chart::chart(file, title, "users", y, meshes.iter().map(line).collect())
    };
    let mut meshes: Vec<Subject> = Vec::new();
    for cell in cells {
        if !meshes.contains(&cell.mesh) {
            meshes.push(cell.mesh);
        }
    }
    vec![
        chart(
            "counter-latency",
            "Chain of counters: latency",
            "mean, ms",
            |cell| cell.latency[0],
            &meshes,
        ),
        chart(
            "counter-memory",
            "Chain of counters: memory of the sidecars",
            "MB",
            |cell| cell.memory[1],
            &meshes[1..],
        ),
    ]
}
