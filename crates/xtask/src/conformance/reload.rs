//! Repeated changes of the configuration under load, without a failed request.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, Upstream};
use tokio_tungstenite::tungstenite::Message;

use super::client::{Target, Version};
use super::load::{self, Clients, Load};
use super::report::Report;
use super::setup::Config;
use super::{Bench, websocket};

const CLIENTS: Clients = Clients {
    http1: 16,
    once: 2,
    http2: 4,
    streams: 8,
};
/// The number of requests with each configuration.
const BETWEEN: u64 = 50;

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance reload`: {} changes between two sets of servers and routes, \
         each while {} HTTP/1.1 connections are kept alive, {} more come and go, and {} HTTP/2 \
         connections have {} streams each; a WebSocket lives through all of them. Even changes \
         are noticed by the file's watch, odd ones by SIGHUP.",
        bench.reloads, CLIENTS.http1, CLIENTS.once, CLIENTS.http2, CLIENTS.streams
    ));
    for (upstream, listen) in [("http1", "h1"), ("http2", "h2")] {
        let result = reloads(bench, upstream);
        report.case(
            format!("{} reloads, {listen} upstream", bench.reloads),
            result,
        );
    }
    Ok(())
}

fn reloads(bench: &Bench, protocol: &str) -> anyhow::Result<String> {
    let names = ["a", "b", "c", "d"];
    let upstreams = names.map(Upstream::start);
    let [a, b, c, d] = upstreams.each_ref().map(Upstream::address);
    let mut proxy = config(protocol, &[a, b], "").start(bench)?;
    let address = proxy.listener("web");
    // The port must not be chosen again.
    let fixed = |servers: &[SocketAddr], routes: &str| {
        let yaml = config(protocol, servers, routes).yaml();
        yaml.replacen(
            "- name: web\n  address: 127.0.0.1:0",
            &format!("- name: web\n  address: {address}"),
            1,
        )
    };
    let other = "{match: {path: /upload}, cluster: web, timeout: 5s}, \
                 {match: {headers: [{name: x-none, present: true}]}, direct_response: {status: 204}}, ";
    let configs = [fixed(&[c, d], other), fixed(&[a, b], "")];
    proxy = restart(bench, proxy, &configs[1])?;
    let load = Load::start(address, CLIENTS);
    load.wait_for(BETWEEN)?;
    let socket = Socket::open(address)?;
    let started = Instant::now();
    for number in 0..bench.reloads {
        change(&proxy, &configs[number as usize % 2], number)?;
        load.wait_for(BETWEEN)
            .with_context(|| format!("failure after reload {number}"))?;
    }
    let took = started.elapsed();
    let echoes = socket.close()?;
    let tally = load.stop()?;
    tally.verdict()?;
    ensure!(
        tally.servers.len() == names.len(),
        "not all servers answered: {:?}",
        tally.servers
    );
    ensure!(
        proxy.terminate().success(),
        "the proxy did not exit successfully"
    );
    Ok(format!(
        "{} requests on {} connections, 0 failed; {:?}; {echoes} WebSocket echoes; {:.1} s",
        tally.answered,
        tally.connections,
        tally.servers,
        took.as_secs_f64()
    ))
}

/// Restarts the proxy: the first one found a free port; the second has it in its file.
fn restart(bench: &Bench, first: Proxy, config: &str) -> anyhow::Result<Proxy> {
    ensure!(
        first.terminate().success(),
        "the first proxy did not exit successfully"
    );
    let builder = maglor_testkit::ProxyBuilder::new(&bench.proxy).config(config);
    builder
        .try_start()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

fn config(protocol: &str, servers: &[SocketAddr], routes: &str) -> Config {
    let mut config = Config::default().cluster("web", protocol, servers);
    config.routes = routes.to_owned();
    config.http("web", "auto", None, "web")
}

/// Changes the configuration, and waits until it is applied.
fn change(proxy: &Proxy, config: &str, number: u32) -> anyhow::Result<()> {
    let applied = || proxy.metric("maglor_config_reloads_total", &["applied"]);
    let before = applied();
    proxy.replace_config(config);
    if number % 2 == 1 {
        proxy.signal(Signal::Hangup);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while applied() <= before {
        ensure!(
            Instant::now() < deadline,
            "reload {number} is not applied: {}",
            proxy.stderr()
        );
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A WebSocket that is used from time to time, in a separate thread.
struct Socket {
    stop: std::sync::mpsc::Sender<()>,
    thread: thread::JoinHandle<anyhow::Result<u64>>,
}

impl Socket {
    fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let target = Target {
            address,
            tls: None,
            version: Version::Http1,
        };
        let runtime = load::runtime()?;
        let mut socket = runtime.block_on(websocket::open(&target))?;
        let (stop, stopped) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let mut echoes = 0;
            while stopped.recv_timeout(Duration::from_millis(20)).is_err() {
                runtime.block_on(websocket::echo(&mut socket, Message::text("still there")))?;
                echoes += 1;
            }
            runtime.block_on(websocket::close(socket))?;
            Ok(echoes)
        });
        Ok(Self { stop, thread })
    }

    fn close(self) -> anyhow::Result<u64> {
        // If it has ended already, the join returns the reason.
        let _ = self.stop.send(());
        let echoes = self
            .thread
            .join()
            .ok()
            .context("the WebSocket thread panicked")?;
        echoes.context("WebSocket")
    }
}
