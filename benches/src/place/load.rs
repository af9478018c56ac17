//! Clients: an open loop through the application's entry service, from outside of the mesh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use maglor_testkit::cluster::Cluster;

use super::bookinfo::ENTRY;
use crate::error::{Error, Result};
use crate::http::block_on;
use crate::mesh::load::{Sample, Target, open};

/// The length of a part of a load that runs until it is stopped.
const PIECE: Duration = Duration::from_secs(2);

/// The target and rate of the load.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    pub(super) entry: SocketAddr,
    pub(super) rate: u32,
    pub(super) seed: u64,
}

/// A load that is running.
#[derive(Debug)]
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Sample>>>,
}

impl Clients {
    /// Sends requests for `length`, on a separate thread.
    pub(super) fn send(&self, cluster: &Cluster, length: Duration) -> Result<Running> {
        let own = self.clone();
        self.spawn(cluster, move |_| own.requests(length, own.seed))
    }

    /// Sends requests until it is stopped.
    pub(super) fn go_on(&self, cluster: &Cluster) -> Result<Running> {
        let own = self.clone();
        self.spawn(cluster, move |stop| {
            let (mut all, mut seed) = (Vec::new(), own.seed);
            while !stop.load(Ordering::Relaxed) {
                all.extend(own.requests(PIECE, seed)?);
                seed = seed.wrapping_add(1);
            }
            Ok(all)
        })
    }

    fn spawn(
        &self,
        cluster: &Cluster,
        work: impl FnOnce(&AtomicBool) -> Result<Vec<Sample>> + Send + 'static,
    ) -> Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&stop);
        // The thread inherits the network of the thread that starts it.
        let spawned = cluster.in_network(move || std::thread::spawn(move || work(&shared)));
        let thread = spawned?;
        Ok(Running { stop, thread })
    }

    fn requests(&self, length: Duration, seed: u64) -> Result<Vec<Sample>> {
        let target = Target {
            addresses: vec![self.entry],
            host: ENTRY.to_owned(),
            paths: vec!["/api/v1".to_owned()],
            users: None,
        };
        let nothing = (Duration::ZERO, async || Ok(()));
        let requests = open(&target, f64::from(self.rate), length, seed, nothing);
        block_on(requests)
    }
}

impl Running {
    /// Waits for the last answers.
    pub(super) fn finish(self) -> Result<Vec<Sample>> {
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(Error::protocol("the generator panicked")))
    }

    /// Stops a load that runs until it is stopped.
    pub(super) fn stop(self) -> Result<Vec<Sample>> {
        self.stop.store(true, Ordering::Relaxed);
        self.finish()
    }
}
