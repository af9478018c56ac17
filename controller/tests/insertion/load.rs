//! Requests to a Service from a node, at a steady rate, each of which is counted: HTTP/1.1 over
//! connections that are kept and over new ones, and streams of HTTP/2 as gRPC sends them.
//!
//! It is this test's own program, run again in the network of a node. Commands and reports are lines on its standard
//! input and output.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_testkit::cluster::Machine;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

/// The environment variable with the address.
const ADDRESS: &str = "MAGLOR_LOAD_ADDRESS";
/// Requests a second of each client.
const RATE: u32 = 50;
const KEPT: usize = 8;
const ONCE: usize = 4;
/// Number of concurrent streams, on two connections.
const STREAMS: usize = 4;
/// Requests of a connection that is kept: a client that never connects again never sees a proxy.
const REQUESTS: usize = 40;
/// A request takes no longer, or is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// A load that runs.
pub(crate) struct Load {
    child: Child,
    input: Mutex<ChildStdin>,
    output: Mutex<BufReader<std::process::ChildStdout>>,
}

impl Load {
    pub(crate) fn start(node: &Machine, address: Ipv4Addr) -> Self {
        let network = format!("--net=/proc/{}/ns/net", node.init());
        let mut child = Command::new("nsenter")
            .arg(network)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "insertion::load", "--ignored", "--nocapture"])
            .env(ADDRESS, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let load = Self {
            input: Mutex::new(child.stdin.take().unwrap()),
            output: Mutex::new(BufReader::new(child.stdout.take().unwrap())),
            child,
        };
        // The Service is new: failures count only once the node has its endpoints.
        let deadline = std::time::Instant::now() + 3 * PATIENCE;
        loop {
            let reported = load.report();
            if reported.contains("failed {}") && !reported.contains(" 0 answered") {
                return load;
            }
            assert!(std::time::Instant::now() < deadline, "{reported}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// The results since the last call and of two more seconds; fails if a request has failed.
    pub(crate) fn phase(&self, name: &str) {
        std::thread::sleep(Duration::from_secs(2));
        let line = self.report();
        println!("{name}: {}", line.trim());
        assert!(line.contains("failed {}"), "{name}: {line}");
        assert!(!line.contains(" 0 answered"), "{name}: {line}");
    }

    fn report(&self) -> String {
        writeln!(self.input.lock().unwrap(), "report").unwrap();
        let mut output = self.output.lock().unwrap();
        let mut line = String::new();
        while !line.contains("answered") {
            line.clear();
            let read = output.read_line(&mut line).unwrap();
            assert!(read > 0, "the load has ended");
        }
        line
    }

    pub(crate) fn end(mut self) {
        self.phase("the end");
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[derive(Debug, Default)]
struct Tally {
    answered: u64,
    longest: Duration,
    failed: BTreeMap<String, u64>,
}

type Shared = Arc<Mutex<Tally>>;

/// The load itself.
pub(crate) fn run() {
    let Some(address) = std::env::var(ADDRESS).ok() else {
        println!("skipped: it is part of another test");
        return;
    };
    let address: Ipv4Addr = address.parse().unwrap();
    let tally = Shared::default();
    let clients = Arc::clone(&tally);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(all(address, clients));
    });
    let mut since = std::time::Instant::now();
    for line in std::io::stdin().lines() {
        if line.is_err() {
            return;
        }
        let reported = std::mem::take(&mut *tally.lock().unwrap());
        let rate = reported.answered as f64 / since.elapsed().as_secs_f64();
        since = std::time::Instant::now();
        println!(
            "load: {} answered, {rate:.0} a second, the slowest after {:?}, failed {:?}",
            reported.answered, reported.longest, reported.failed
        );
    }
}

async fn all(address: Ipv4Addr, tally: Shared) {
    let mut clients = tokio::task::JoinSet::new();
    let http = SocketAddr::from((address, 80));
    for _ in 0..KEPT {
        clients.spawn(http1_client(http, true, Arc::clone(&tally)));
    }
    for _ in 0..ONCE {
        clients.spawn(http1_client(http, false, Arc::clone(&tally)));
    }
    for _ in 0..2 {
        clients.spawn(http2_client(
            SocketAddr::from((address, 90)),
            Arc::clone(&tally),
        ));
    }
    while clients.join_next().await.is_some() {}
}

fn pace() -> tokio::time::Interval {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / RATE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    pace
}

fn note(tally: &Shared, started: Instant, outcome: Result<(), String>) {
    let mut tally = tally.lock().unwrap();
    match outcome {
        Ok(()) => {
            tally.answered += 1;
            tally.longest = tally.longest.max(started.elapsed());
        }
        Err(what) => *tally.failed.entry(what).or_default() += 1,
    }
}

fn request(uri: &str) -> Request<Empty<Bytes>> {
    let request = Request::builder().uri(uri).header("host", "web.shop");
    request.body(Empty::new()).unwrap()
}

/// Whether a response is whole and good.
async fn read(response: hyper::Response<Incoming>) -> Result<(), String> {
    let status = response.status();
    let body = response.into_body().collect().await;
    match body {
        Ok(_) if status == 200 => Ok(()),
        Ok(body) => {
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            Err(format!("status {status}: {}", text.trim()))
        }
        Err(error) => Err(format!("body: {error:?}")),
    }
}

async fn http1_client(address: SocketAddr, kept: bool, tally: Shared) {
    let mut pace = pace();
    let mut connection: Option<http1::SendRequest<Empty<Bytes>>> = None;
    let most = if kept { REQUESTS } else { 1 };
    for count in 1.. {
        pace.tick().await;
        let started = Instant::now();
        let one = http1_request(address, &mut connection);
        let outcome = tokio::time::timeout(PATIENCE, one).await;
        note(
            &tally,
            started,
            outcome.unwrap_or_else(|_| Err("timeout".into())),
        );
        if count % most == 0 {
            connection = None;
        }
    }
}

async fn http1_request(
    address: SocketAddr,
    connection: &mut Option<http1::SendRequest<Empty<Bytes>>>,
) -> Result<(), String> {
    loop {
        let mut sender = match connection.take() {
            Some(sender) => sender,
            None => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.map_err(|error| format!("HTTP/1.1 connect: {error}"))?;
                let handshake = http1::handshake(TokioIo::new(stream)).await;
                let (sender, driver) = handshake.map_err(|error| format!("{error:?}"))?;
                tokio::spawn(driver);
                sender
            }
        };
        if sender.ready().await.is_err() {
            // It has ended before the request, as connections do.
            continue;
        }
        match sender.try_send_request(request("/api/v1")).await {
            Ok(response) => {
                read(response).await?;
                *connection = Some(sender);
                return Ok(());
            }
            Err(mut error) => {
                if error.take_message().is_none() {
                    return Err(format!("HTTP/1.1: {:?}", error.into_error()));
                }
            }
        }
    }
}

async fn http2_client(address: SocketAddr, tally: Shared) {
    let connection = Arc::new(tokio::sync::Mutex::new(None));
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let (connection, tally) = (Arc::clone(&connection), Arc::clone(&tally));
        streams.spawn(async move {
            let mut pace = pace();
            for count in 1.. {
                pace.tick().await;
                if count % REQUESTS == 0 {
                    connection.lock().await.take();
                }
                let started = Instant::now();
                let one = http2_request(address, &connection);
                let outcome = tokio::time::timeout(PATIENCE, one).await;
                note(
                    &tally,
                    started,
                    outcome.unwrap_or_else(|_| Err("timeout".into())),
                );
            }
        });
    }
    while streams.join_next().await.is_some() {}
}

type Streams = tokio::sync::Mutex<Option<http2::SendRequest<Empty<Bytes>>>>;

async fn http2_request(address: SocketAddr, connection: &Streams) -> Result<(), String> {
    loop {
        let mut sender = {
            let mut shared = connection.lock().await;
            match shared.as_ref().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender.clone(),
                None => {
                    let stream = TcpStream::connect(address).await;
                    let stream = stream.map_err(|error| format!("HTTP/2 connect: {error}"))?;
                    let handshake =
                        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
                    let (sender, driver) = handshake.map_err(|error| format!("{error:?}"))?;
                    tokio::spawn(driver);
                    shared.insert(sender).clone()
                }
            }
        };
        let sent = match sender.ready().await {
            Ok(()) => {
                sender
                    .try_send_request(request("http://web.shop/api/v1"))
                    .await
            }
            Err(_) => {
                connection.lock().await.take();
                continue;
            }
        };
        match sent {
            Ok(response) => return read(response).await,
            Err(mut error) => {
                if error.take_message().is_none() {
                    return Err(format!("HTTP/2: {:?}", error.into_error()));
                }
                connection.lock().await.take();
            }
        }
    }
}
