//! Third-party peers of xDS: Envoy (both protocols) and grpc-go use resources that our controller
//! serves from a folder, and our proxy uses resources of go-control-plane.
//!
//! Envoy is the binary that `cargo xtask compare` leaves in the cache, or `MAGLOR_ENVOY`; the Go peers are
//! `conformance/xds`, built once.

mod controller;
mod envoy;
mod go;
mod peer;
mod proxy;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use tokio::runtime::Runtime;

use super::client::{Target, Version, empty};
use super::report::Report;
use super::{Bench, tools};

/// The time limit of waiting for a peer; a client in backoff (grpc-go's delays grow) needs seconds.
const LIMIT: Duration = Duration::from_secs(30);
/// The poll interval.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(
        "`cargo xtask conformance xds`: `maglor-controller --folder` serves Envoy 1.40.0 (delta, `sotw`) and \
         grpc-go 1.82.0 (`xds:///NAME`); go-control-plane 0.14.0 serves `maglor-proxy`. Times are from the \
         change of a file, or of the snapshot, to the first requests that show it.",
    );
    let controller = match &bench.controller {
        Some(path) => path.clone(),
        None => tools::build(&bench.root, "maglor-controller")?,
    };
    let check = go::build(&bench.root)?;
    for protocol in ["delta", "sotw"] {
        if let Err(error) = envoy::run(&controller, protocol, report) {
            report.fail(format!("envoy {protocol}"), format!("{error:#}"));
        }
    }
    if let Err(error) = go::run(&controller, &check, report) {
        report.fail("grpc-go", format!("{error:#}"));
    }
    if let Err(error) = proxy::run(&bench.proxy, &check, report) {
        report.fail("go-control-plane", format!("{error:#}"));
    }
    Ok(())
}

/// Sends requests from one thread, each on a separate connection.
struct Asker(Runtime);

impl Asker {
    fn new() -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        Ok(Self(builder.enable_all().build()?))
    }

    /// Returns the status and the body of a GET.
    fn get(&self, address: SocketAddr, host: &str, path: &str) -> anyhow::Result<(u16, Bytes)> {
        let target = Target {
            address,
            tls: None,
            version: Version::Http1,
        };
        let asked = async {
            let mut sender = target.connect().await?;
            let request = Request::get(path).header("host", host).body(empty())?;
            let sent = sender.send(request).await;
            let Ok(response) = sent else {
                bail!("no response");
            };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            Ok((status, body))
        };
        let late = || format!("{path}: no answer");
        let whole = async { tokio::time::timeout(LIMIT, asked).await };
        self.0.block_on(whole).with_context(late)?
    }

    /// Returns a page as JSON.
    fn json(&self, address: SocketAddr, path: &str) -> anyhow::Result<serde_json::Value> {
        let (status, body) = self.get(address, "localhost", path)?;
        if status != 200 {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

/// Waits until a condition holds; returns how long that took, or the last error.
fn until(what: &str, mut holds: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        match holds() {
            Ok(()) => return Ok(begun.elapsed()),
            Err(last) if begun.elapsed() > LIMIT => return Err(last.context(what.to_owned())),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn took(time: Duration) -> String {
    format!("after {} ms", time.as_millis())
}

/// Returns a free port, for programs that cannot choose and report one.
fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}
