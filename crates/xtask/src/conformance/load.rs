//! Load that detects every request that was sent and not answered.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use maglor_testkit::pattern;
use tokio::runtime::{Builder, Runtime};

use super::client::{self, Sender, Target, Unanswered, Version};

/// The time after which a request counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// The sizes of the bodies, down and up.
const DOWN: usize = 3000;
const UP: usize = 2000;

/// Creates a runtime for clients.
pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The results of a load so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: u64,
    pub(super) connections: u64,
    /// Requests that were sent and got an incomplete or wrong response, and failed connections: the
    /// reason, and the number.
    pub(super) failed: BTreeMap<String, u64>,
    /// The number of responses by server.
    pub(super) servers: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.connections += other.connections;
        for (into, from) in [
            (&mut self.failed, &other.failed),
            (&mut self.servers, &other.servers),
        ] {
            for (key, count) in from {
                *into.entry(key.clone()).or_default() += count;
            }
        }
    }

    /// Fails unless every request got a response.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        ensure!(self.answered > 0, "no request was answered");
        ensure!(
            self.failed.is_empty(),
            "{} of {} requests failed: {:?}",
            self.failures(),
            self.answered + self.failures(),
            self.failed
        );
        Ok(())
    }
}

/// The number of clients of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients {
    /// HTTP/1.1 connections that are kept alive.
    pub(super) http1: usize,
    /// HTTP/1.1 connections for one request each.
    pub(super) once: usize,
    /// HTTP/2 connections.
    pub(super) http2: usize,
    /// The number of streams on each of them.
    pub(super) streams: usize,
}

/// A running load.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    tally: Mutex<Tally>,
    stop: AtomicBool,
    /// Whether a refused connection is expected and no failure.
    ending: AtomicBool,
}

impl Load {
    /// Starts the clients, each of which sends request after request.
    pub(super) fn start(address: SocketAddr, clients: Clients) -> Self {
        let shared = Arc::new(Shared {
            address,
            tally: Mutex::default(),
            stop: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let runtime = runtime()?;
                runtime.block_on(all(&shared, clients));
                Ok(())
            })
        };
        Self { shared, thread }
    }

    /// Accepts refused connections as the end of a client from now on.
    pub(super) fn expect_end(&self) {
        // Relaxed: a client that sees the old value for a moment was refused before the proxy was
        // stopped.
        self.shared.ending.store(true, Ordering::Relaxed);
    }

    /// Returns the results so far.
    pub(super) fn tally(&self) -> Tally {
        self.shared.with(|tally| tally.clone())
    }

    /// Waits until this number of further responses has been received.
    pub(super) fn wait_for(&self, answers: u64) -> anyhow::Result<()> {
        let goal = self.tally().answered + answers;
        let deadline = Instant::now() + PATIENCE;
        while self.tally().answered < goal {
            ensure!(
                Instant::now() < deadline,
                "the load generator received no further responses: {:?}",
                self.tally()
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Stops the clients after their present requests.
    pub(super) fn stop(self) -> anyhow::Result<Tally> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits until the clients are refused.
    pub(super) fn join(self) -> anyhow::Result<Tally> {
        let joined = self.thread.join();
        joined
            .ok()
            .context("the load generator thread panicked")?
            .context("creating the runtime of the load generator")?;
        Ok(self.shared.with(|tally| tally.clone()))
    }
}

impl Shared {
    fn with<R>(&self, f: impl FnOnce(&mut Tally) -> R) -> R {
        f(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn failed(&self, what: String) {
        self.with(|tally| *tally.failed.entry(what).or_default() += 1);
    }

    fn target(&self, version: Version) -> Target {
        Target {
            address: self.address,
            tls: None,
            version,
        }
    }

    /// Opens a connection; `None` = refused at the end, or a failure that has been counted.
    async fn connect(&self, version: Version) -> Option<Sender> {
        match self.target(version).connect().await {
            Ok(sender) => {
                self.with(|tally| tally.connections += 1);
                Some(sender)
            }
            Err(error) => {
                if !self.ending.load(Ordering::Relaxed) {
                    self.failed(format!("connect: {error}"));
                }
                None
            }
        }
    }
}

async fn all(shared: &Arc<Shared>, clients: Clients) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients.http1 {
        tasks.spawn(keep_alive(Arc::clone(shared), Version::Http1, 1));
    }
    for _ in 0..clients.once {
        tasks.spawn(one_each(Arc::clone(shared)));
    }
    for _ in 0..clients.http2 {
        tasks.spawn(keep_alive(
            Arc::clone(shared),
            Version::Http2,
            clients.streams,
        ));
    }
    while tasks.join_next().await.is_some() {}
}

/// Opens one connection after another, each used until it ends.
async fn keep_alive(shared: Arc<Shared>, version: Version, streams: usize) {
    while !shared.stopped() {
        let Some(sender) = shared.connect(version).await else {
            return;
        };
        match sender {
            Sender::Http1(_) => requests(&shared, version, sender).await,
            Sender::Http2(sender) => {
                let sender = || Sender::Http2(sender.clone());
                let each = (0..streams).map(|_| requests(&shared, version, sender()));
                futures_util::future::join_all(each).await;
            }
        }
    }
}

/// Opens a connection for each request.
async fn one_each(shared: Arc<Shared>) {
    let mut number = 0;
    while !shared.stopped() {
        let Some(mut sender) = shared.connect(Version::Http1).await else {
            return;
        };
        number += 1;
        one(&shared, Version::Http1, &mut sender, number).await;
    }
}

/// Sends one request after another, until the connection accepts no more.
async fn requests(shared: &Shared, version: Version, mut sender: Sender) {
    let mut number = 0;
    while !shared.stopped() {
        number += 1;
        if !one(shared, version, &mut sender, number).await {
            return;
        }
    }
}

/// Sends one request; returns false if the connection must not be used again.
async fn one(shared: &Shared, version: Version, sender: &mut Sender, number: u64) -> bool {
    let round_trip = round_trip(version, sender, number);
    match tokio::time::timeout(PATIENCE, round_trip).await {
        Ok(Ok(Some(server))) => {
            shared.with(|tally| {
                tally.answered += 1;
                *tally.servers.entry(server).or_default() += 1;
            });
            true
        }
        Ok(Ok(None)) => false,
        Ok(Err(error)) => {
            shared.failed(format!("{version:?}: {error:#}"));
            false
        }
        Err(_) => {
            shared.failed(format!("{version:?}: no response within {PATIENCE:?}"));
            false
        }
    }
}

/// Sends a download or an upload in turn; returns the server that responded, `None` = not sent.
async fn round_trip(
    version: Version,
    sender: &mut Sender,
    number: u64,
) -> anyhow::Result<Option<String>> {
    let up = number.is_multiple_of(2);
    let request = if up {
        let body = Full::from(pattern::bytes(UP))
            .map_err(|never| match never {})
            .boxed();
        client::request(version, Method::POST, "/upload", body)?
    } else {
        client::request(
            version,
            Method::GET,
            &format!("/bytes/{DOWN}"),
            client::empty(),
        )?
    };
    let response = match sender.send(request).await {
        Ok(response) => response,
        Err(Unanswered::NotSent) => return Ok(None),
        Err(Unanswered::Lost(error)) => return Err(error).context("no response"),
    };
    ensure!(response.status() == 200, "status {}", response.status());
    let server = response.headers().get("x-upstream");
    let server = server.context("no x-upstream")?.to_str()?.to_owned();
    check(response.into_body(), up).await?;
    Ok(Some(server))
}

async fn check(body: Incoming, up: bool) -> anyhow::Result<()> {
    let body = body
        .collect()
        .await
        .context("incomplete response")?
        .to_bytes();
    if up {
        let answer: serde_json::Value = serde_json::from_slice(&body)?;
        let hash = answer.get("hash").and_then(serde_json::Value::as_u64);
        ensure!(
            hash == Some(pattern::hash(&pattern::bytes(UP))),
            "the server received a different upload: {answer}"
        );
    } else {
        ensure!(
            body == pattern::bytes(DOWN),
            "unexpected response body of {} bytes",
            body.len()
        );
    }
    Ok(())
}
