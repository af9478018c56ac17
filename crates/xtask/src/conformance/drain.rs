//! SIGTERM under load: no request in progress is lost, and the proxy exits successfully and in
//! time.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, Upstream, pattern};
use tokio_tungstenite::tungstenite::Message;

use super::client::{self, Target, Version};
use super::load::{self, Clients, Load, Tally};
use super::report::Report;
use super::setup::{Config, DRAIN_SECONDS};
use super::{Bench, websocket};

const CLIENTS: Clients = Clients {
    http1: 64,
    once: 2,
    http2: 4,
    streams: 8,
};
/// The number of requests before the signal.
const BEFORE: u64 = 1000;
/// The approximate time for which the download and the WebSocket continue after the signal.
const AFTER: Duration = Duration::from_millis(1000);
const DOWNLOAD: u64 = 64 << 20;

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance drain`: SIGTERM while {} HTTP/1.1 connections are kept alive, \
         {} more come and go, {} HTTP/2 connections have {} streams each, a download of {} MiB \
         is read slowly and a WebSocket echoes; the last two go on for about {AFTER:?}. A \
         request fails when it was sent on a connection that had been made and got no complete \
         answer. Exit code 0 within the drain timeout of {DRAIN_SECONDS} s; {} times for each \
         protocol upstream.",
        CLIENTS.http1,
        CLIENTS.once,
        CLIENTS.http2,
        CLIENTS.streams,
        DOWNLOAD >> 20,
        bench.drains
    ));
    for protocol in ["http1", "http2"] {
        report.case(
            format!("{} drains, {protocol} upstream", bench.drains),
            drains(bench, protocol),
        );
    }
    Ok(())
}

fn drains(bench: &Bench, protocol: &str) -> anyhow::Result<String> {
    let upstream = Upstream::start("a");
    let mut all = Tally::default();
    let mut slowest = Duration::ZERO;
    let mut wrong = Vec::new();
    for round in 1..=bench.drains {
        let config = Config::default().cluster("web", protocol, &[upstream.address()]);
        let proxy = config.http("web", "auto", None, "web").start(bench)?;
        let drained = drain(proxy).with_context(|| format!("round {round}"))?;
        all.add(&drained.tally);
        slowest = slowest.max(drained.took);
        wrong.extend(
            drained
                .wrong
                .into_iter()
                .map(|what| format!("round {round}: {what}")),
        );
    }
    let counts = format!(
        "{} requests on {} connections; slowest end {:.2} s",
        all.answered,
        all.connections,
        slowest.as_secs_f64()
    );
    all.verdict()
        .with_context(|| format!("{counts}; {}", wrong.join("; ")))?;
    ensure!(wrong.is_empty(), "{counts}; {}", wrong.join("; "));
    Ok(format!("{counts}; 0 failed"))
}

/// The result of one drain.
struct Drained {
    tally: Tally,
    took: Duration,
    wrong: Vec<String>,
}

fn drain(mut proxy: Proxy) -> anyhow::Result<Drained> {
    let address = proxy.listener("web");
    let load = Load::start(address, CLIENTS);
    let download = background(download(address));
    let socket = background(echoes(address));
    load.wait_for(BEFORE)?;
    load.expect_end();
    let started = Instant::now();
    proxy.signal(Signal::Terminate);
    let status = proxy.wait_exit(Duration::from_secs(DRAIN_SECONDS * 2));
    let took = started.elapsed();
    let tally = load.join()?;
    let mut wrong = Vec::new();
    for (name, thread) in [("download", download), ("WebSocket", socket)] {
        if let Err(error) = thread.join().ok().context("the client thread panicked")? {
            wrong.push(format!("{name}: {error:#}"));
        }
    }
    if !status.success() {
        wrong.push(format!("the proxy ended with {status}"));
    }
    if took > Duration::from_secs(DRAIN_SECONDS) || took < AFTER / 2 {
        wrong.push(format!(
            "the proxy ended after {took:?}, outside the expected time"
        ));
    }
    wrong.extend(
        proxy
            .stderr()
            .lines()
            .filter(|line| line.contains("ERROR"))
            .map(str::to_owned),
    );
    Ok(Drained { tally, took, wrong })
}

/// Runs a client in a thread with a separate runtime.
fn background(
    client: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) -> thread::JoinHandle<anyhow::Result<()>> {
    thread::spawn(move || load::runtime()?.block_on(client))
}

fn target(address: SocketAddr) -> Target {
    Target {
        address,
        tls: None,
        version: Version::Http1,
    }
}

/// Reads a long body at a rate such that it ends after the signal.
async fn download(address: SocketAddr) -> anyhow::Result<()> {
    let target = target(address);
    let mut sender = target.connect().await?;
    let path = format!("/bytes/{DOWNLOAD}");
    let request = client::request(target.version, Method::GET, &path, client::empty())?;
    let mut body = sender.expect(request).await?.into_body();
    let started = Instant::now();
    let pace = DOWNLOAD as f64 / (AFTER * 2).as_secs_f64();
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.with_context(|| format!("download failed after {at} bytes"))?;
        if let Some(data) = frame.data_ref() {
            // Panics, which fails the case, at the first wrong byte.
            pattern::check(at, data);
            at += data.len() as u64;
        }
        let due = Duration::from_secs_f64(at as f64 / pace);
        tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
    }
    ensure!(at == DOWNLOAD, "{at} of {DOWNLOAD} bytes arrived");
    Ok(())
}

/// Echoes until some time after the signal, and then closes gracefully.
async fn echoes(address: SocketAddr) -> anyhow::Result<()> {
    let mut socket = websocket::open(&target(address)).await?;
    let started = Instant::now();
    let data = Bytes::from(pattern::bytes(10_000));
    while started.elapsed() < AFTER * 2 {
        websocket::echo(&mut socket, Message::Binary(data.clone())).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    websocket::close(socket).await
}
