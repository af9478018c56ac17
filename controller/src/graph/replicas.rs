//! The other replicas of the controller, asked at their admin ports for what they have heard.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::delays::Delay;
use super::parts::Part;
use super::{Graphs, Snapshot};

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
pub(crate) struct Replicas {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// This one.
    pub(crate) replica: String,
}

/// What others have answered.
pub(crate) struct Answers<T> {
    pub(crate) all: Vec<T>,
    /// How many could not be asked.
    pub(crate) missing: u32,
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
    #[error("its answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("it does not answer in time")]
    Timeout,
}

impl Replicas {
    /// Asks all others for the same path of their admin servers.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Answers<T>, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = pods.list(&ListParams::default().labels(REPLICAS)).await?;
        let (mut all, mut missing) = (Vec::new(), 0);
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
            let asked = timeout(PATIENCE, ask(SocketAddr::new(ip, ADMIN_PORT), path)).await;
            match asked.unwrap_or(Err(AskError::Timeout)) {
                Ok(answer) => all.push(answer),
                Err(error) => {
                    missing += 1;
                    tracing::warn!(replica = pod.name_any(), path, %error, "its part is missing");
                }
            }
        }
        Ok(Answers { all, missing })
    }

    /// What the others have heard, and, last, this one.
    pub(crate) async fn parts(&self, graphs: &Graphs) -> Result<Answers<Vec<Part>>, kube::Error> {
        let mut answers = self.ask::<Vec<Part>>("/graph?parts").await?;
        answers.all.push(graphs.parts());
        Ok(answers)
    }

    /// The graph as all replicas have heard it; none while one does not say what it has.
    pub(crate) async fn whole(&self, graphs: &Graphs) -> Result<Option<Snapshot>, kube::Error> {
        let parts = self.parts(graphs).await?;
        let delays = self.ask::<Vec<Delay>>("/graph?delays").await?;
        let missing = parts.missing + delays.missing;
        if missing > 0 {
            tracing::debug!(missing, "what other replicas have heard is not known");
            return Ok(None);
        }
        let snapshot = graphs.snapshot().with_parts(&parts.all);
        Ok(Some(snapshot.with_delays(delays.all)))
    }
}

async fn ask<T: DeserializeOwned>(admin: SocketAddr, path: &str) -> Result<T, AskError> {
    let io = TokioIo::new(TcpStream::connect(admin).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    // Ends with the answer; what goes wrong on the way, the answer says.
    tokio::spawn(connection);
    let request = Request::get(path)
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

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
        let ask = |address| ask::<Vec<Part>>(address, "/graph?parts");
        let good = format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let parts = ask(replica(good.leak())).await.unwrap();
        assert_eq!((&*parts[0].proxy, parts[0].edge.rps), ("shop/web-0", 2.0));
        let bad = ask(replica("503 Busy\r\ncontent-length: 0\r\n\r\n")).await;
        assert!(matches!(bad, Err(AskError::Status(_))));
        let odd = ask(replica("200 OK\r\ncontent-length: 2\r\n\r\n{}")).await;
        assert!(matches!(odd, Err(AskError::Answer(_))));
    }
}
