//! One run: replicas, a proxy in front of them, a client, and the observations of both sides.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client::{Client, Sample};
use super::options::{Experiment, Options};
use super::replica::{Behaviour, Log, Replica};
use super::subject::{Fragment, Proxy};
use crate::error::Result;
use crate::peer::{Peer, Subject};
use crate::procfs::{self, CpuTime};
use crate::scenario::Protocol;

/// The time for connections of a run to close before the proxy is stopped.
const CLOSING: Duration = Duration::from_millis(100);

/// The state that all runs share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) options: Options,
    pub(super) peers: Vec<Peer>,
    /// The proxy's processor.
    pub(super) cpu: usize,
}

/// One configuration under one load.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) experiment: Experiment,
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) maglor: Fragment,
    pub(super) envoy: Fragment,
    /// The due times of requests.
    pub(super) due: Vec<Duration>,
    /// The maximum time to wait for answers after the last due time.
    pub(super) patience: Duration,
}

/// The results of a case with one proxy.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) experiment: Experiment,
    pub(super) case: String,
    pub(super) subject: Subject,
    /// The samples of the client, by due time.
    pub(super) samples: Vec<Sample>,
    /// When attempts reached replicas, in order.
    pub(super) attempts: Vec<Duration>,
    /// When full queues of replicas rejected attempts, in order.
    pub(super) blocked: Vec<Duration>,
    /// The time that the proxy was ready to run but waited for its processor, in percent of the
    /// run.
    pub(super) proxy_waited: f64,
    /// The same of client and replicas.
    pub(super) harness_waited: f64,
    /// The proxy's configuration.
    pub(super) configuration: String,
    /// The counters of the proxy.
    pub(super) counters: String,
}

impl Run {
    /// Returns the number of attempts that reached replicas, per request of the client.
    pub(super) fn attempts_a_request(&self) -> f64 {
        self.attempts.len() as f64 / self.samples.len().max(1) as f64
    }

    /// Returns the length of the load, in whole seconds.
    pub(super) fn seconds(&self) -> u64 {
        let last = self.samples.last().map_or(0, |last| last.due.as_secs());
        last + 1
    }
}

impl Stage {
    /// Runs a case behind each proxy in turn.
    pub(super) async fn run(
        &self,
        case: &Case,
        behaviours: impl Fn() -> Vec<Behaviour>,
    ) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for peer in &self.peers {
            runs.push(self.run_one(case, peer, behaviours(), async |_| ()).await?);
        }
        Ok(runs)
    }

    /// Runs a case behind one proxy; `meanwhile` may act on the replicas.
    pub(super) async fn run_one(
        &self,
        case: &Case,
        peer: &Peer,
        behaviours: Vec<Behaviour>,
        meanwhile: impl AsyncFnOnce(&[Replica]),
    ) -> Result<Run> {
        eprintln!(
            "{} / {} / {}",
            case.experiment.key(),
            case.name,
            peer.subject
        );
        let log = Rc::new(Log::default());
        let mut replicas = Vec::new();
        for (index, behaviour) in behaviours.into_iter().enumerate() {
            let seed = self.options.seed;
            let replica = Replica::new(index, case.protocol, behaviour, &log, seed)?;
            replica.start()?;
            replicas.push(replica);
        }
        let fragment = match peer.subject {
            Subject::Maglor => &case.maglor,
            _ => &case.envoy,
        };
        let endpoints: Vec<SocketAddr> = replicas.iter().map(|replica| replica.address).collect();
        let proxy = Proxy::start(peer, case.protocol, fragment, &endpoints, self.cpu).await?;
        let client = Client::new(proxy.address, case.protocol);
        // Opens connections and initializes what starts at first use, outside of the measurement.
        client.get().await?;
        log.take();
        let began = Instant::now();
        let (theirs, own) = (proxy.pids(), [std::process::id()]);
        let before = (procfs::cpu(&theirs)?, procfs::cpu(&own)?);
        let load = client.load(&case.due, began, case.patience);
        let (samples, ()) = tokio::join!(load, meanwhile(&replicas));
        let waited = |pids: &[u32], before: CpuTime| -> Result<f64> {
            let wait = procfs::cpu(pids)?.since(before).wait;
            Ok(100.0 * wait.as_secs_f64() / began.elapsed().as_secs_f64())
        };
        let (proxy_waited, harness_waited) = (waited(&theirs, before.0)?, waited(&own, before.1)?);
        let counters = proxy.counters().await?;
        client.close();
        sleep(CLOSING).await;
        let since = |times: Vec<Instant>| {
            let since = |at: Instant| at.saturating_duration_since(began);
            times.into_iter().map(since).collect()
        };
        let (attempts, blocked) = log.take();
        Ok(Run {
            experiment: case.experiment,
            case: case.name.clone(),
            subject: peer.subject,
            samples: samples?,
            attempts: since(attempts),
            blocked: since(blocked),
            proxy_waited,
            harness_waited,
            configuration: proxy.configuration(),
            counters,
        })
    }
}
