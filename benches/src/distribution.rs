//! Measures how fast, and at which cost, changes of a large cluster reach its proxies.
//!
//! The modules, in the order of execution: `options` the command line, a Kubernetes with simulated
//! pods, `members` their identities, `controller` the one that is measured, `follower` its clients,
//! `changes` by `api`, `slices` the resulting EndpointSlices, `ledger` which clients have received
//! them, `report`.

pub(crate) mod api;
mod changes;
mod controller;
mod follower;
mod ledger;
mod members;
mod options;
mod report;
mod slices;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, scale};
use tokio::sync::mpsc;

pub use options::{Options, Through};

use crate::error::{Doing, Error, Result};
use crate::http::block_on;
use crate::report::Machine;
use crate::{ports, sys};
use api::{Connection, Pod, Proxy};
use changes::Changes;
use controller::Controller;
use follower::{Board, Follower};
use members::Members;
use report::Figures;

/// The time limit of anything that should take seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);
/// The number of simulated pods on each simulated node.
const PODS_A_NODE: u32 = 100;

/// Runs the requested measurements; returns whether all bars were reached.
///
/// # Errors
/// There can be no cluster here, or a measured program does not run.
pub fn run(options: &Options) -> Result<bool> {
    sys::raise_file_limit().doing("raise the limit of open files")?;
    let machine = Machine::look(&[]);
    let nodes = (options.services * options.endpoints).div_ceil(PODS_A_NODE);
    let cluster = Cluster::start(maglor_testkit::cluster::Options {
        name: "distribution".into(),
        nodes: 1,
        simulated_nodes: nodes.try_into().unwrap_or(u16::MAX),
        say: |line| eprintln!("{line}"),
        ..maglor_testkit::cluster::Options::default()
    });
    let cluster = cluster?;
    let outcome = measure(options, &cluster);
    cluster.stop()?;
    report::write(options, &machine, &outcome?)
}

fn measure(options: &Options, cluster: &Cluster) -> Result<Figures> {
    let kubectl = cluster.kubectl();
    let binary = options.controller()?;
    let definitions = crate::child::output(&binary.display().to_string(), &["crds"])?;
    kubectl.apply(&definitions)?;
    let members = Members::found(kubectl)?;
    let started = Instant::now();
    scale::fill(kubectl, options.services, options.endpoints)?;
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
    let figures = block_on(subject.all(cluster));
    let _ = std::fs::remove_dir_all(&subject.folder);
    figures
}

/// The environment of a measurement.
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
        until("all proxies have what they asked for", async || {
            Ok(self.board.complete.get() == wanted)
        })
        .await?;
        figures.all_served = begin.elapsed();
        figures.rss_connected_kb = controller.usage()?.0.rss_kb;

        let mut changes = Changes::new(&self.options, self.pods.clone(), &self.board);
        let (broken, mut ended) = mpsc::unbounded_channel();
        self.watch_slices(broken).await?;
        for (through, rate) in self.options.series() {
            if through == Through::Slices && figures.through() != Some(through) {
                changes.take_slices(&self.proxy, cluster.kubectl()).await?;
            }
            eprintln!("{rate} {} a second", through.word());
            let before = controller.usage()?.1;
            let count = rate * self.options.seconds;
            let mut series = changes.make(&self.proxy, (through, rate), count).await?;
            series.cpu = controller.usage()?.1.since(before).ticks;
            if let Ok(error) = ended.try_recv() {
                return Err(error);
            }
            figures.series.push(series);
        }
        let memory = controller.usage()?.0;
        figures.rss_changed_kb = memory.rss_kb;
        figures.rss_peak_kb = memory.peak_kb;

        let attempts = self.board.attempts.get();
        let (resources, bytes) = (self.board.resources.get(), self.board.bytes.get());
        drop(controller);
        let begin = Instant::now();
        controller = start().await?;
        figures.restart_ready = controller.ready_after;
        until("all proxies are back", async || {
            Ok(controller.sessions().await? >= wanted)
        })
        .await?;
        figures.back = begin.elapsed();
        // Repeated messages are sent at once, so that they have arrived by the time of this change.
        let last = figures.through().unwrap_or(Through::Pods);
        changes.make(&self.proxy, (last, 1), 1).await?;
        figures.attempts_again = self.board.attempts.get() - attempts;
        figures.resources_again = self.board.resources.get() - resources;
        figures.bytes_again = self.board.bytes.get() - bytes;
        Ok(figures)
    }

    /// Records the API server's EndpointSlices, independently of the controller.
    async fn watch_slices(&self, broken: mpsc::UnboundedSender<Error>) -> Result<()> {
        let connection = Connection::open(self.proxy.address).await?;
        let board = Rc::clone(&self.board);
        tokio::task::spawn_local(async move {
            if let Err(error) = slices::follow(connection, board).await {
                let _ = broken.send(error);
            }
        });
        Ok(())
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds().await? {
        if started.elapsed() > PATIENCE {
            return Err(Error::late(what, started, "it still did not hold"));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
