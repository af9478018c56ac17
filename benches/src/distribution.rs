//! How fast, and at which cost, changes of a big cluster reach its proxies.
//!
//! The command, in the order things happen: `options` what was asked, a Kubernetes with simulated pods, `members`
//! their identities, `controller` the one that is measured, `follower` its clients, `api` the changes, `ledger` who knows of them, `report`.

mod api;
mod controller;
mod follower;
mod ledger;
mod members;
mod options;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_cluster::{Cluster, ClusterError, scale};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

pub use options::Options;

use crate::error::{Doing, Error, Result};
use crate::report::Machine;
use crate::{ports, sys};
use api::{Connection, Pod, Proxy};
use controller::Controller;
use follower::{Board, Follower};
use members::Members;
use report::Figures;

/// How long anything may take that should take seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);
/// Changes that are under way at once.
const WRITERS: usize = 8;
/// Simulated pods on each simulated node.
const PODS_A_NODE: u32 = 100;

/// Runs what the command line asks; returns whether all bars were reached.
///
/// # Errors
/// There can be no cluster here, or what was to be measured does not run.
pub fn run(options: &Options) -> Result<bool> {
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let machine = Machine::look(&[]);
    let nodes = (options.services * options.endpoints).div_ceil(PODS_A_NODE);
    let cluster = Cluster::start(maglor_cluster::Options {
        name: "distribution".into(),
        nodes: 1,
        simulated_nodes: nodes.try_into().unwrap_or(u16::MAX),
        say: |line| eprintln!("{line}"),
        ..maglor_cluster::Options::default()
    });
    let cluster = cluster.map_err(of_cluster)?;
    let outcome = measure(options, &cluster);
    cluster.stop().map_err(of_cluster)?;
    report::write(options, &machine, &outcome?)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn of_cluster(error: ClusterError) -> Error {
    Error::Command {
        command: "cluster".into(),
        detail: error.to_string(),
    }
}

fn measure(options: &Options, cluster: &Cluster) -> Result<Figures> {
    let kubectl = cluster.kubectl();
    let binary = options.controller()?;
    let definitions = crate::child::output(&binary.display().to_string(), &["crds"])?;
    kubectl.apply(&definitions).map_err(of_cluster)?;
    let members = Members::found(kubectl)?;
    let started = Instant::now();
    scale::fill(kubectl, options.services, options.endpoints).map_err(of_cluster)?;
    eprintln!("pods are ready after {:?}", started.elapsed());
    let subject = Subject {
        options: options.clone(),
        binary,
        members,
        pods: api::pods(kubectl)?,
        proxy: Proxy::start(kubectl)?,
        listen: ports::free()?,
        folder: std::env::temp_dir().join(format!("maglor-distribution-{}", std::process::id())),
        board: Rc::default(),
    };
    std::fs::create_dir_all(&subject.folder).doing("make a folder")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.doing("start the harness's runtime")?;
    let figures = LocalSet::new().block_on(&runtime, subject.all(cluster));
    let _ = std::fs::remove_dir_all(&subject.folder);
    figures
}

/// What is measured, and with what.
struct Subject {
    options: Options,
    binary: PathBuf,
    members: Members,
    pods: BTreeMap<u32, Vec<Pod>>,
    proxy: Proxy,
    listen: SocketAddr,
    folder: PathBuf,
    board: Rc<Board>,
}

impl Subject {
    async fn all(&self, cluster: &Cluster) -> Result<Figures> {
        let start =
            || Controller::start(&self.binary, cluster.kubectl(), &self.folder, self.listen);
        let mut figures = Figures::default();
        let mut controller = start().await?;
        figures.ready = controller.ready_after;
        figures.rss_alone_kb = controller.usage()?.0.rss_kb;
        let begin = Instant::now();
        for number in 0..self.options.proxies {
            let services = self.options.used_by(number);
            let board = Rc::clone(&self.board);
            let server = (self.listen, self.members.client()?);
            let follower = Follower::new(number, server, &services, board);
            tokio::task::spawn_local(follower.run());
        }
        let wanted = self.options.proxies;
        until("all proxies have what they asked for", || {
            Ok(self.board.complete.get() == wanted)
        })
        .await?;
        figures.all_served = begin.elapsed();
        figures.rss_connected_kb = controller.usage()?.0.rss_kb;

        let before = controller.usage()?.1;
        let begin = Instant::now();
        self.change(0, self.options.rate * self.options.seconds)
            .await?;
        figures.changing = begin.elapsed();
        figures.controller_cpu = controller.usage()?.1.since(before).ticks;
        let memory = controller.usage()?.0;
        figures.rss_changed_kb = memory.rss_kb;
        figures.rss_peak_kb = memory.peak_kb;
        figures.changes = self.board.ledger.borrow().len();
        figures.unknown = self.board.ledger.borrow().unknown();
        figures.delays = self.board.ledger.borrow().delays();

        let attempts = self.board.attempts.get();
        let (resources, bytes) = (self.board.resources.get(), self.board.bytes.get());
        drop(controller);
        let begin = Instant::now();
        controller = start().await?;
        figures.restart_ready = controller.ready_after;
        until("all proxies are back", || {
            Ok(controller.sessions()? >= wanted)
        })
        .await?;
        figures.back = begin.elapsed();
        // What is sent again is sent at once, so that it has come by the time that this change has.
        self.change(self.options.rate * self.options.seconds, 1)
            .await?;
        figures.attempts_again = self.board.attempts.get() - attempts;
        figures.resources_again = self.board.resources.get() - resources;
        figures.bytes_again = self.board.bytes.get() - bytes;
        Ok(figures)
    }

    /// Makes changes, so many a second, and waits until all who use the Services know of them.
    async fn change(&self, first: u32, count: u32) -> Result<()> {
        let users = ledger::users(
            (0..self.options.proxies).map(|proxy| (proxy, self.options.used_by(proxy))),
        );
        let used: Vec<u32> = users.keys().copied().collect();
        let (failures, mut failed) = mpsc::unbounded_channel();
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            writers.push(self.writer(failures.clone()).await?);
        }
        let begin = Instant::now();
        let pause = Duration::from_secs(1) / self.options.rate;
        for step in 0..count {
            let number = first + step;
            let services = u32::try_from(used.len()).unwrap_or(u32::MAX).max(1);
            let (round, place) = (number / services, number % services);
            let service = used[place as usize];
            let Some(pods) = self.pods.get(&service).filter(|pods| !pods.is_empty()) else {
                return Err(Error::parse("pods", format!("s{service} has none")));
            };
            // A pod stops being ready in one round, and is ready again in the next one.
            let pod = &pods[(round / 2) as usize % pods.len()];
            let ready = round % 2 == 1;
            let due = begin + pause * step;
            tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
            let change = {
                let mut ledger = self.board.ledger.borrow_mut();
                ledger.begin(service, &pod.address, ready, &users[&service])
            };
            let writer = &writers[step as usize % writers.len()];
            let _ = writer.send((change, pod.name.clone(), ready));
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
        }
        until("all know of all changes", || {
            if let Ok(error) = failed.try_recv() {
                return Err(error);
            }
            Ok(self.board.ledger.borrow().unknown() == 0)
        })
        .await
    }

    /// Whoever makes changes: what is sent there happens in order.
    async fn writer(
        &self,
        failures: mpsc::UnboundedSender<Error>,
    ) -> Result<mpsc::UnboundedSender<(usize, String, bool)>> {
        let (sender, mut todo) = mpsc::unbounded_channel::<(usize, String, bool)>();
        let mut connection = Connection::open(self.proxy.address).await?;
        let board = Rc::clone(&self.board);
        tokio::task::spawn_local(async move {
            while let Some((change, pod, ready)) = todo.recv().await {
                match connection.set_ready(&pod, ready).await {
                    Ok(()) => board.ledger.borrow_mut().accepted(change, Instant::now()),
                    Err(error) => {
                        let _ = failures.send(error);
                    }
                }
            }
        });
        Ok(sender)
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        if started.elapsed() > PATIENCE {
            return Err(Error::NotReady {
                name: what.into(),
                seconds: PATIENCE.as_secs(),
                detail: "it still did not hold".into(),
            });
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
