//! Requests the observations of the other replicas of the controller, on their xDS ports.
//!
//! Both sides authenticate with the controller's own identity ([`super::peers`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};
use maglor_identity::Refusal;
use maglor_identity::tls::{self, peer};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::called::Words;
use super::delays::Delay;
use super::parts::Part;
use super::{Graphs, Snapshot};
use crate::reconcile::cache::{self, Cache, Watch};
use crate::revision::{PODS, is_replica};

/// Timeout of a request to another replica.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of requests for the Services that pods call.
const ASK_EVERY: Duration = Duration::from_secs(15);
/// Maximum size of a response in bytes, sufficient for a hundred thousand edges of proxies.
const LONGEST: usize = 32 << 20;

/// This replica, and access to the others.
#[derive(Clone)]
pub(crate) struct Replicas {
    /// The mesh's own pods.
    pub(crate) pods: Cache<Pod>,
    /// The name of this replica.
    pub(crate) replica: String,
    /// The connection to other replicas.
    pub(crate) connector: Connector,
}

/// The parameters of connections to other replicas.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The xDS port, which is the same for all replicas.
    pub(crate) port: u16,
    /// TLS for connections to other replicas; `None` in plain text. The inner value is `None` until there is a
    /// certificate authority.
    pub(crate) tls: Option<watch::Receiver<Option<Arc<tls::Client>>>>,
}

/// The responses of other replicas.
pub(crate) struct Answers<T> {
    pub(crate) all: Vec<T>,
    /// The number of replicas without a response.
    pub(crate) missing: u32,
}

/// Reason why another replica's data is unavailable.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("cannot build the request: {0}")]
    Request(#[from] http::Error),
    #[error("unexpected status {0}")]
    Status(StatusCode),
    #[error("response truncated, or longer than {LONGEST} bytes: {0}")]
    Body(String),
    #[error("invalid response: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("peer is not authenticated as a replica: {}", .0.as_str())]
    Peer(Refusal),
    #[error("no authority is loaded yet")]
    NoIdentity,
    #[error("the replica has not responded in time")]
    Timeout,
}

/// Watches the mesh's own pods; the returned future keeps them up to date.
pub(crate) fn watched(
    client: Client,
    namespace: &str,
) -> (Cache<Pod>, impl Future<Output = ()> + use<>) {
    let pods = Watch::new(vec![Api::namespaced(client, namespace)]).labels(PODS);
    cache::alone(pods)
}

impl Replicas {
    /// Requests the same path from all other replicas. Until the replicas are known, one counts as missing.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Answers<T> {
        let (mut all, mut missing) = (Vec::new(), u32::from(!self.pods.is_complete()));
        let other = |pod: &Pod| is_replica(pod.labels()) && pod.name_any() != self.replica;
        for pod in self.pods.filter(other) {
            let status = pod.status.as_ref();
            let running = status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
            let ip = status.and_then(|status| status.pod_ip.as_deref()?.parse().ok());
            let Some(ip) = ip.filter(|_| running) else {
                continue;
            };
            let asked = timeout(PATIENCE, self.connector.ask(ip, path)).await;
            match asked.unwrap_or(Err(AskError::Timeout)) {
                Ok(answer) => all.push(answer),
                Err(error) => {
                    missing += 1;
                    tracing::warn!(replica = pod.name_any(), path, %error, "graph data of a replica is unavailable");
                }
            }
        }
        Answers { all, missing }
    }

    /// Collects the called Services from other replicas periodically; never returns.
    pub(crate) async fn share_called(self, graphs: Arc<Graphs>) {
        let mut tick = interval(ASK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let answers = self.ask::<Words>("/graph?called").await;
            // If a replica did not respond, the previous list is kept.
            if answers.missing == 0 {
                graphs.called_elsewhere(&answers.all);
            }
        }
    }

    /// Returns the observations of the other replicas, followed by those of this replica.
    pub(crate) async fn parts(&self, graphs: &Graphs) -> Answers<Vec<Part>> {
        let mut answers = self.ask::<Vec<Part>>("/graph?parts").await;
        answers.all.push(graphs.parts());
        answers
    }

    /// Returns the graph as observed by all replicas; `None` if the data of any replica is missing.
    pub(crate) async fn whole(&self, graphs: &Graphs) -> Option<Snapshot> {
        let parts = self.parts(graphs).await;
        let delays = self.ask::<Vec<Delay>>("/graph?delays").await;
        let missing = parts.missing + delays.missing;
        if missing > 0 {
            tracing::debug!(
                missing,
                "graph data of other replicas is unavailable; the graph is not updated"
            );
            return None;
        }
        let snapshot = graphs.snapshot_of(&parts.all);
        Some(snapshot.with_delays(delays.all))
    }
}

impl Connector {
    async fn ask<T: DeserializeOwned>(&self, ip: IpAddr, path: &str) -> Result<T, AskError> {
        let address = SocketAddr::new(ip, self.port);
        let Some(tls) = &self.tls else {
            return ask(TcpStream::connect(address).await?, address, path).await;
        };
        let client = tls.borrow().clone().ok_or(AskError::NoIdentity)?;
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::from(ip);
        let stream = TlsConnector::from(client.config())
            .connect(name, socket)
            .await?;
        // The certificate of a resumed session may have expired.
        peer(stream.get_ref().1, SystemTime::now()).map_err(AskError::Peer)?;
        ask(stream, address, path).await
    }
}

async fn ask<T: DeserializeOwned>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: SocketAddr,
    path: &str,
) -> Result<T, AskError> {
    let io = TokioIo::new(io);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    // The task ends with the response, which also reports connection errors.
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(AskError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| AskError::Body(error.to_string()))?;
    Ok(serde_json::from_slice(&body.to_bytes())?)
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
