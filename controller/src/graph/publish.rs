//! The graph in Kubernetes: the replica that writes puts what all of them have heard into the status of the
//! `CommunicationGraph`, once a minute.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::parts::Part;
use super::{Graphs, Snapshot};
use crate::crd::{
    CommunicationGraph, CommunicationGraphSpec, CommunicationGraphStatus, GRAPH_NAME, GROUP,
    GraphEdge, VERSION,
};
use crate::lease::Term;
use crate::status::FIELD_MANAGER;

/// How often.
const PERIOD: Duration = Duration::from_secs(60);
/// How often it is looked whether it is time, or this replica writes now.
const LOOK: Duration = Duration::from_secs(5);
/// What pods of the controller are called by.
const REPLICAS: &str = "app.kubernetes.io/name=maglor-controller";
/// Their admin port.
const ADMIN_PORT: u16 = 15011;
/// Another replica answers at once, or is not asked on.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a replica's part at most: a hundred thousand edges of proxies.
const LONGEST: usize = 32 << 20;

/// Which replica this is, and where the others are.
#[derive(Clone)]
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) replica: String,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) graphs: Arc<Graphs>,
}

/// Why another replica's part could not be had.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("it cannot be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("its answer breaks off, or is longer than {LONGEST} bytes: {0}")]
    Body(String),
    #[error("its answer is no list of parts: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("it does not answer in time")]
    Timeout,
}

impl Publisher {
    /// Writes as long as the process lives, while this replica is the one that writes.
    pub(crate) async fn run(self) {
        let mut tick = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut written: Option<(i32, Instant)> = None;
        loop {
            tick.tick().await;
            let (term, now) = (*self.term.borrow(), Instant::now());
            let fresh = |(number, at): (i32, Instant)| number == term.number() && now - at < PERIOD;
            if !term.holds(now) || written.is_some_and(fresh) {
                continue;
            }
            match self.write().await {
                Ok(()) => written = Some((term.number(), now)),
                Err(error) => {
                    tracing::warn!(%error, "the communication graph cannot be written, it is tried again");
                }
            }
        }
    }

    async fn write(&self) -> Result<(), kube::Error> {
        let api: Api<CommunicationGraph> = Api::all(self.client.clone());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let spec = match api.get_opt(GRAPH_NAME).await? {
            Some(there) => there.spec,
            None => {
                let new = CommunicationGraph::new(GRAPH_NAME, CommunicationGraphSpec::default());
                api.patch(GRAPH_NAME, &params, &Patch::Apply(new))
                    .await?
                    .spec
            }
        };
        let (parts, missing) = self.others().await?;
        let mut snapshot = self.graphs.snapshot();
        if !parts.is_empty() {
            let mut all = parts;
            all.push(self.graphs.parts());
            snapshot = snapshot.with_parts(&all);
        }
        let status = status(&snapshot, spec.edges(), missing);
        let patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "CommunicationGraph",
            "metadata": {"name": GRAPH_NAME},
            "status": status,
        });
        let patch = Patch::Apply(patch);
        api.patch_status(GRAPH_NAME, &params, &patch).await?;
        Ok(())
    }

    /// What the other replicas have heard, and how many of them could not be asked.
    async fn others(&self) -> Result<(Vec<Vec<Part>>, u32), kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = pods.list(&ListParams::default().labels(REPLICAS)).await?;
        let (mut parts, mut missing) = (Vec::new(), 0);
        for pod in list
            .items
            .iter()
            .filter(|pod| pod.name_any() != self.replica)
        {
            let status = pod.status.as_ref();
            let running = status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
            let ip = status.and_then(|status| status.pod_ip.as_deref()?.parse().ok());
            let Some(ip) = ip.filter(|_| running) else {
                continue;
            };
            let asked = timeout(PATIENCE, ask(SocketAddr::new(ip, ADMIN_PORT))).await;
            match asked.unwrap_or(Err(AskError::Timeout)) {
                Ok(part) => parts.push(part),
                Err(error) => {
                    missing += 1;
                    tracing::warn!(replica = pod.name_any(), %error, "its part of the communication graph is missing");
                }
            }
        }
        Ok((parts, missing))
    }
}

async fn ask(admin: SocketAddr) -> Result<Vec<Part>, AskError> {
    let io = TokioIo::new(TcpStream::connect(admin).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    // Ends with the answer; what goes wrong on the way, the answer says.
    tokio::spawn(connection);
    let request = Request::get("/graph?parts")
        .header(header::HOST, admin.to_string())
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(AskError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| AskError::Body(error.to_string()))?;
    Ok(serde_json::from_slice(&body.to_bytes())?)
}

/// The busiest edges of a snapshot; numbers have three decimals, so that noise in the last ones writes nothing.
fn status(snapshot: &Snapshot, most: usize, missing: u32) -> CommunicationGraphStatus {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let mut edges: Vec<_> = snapshot.edges.iter().collect();
    edges.sort_by(|one, other| other.rps.total_cmp(&one.rps));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    CommunicationGraphStatus {
        observed_at: snapshot.at.clone(),
        window_seconds: snapshot.window_seconds,
        services: count(snapshot.services.len()),
        calls_per_second: rounded(edges.iter().map(|edge| edge.rps).sum()),
        edges_left_out: count(edges.len().saturating_sub(most)),
        replicas_missing: missing,
        edges: edges
            .into_iter()
            .take(most)
            .map(|edge| GraphEdge {
                from: edge.from.clone(),
                to: edge.to.clone(),
                calls_per_second: rounded(edge.rps),
                response_milliseconds: rounded(edge.latency_ms),
                failures_per_second: rounded(edge.failures),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::graph::Edge;

    #[test]
    fn a_status_has_the_busiest_edges() {
        let edge = |to: &str, rps| Edge {
            from: "a".to_owned(),
            to: to.to_owned(),
            rps,
            latency_ms: 1.23456,
            ..Edge::default()
        };
        let snapshot = Snapshot {
            edges: vec![edge("b", 1.0), edge("c", 3.00049), edge("d", 2.0)],
            ..Snapshot::default()
        };
        let status = status(&snapshot, 2, 1);
        let named: Vec<_> = status
            .edges
            .iter()
            .map(|edge| (&*edge.to, edge.calls_per_second))
            .collect();
        assert_eq!(named, [("c", 3.0), ("d", 2.0)]);
        assert_eq!((status.edges_left_out, status.replicas_missing), (1, 1));
        assert_eq!(
            (
                status.calls_per_second,
                status.edges[0].response_milliseconds
            ),
            (6.0, 1.235)
        );
        assert_eq!(CommunicationGraphSpec::default().edges(), 500);
    }

    /// Answers one request.
    fn replica(answer: &'static str) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let length = socket.read(&mut head).unwrap();
            assert!(head[..length].starts_with(b"GET /graph?parts HTTP/1.1\r\n"));
            write!(socket, "HTTP/1.1 {answer}").unwrap();
        });
        address
    }

    #[tokio::test]
    async fn another_replica_is_asked_for_its_part() {
        let body = "[{\"proxy\": \"shop/web-0\", \"age_seconds\": 1.5, \"taken\": false, \"from\": \"a\", \
                    \"to\": \"b\", \"rps\": 2.0, \"latency_ms\": 3.0, \"failures\": 0.0, \
                    \"bytes_per_second\": 0.0, \"in_flight\": 1.0}]";
        let good = format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let parts = ask(replica(good.leak())).await.unwrap();
        assert_eq!((&*parts[0].proxy, parts[0].edge.rps), ("shop/web-0", 2.0));
        let bad = ask(replica("503 Busy\r\ncontent-length: 0\r\n\r\n")).await;
        assert!(matches!(bad, Err(AskError::Status(_))));
        let odd = ask(replica("200 OK\r\ncontent-length: 2\r\n\r\n{}")).await;
        assert!(matches!(odd, Err(AskError::Answer(_))));
    }
}
