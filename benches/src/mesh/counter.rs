//! The chain of counters of the paper on service meshes at the edge: without sidecars, with Maglor's, with Envoy's and,
//! if it is passed, with linkerd2-proxy, in one run.
//!
//! Two deployments of 12 instances call each other in turn until the counter has reached its
//! objective; users send ten requests each, one after another, all users at the same time
//! (§5.3–5.5). The paper's instances are Flask applications; these compute nothing, so that the
//! cost of the mesh is measured. A sidecar has an inbound and an outbound side in one process, as
//! the paper's have.

mod cell;
mod findings;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use maglor_testkit::app::{Service, WorkModel};
use tokio::time::sleep;

use self::cell::{Cell, HEAD, Run};
use super::fleet::{Fleet, Places};
use super::load::{self, Target};
use super::options::Options;
use super::plan::Plan;
use super::redirected;
use super::report::Report;
use super::shape::Shape;
use super::stage::Stage;
use crate::error::{Doing, Result};
use crate::peer::{Credentials, Peer, Subject};
use crate::redirection::Redirection;
use crate::report::Findings;
use crate::sys;

const INSTANCES: u32 = 12;
/// 800 users on 80 services have 64 000 calls in progress, each with two ends in the application.
const PROCESSES: u32 = 12;
const EACH: u32 = 10;
const EACH_QUICK: u32 = 2;
const ROUNDS: u32 = 3;
const SERVICES: [u32; 4] = [10, 20, 40, 80];
const SERVICES_QUICK: [u32; 2] = [10, 40];
const USERS: [u32; 4] = [100, 200, 400, 800];
const USERS_QUICK: [u32; 1] = [100];
const CLOSING: Duration = Duration::from_millis(100);

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
    // The load is as high as possible: all processes use all processors.
    let all = [&*stage.places.app, &*stage.places.proxies].concat();
    sys::pin_to(&all).doing("free the harness")?;
    let places = Places {
        app: all.clone(),
        proxies: all,
    };
    let credentials = stage.options.mtls.then(Credentials::new).transpose()?;
    let connections = Connections {
        redirection: rivals.redirection(),
        credentials: credentials.map(Arc::new),
    };
    let mut raw = report.folder.file("counter.csv", HEAD)?;
    let mut runs = Vec::new();
    for chain in chains(&stage.options) {
        for (mesh, peer) in rivals.meshes(&stage.maglor) {
            let Cell { services, users } = chain.cell;
            eprintln!(
                "counter: round {}, {services} services, {users} users, {mesh}",
                chain.round
            );
            let run = chain.run(stage, &places, mesh, peer, &connections).await?;
            writeln!(raw, "{}", run.csv()).doing("write counter.csv")?;
            runs.push(run);
        }
    }
    sys::pin_to(&stage.places.app).doing("pin the harness")?;
    Ok(findings::findings(
        &runs,
        stage.options.requests(),
        stage.options.mtls,
        &rivals.note(),
    ))
}

/// Returns what is measured of each mesh, in order: all points, round by round, so that the values of a point are
/// from different times.
fn chains(options: &Options) -> Vec<Chain> {
    let (mut services, mut users): (&[u32], &[u32]) = match options.quick {
        true => (&SERVICES_QUICK, &USERS_QUICK),
        false => (&SERVICES, &USERS),
    };
    if !options.services.is_empty() {
        services = &options.services;
    }
    if !options.users.is_empty() {
        users = &options.users;
    }
    let cells = services.iter().flat_map(|&services| {
        let cell = move |&users| Cell { services, users };
        users.iter().map(cell)
    });
    let cells: Vec<_> = cells.collect();
    let each = options.requests();
    let round = |round| cells.iter().map(move |&cell| Chain { round, cell, each });
    (1..=options.rounds(ROUNDS)).flat_map(round).collect()
}

impl Options {
    /// Returns the number of requests of each user.
    fn requests(&self) -> u32 {
        self.requests.unwrap_or(match self.quick {
            true => EACH_QUICK,
            false => EACH,
        })
    }
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
    round: u32,
    cell: Cell,
    /// Requests of each user.
    each: u32,
}

impl Chain {
    async fn run(
        self,
        stage: &Stage,
        places: &Places,
        mesh: Subject,
        peer: &Peer,
        connections: &Connections,
    ) -> Result<Run> {
        let Self { round, cell, each } = self;
        let model = model(cell.services);
        let plan = connections.plan(&model, mesh)?;
        let target = Target {
            addresses: plan.targets.clone(),
            host: plan.host.clone(),
            paths: vec!["/0".into()],
            users: None,
        };
        let fleet = Fleet::start(plan, &model, peer, places, stage.options.seed).await?;
        // Connections, and lazy initialization, are not measured.
        load::users(&target, cell.users, 1).await?;
        let before = fleet.used()?;
        let (samples, took) = load::users(&target, cell.users, each).await?;
        let used = fleet.used()?.since(before);
        let (memory, share) = (fleet.memory()?, fleet.share()?);
        drop(fleet);
        sleep(CLOSING).await;
        let hops = (samples.len() * cell.services as usize).max(1) as f64;
        let per_hop = |time: Duration| time.as_nanos() as f64 / 1000.0 / hops;
        let run = Run {
            mesh,
            round,
            cell,
            requests: samples.len(),
            latencies: cell::sorted(&samples),
            throughput: samples.len() as f64 / took.as_secs_f64(),
            cpu: [used.proxies.run, used.app.run].map(per_hop),
            memory: [memory.rss_kb, memory.peak_kb].map(|kb| kb as f64 / 1000.0),
            share: [share.pss_kb, share.anonymous_kb].map(|kb| kb as f64 / 1000.0),
        };
        eprintln!("  {run}{}", cell::failures(&samples));
        Ok(run)
    }
}

impl Connections {
    /// Returns the plan of a chain with such sidecars.
    fn plan(&self, model: &WorkModel, mesh: Subject) -> Result<Plan> {
        let meshed = mesh != Subject::Direct;
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
        let mut plan = Plan::new(model, &shape)?;
        plan.credentials.clone_from(&self.credentials);
        if let Some(redirection) = self.redirection {
            redirected::redirect(&mut plan, redirection)?;
        }
        Ok(plan)
    }
}
