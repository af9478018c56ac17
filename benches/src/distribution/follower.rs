//! A client that behaves like a sidecar: a delta stream, a few Services by name, and an increasing
//! delay before it reconnects.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_balance::Rng;
use maglor_xds::client::{Client, Update};
use maglor_xds::frame::{Deframer, frame};
use maglor_xds::proto::envoy::config::core::v3::Node;
use maglor_xds::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use maglor_xds::{Health, Kind, Message as _, decode};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::ledger::Ledger;

const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const LONGEST: usize = 16 << 20;

/// The shared state of all followers.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// The changes.
    pub(super) ledger: RefCell<Ledger>,
    /// The number of attempts to connect.
    pub(super) attempts: Cell<u64>,
    /// The number of received resources.
    pub(super) resources: Cell<u64>,
    /// The number of received bytes.
    pub(super) bytes: Cell<u64>,
    /// The number of followers that have all requested resources.
    pub(super) complete: Cell<u32>,
}

/// The address and the TLS configuration of the controller.
pub(super) type Server = (SocketAddr, Arc<ClientConfig>);

/// One of them.
#[derive(Debug)]
pub(super) struct Follower {
    number: u32,
    server: Server,
    client: Client,
    /// The Services by the names of their resources.
    services: BTreeMap<String, u32>,
    /// Requested resources without a response yet.
    awaited: HashSet<(Kind, String)>,
    board: Rc<Board>,
    rng: Rng,
}

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("connection: {0}")]
    Connection(#[from] io::Error),
    #[error("HTTP/2: {0}")]
    Http2(#[from] hyper::Error),
    #[error("request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("{0}")]
    Frame(#[from] maglor_xds::frame::FrameError),
    #[error("message: {0}")]
    Message(String),
}

/// Returns the name under which a Service of the namespace `scale` is requested.
pub(super) fn name(service: u32) -> String {
    format!("s{service}.scale.svc.cluster.local:80")
}

impl Follower {
    pub(super) fn new(number: u32, server: Server, services: &[u32], board: Rc<Board>) -> Self {
        let mut client = Client::new(Node {
            id: format!("scale/proxy-{number}"),
            ..Node::default()
        });
        let mut awaited = HashSet::new();
        for &service in services {
            for kind in [Kind::Listener, Kind::Routes, Kind::Cluster, Kind::Endpoints] {
                client.subscribe(kind, &name(service));
                awaited.insert((kind, name(service)));
            }
        }
        Self {
            number,
            server,
            client,
            services: services.iter().map(|&one| (name(one), one)).collect(),
            awaited,
            board,
            rng: Rng::seed(u64::from(number) + 1),
        }
    }

    /// Follows until the stream ends.
    pub(super) async fn run(mut self) {
        loop {
            add(&self.board.attempts, 1);
            // The reason why a stream ended is not relevant here; only when the next one begins.
            let _: Result<(), Ended> = self.stream().await;
            let pause = self.client.disconnected(&mut self.rng);
            tokio::time::sleep(pause).await;
        }
    }

    async fn stream(&mut self) -> Result<(), Ended> {
        let (address, tls) = &self.server;
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::IpAddress(address.ip().into());
        let io = TlsConnector::from(Arc::clone(tls))
            .connect(name, socket)
            .await?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await?;
        let connection = tokio::spawn(connection);
        let (requests, mut outgoing) = mpsc::unbounded_channel::<Bytes>();
        let parts = futures_util::stream::poll_fn(move |context| {
            let part = outgoing.poll_recv(context);
            part.map(|part| part.map(|data| Ok::<_, Infallible>(Frame::data(data))))
        });
        let request = hyper::Request::post(format!("https://{address}{PATH}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(parts))?;
        self.client.connected();
        let say = |client: &mut Client| {
            while let Some(request) = client.request() {
                let _ = requests.send(frame(&request));
            }
        };
        say(&mut self.client);
        let mut response = sender.send_request(request).await?.into_body();
        let mut deframer = Deframer::new(LONGEST);
        while let Some(part) = response.frame().await {
            let Ok(data) = part?.into_data() else { break };
            add(&self.board.bytes, data.len() as u64);
            deframer.put(&data);
            while let Some(message) = deframer.message()? {
                let response = DeltaDiscoveryResponse::decode(message);
                let response = response.map_err(|error| Ended::Message(error.to_string()))?;
                if let Some(update) = self.client.receive(response) {
                    self.take(&update);
                    self.client.accept(&update);
                }
            }
            say(&mut self.client);
        }
        connection.abort();
        Ok(())
    }

    fn take(&mut self, update: &Update) {
        let now = Instant::now();
        add(&self.board.resources, update.resources.len() as u64);
        for resource in &update.resources {
            self.arrived(update.kind, &resource.name);
            let service = self.services.get(&*resource.name).copied();
            if let (Kind::Endpoints, Some(service)) = (update.kind, service) {
                let endpoints = decode::endpoints(&resource.name, &resource.body);
                let ready = endpoints.unwrap_or_default().into_iter();
                let ready = ready.filter(|one| one.health == Health::Healthy);
                let ready = ready.filter_map(|one| one.described.address).collect();
                let mut ledger = self.board.ledger.borrow_mut();
                ledger.heard(self.number, service, &ready, now);
            }
        }
    }

    fn arrived(&mut self, kind: Kind, name: &str) {
        let was = self.awaited.remove(&(kind, name.to_owned()));
        if was && self.awaited.is_empty() {
            self.board.complete.set(self.board.complete.get() + 1);
        }
    }
}

fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}
