//! One gibibyte up and down, on every path through the proxy, with flat memory.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use http::Method;
use http_body_util::BodyExt as _;
use maglor_testkit::pattern::{self, PatternBody};
use maglor_testkit::{Proxy, Upstream};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::client::{Target, Version, empty, request};
use super::report::Report;
use super::setup::{Config, localhost};
use super::{Bench, load};

/// The limit of memory growth in one transfer: buffers of one stream, and the allocator's slack.
const GROWTH: u64 = 4 << 20;
/// The time limit of a transfer.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug)]
enum Transfer {
    Download,
    Upload,
}

/// The name, listener and version of each path, and whether the length is announced.
const PATHS: &[(&str, &str, Version, bool)] = &[
    ("HTTP/1.1, content-length", "h1", Version::Http1, true),
    ("HTTP/1.1, chunked", "h1", Version::Http1, false),
    ("h2c to HTTP/1.1", "h1", Version::Http2, true),
    ("h2c to h2c", "h2", Version::Http2, true),
    ("HTTP/1.1 to h2c", "h2", Version::Http1, false),
    ("TLS, HTTP/1.1", "tls", Version::Http1, true),
    ("TLS, HTTP/2", "tls", Version::Http2, true),
    ("TCP passthrough", "tcp", Version::Http1, true),
];

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance bulk`: {} MiB each way, checked by XXH3 at the far end. Growth \
         is the highest resident memory of the proxy during the transfer less that before it, \
         sampled every 5 ms; more than {} MiB fails.",
        bench.bytes >> 20,
        GROWTH >> 20
    ));
    let upstream = Upstream::start("origin");
    let (authority, identity) = localhost();
    let servers = [upstream.address()];
    let proxy = Config::default()
        .cluster("h1", "http1", &servers)
        .cluster("h2", "http2", &servers)
        .http("h1", "auto", None, "h1")
        .http("h2", "auto", None, "h2")
        .http("tls", "auto", Some(&identity), "h1")
        .tcp("tcp", "h1")
        .start(bench)?;
    let expected = expected_hash(bench.bytes);
    for &(name, listener, version, announced) in PATHS {
        let alpn = match version {
            Version::Http1 => "http/1.1",
            Version::Http2 => "h2",
        };
        let target = Target {
            address: proxy.listener(listener),
            tls: (listener == "tls").then(|| authority.client_config(None, &[alpn])),
            version,
        };
        for transfer in [Transfer::Download, Transfer::Upload] {
            let job = Job {
                transfer,
                announced,
                bytes: bench.bytes,
                expected,
            };
            let result = measured(&proxy, &job, &target);
            report.case(format!("{name}, {transfer:?}").to_lowercase(), result);
        }
    }
    let idle = proxy.resident_bytes();
    report.note(format!(
        "Resident memory after all transfers: {} kB.",
        idle >> 10
    ));
    Ok(())
}

fn expected_hash(bytes: u64) -> u64 {
    let mut hash = Xxh3::new();
    let mut at = 0;
    while at < bytes {
        let piece = pattern::piece(at, bytes - at);
        hash.update(&piece);
        at += piece.len() as u64;
    }
    hash.digest()
}

#[derive(Debug)]
struct Job {
    transfer: Transfer,
    announced: bool,
    bytes: u64,
    expected: u64,
}

fn measured(proxy: &Proxy, job: &Job, target: &Target) -> anyhow::Result<String> {
    let before = proxy.resident_bytes();
    let memory = Memory::watch(proxy.pid());
    let started = Instant::now();
    let result = load::runtime()?.block_on(async {
        tokio::time::timeout(LIMIT, job.run(target))
            .await
            .context("the transfer took too long")?
    });
    let took = started.elapsed();
    let growth = memory.stop().saturating_sub(before);
    result?;
    let speed = (job.bytes >> 20) as f64 / took.as_secs_f64();
    let detail = format!(
        "{speed:.0} MiB/s, growth {} kB over {} kB",
        growth >> 10,
        before >> 10
    );
    ensure!(growth <= GROWTH, "memory grew too much: {detail}");
    Ok(detail)
}

impl Job {
    async fn run(&self, target: &Target) -> anyhow::Result<()> {
        match self.transfer {
            Transfer::Download => self.download(target).await,
            Transfer::Upload => self.upload(target).await,
        }
    }

    async fn download(&self, target: &Target) -> anyhow::Result<()> {
        let path = if self.announced { "bytes" } else { "chunked" };
        let path = format!("/{path}/{}", self.bytes);
        let mut sender = target.connect().await?;
        let request = request(target.version, Method::GET, &path, empty())?;
        let response = sender.expect(request).await?;
        let length = response.headers().contains_key("content-length");
        ensure!(length == self.announced, "content-length: {length}");
        let mut body = response.into_body();
        let (mut received, mut hash) = (0, Xxh3::new());
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame?.data_ref() {
                received += data.len() as u64;
                hash.update(data);
            }
        }
        self.compare(received, hash.digest())
    }

    async fn upload(&self, target: &Target) -> anyhow::Result<()> {
        let body = match self.announced {
            true => PatternBody::sized(self.bytes),
            false => PatternBody::streamed(self.bytes),
        };
        let mut sender = target.connect().await?;
        let request = request(target.version, Method::POST, "/upload", body.boxed())?;
        let answer = sender.expect(request).await?.into_body().collect().await?;
        let answer: Value = serde_json::from_slice(&answer.to_bytes())?;
        let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.compare(number("bytes"), number("hash"))
    }

    fn compare(&self, bytes: u64, hash: u64) -> anyhow::Result<()> {
        ensure!(
            bytes == self.bytes,
            "{bytes} of {} bytes arrived",
            self.bytes
        );
        ensure!(
            hash == self.expected,
            "the received bytes differ from the sent bytes"
        );
        Ok(())
    }
}

/// Samples the resident memory of a process.
struct Memory {
    stop: Arc<AtomicBool>,
    highest: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Memory {
    fn watch(pid: u32) -> Self {
        let (stop, highest) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let thread = {
            let (stop, highest) = (Arc::clone(&stop), Arc::clone(&highest));
            // Relaxed: the join orders the last sample before its use.
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    highest.fetch_max(resident(pid).unwrap_or(0), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            })
        };
        Self {
            stop,
            highest,
            thread,
        }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        // It does not panic; otherwise the samples so far count.
        let _ = self.thread.join();
        self.highest.load(Ordering::Relaxed)
    }
}

/// Returns the resident memory; `None` once the process is gone.
fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}
