//! The API server: lists pods, and makes them ready or not.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use maglor_testkit::cluster::Kubectl;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::error::{Doing, Error, Result};

/// The port of the simulated pods.
pub(super) const PORT: u16 = 8080;

/// `kubectl proxy`, which serves plain HTTP and authenticates to the API server. It is killed when
/// this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    pub(crate) fn start(kubectl: &Kubectl) -> Result<Self> {
        let mut command: Command = kubectl.command();
        command.args(["proxy", "--port=0"]).stdout(Stdio::piped());
        let mut child = command.spawn().doing("start kubectl proxy")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let read = BufReader::new(out).read_line(&mut line);
            read.doing("read what kubectl proxy says")?;
        }
        // `Starting to serve on 127.0.0.1:41234`
        let address = line
            .split_whitespace()
            .last()
            .and_then(|one| one.parse().ok());
        match address {
            Some(address) => Ok(Self { child, address }),
            None => Err(Error::parse("what kubectl proxy says", line)),
        }
    }
}

/// A pod behind a Service.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Pod {
    pub(super) name: String,
    /// The address with the port of the application.
    pub(super) address: String,
}

/// The position of a pod in an EndpointSlice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    /// The name of the slice.
    pub(crate) slice: String,
    /// The index among its endpoints, from 0.
    pub(crate) at: usize,
}

/// Returns the pods of the namespace `scale` by their Services.
pub(super) fn pods(kubectl: &Kubectl) -> Result<BTreeMap<u32, Vec<Pod>>> {
    let failed = |error: maglor_testkit::cluster::ClusterError| Error::Command {
        command: "kubectl get pods".into(),
        detail: error.to_string(),
    };
    let list = kubectl
        .json(&["get", "pods", "--namespace=scale"])
        .map_err(failed)?;
    let mut pods: BTreeMap<u32, Vec<Pod>> = BTreeMap::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let service = text(&item["metadata"]["labels"]["app"]);
        let service = service.and_then(|name| name.strip_prefix('s')?.parse().ok());
        let pod = text(&item["metadata"]["name"]).zip(text(&item["status"]["podIP"]));
        let Some((service, (name, address))) = service.zip(pod) else {
            return Err(Error::parse(
                "a simulated pod",
                item["metadata"].to_string(),
            ));
        };
        let address = format!("{address}:{PORT}");
        pods.entry(service).or_default().push(Pod { name, address });
    }
    Ok(pods)
}

/// A connection to the API server.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(crate) async fn open(server: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(server).await;
        let socket = socket.doing("connect to kubectl proxy")?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket))
            .await
            .map_err(spoke)?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// Sets whether a pod is ready, like a kubelet.
    pub(super) async fn set_ready(&mut self, pod: &str, ready: bool) -> Result<()> {
        let status = if ready { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let path = format!("/api/v1/namespaces/scale/pods/{pod}/status");
        self.patch(&path, "strategic-merge-patch", &patch).await
    }

    /// Sets whether an endpoint is ready, like Kubernetes' own controller.
    pub(crate) async fn set_in_slice(&mut self, place: &Place, ready: bool) -> Result<()> {
        let Place { slice, at } = place;
        let patch = json!([
            {"op": "add", "path": format!("/endpoints/{at}/conditions/ready"), "value": ready},
        ]);
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/scale/endpointslices/{slice}");
        self.patch(&path, "json-patch", &patch).await
    }

    /// Removes the selector of a Service: from now on only the measurement changes its slices.
    pub(crate) async fn take_selector(&mut self, service: u32) -> Result<()> {
        let patch = json!({"spec": {"selector": null}});
        let path = format!("/api/v1/namespaces/scale/services/s{service}");
        self.patch(&path, "merge-patch", &patch).await
    }

    /// Returns a token of the namespace's default account, for a pod of it.
    pub(crate) async fn token(
        &mut self,
        namespace: &str,
        pod: &str,
        audience: &str,
    ) -> Result<String> {
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod});
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [audience], "boundObjectRef": bound},
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
        let request = hyper::Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json");
        let response = self.send(request, body.to_string()).await?;
        let body = response.into_body().collect().await.map_err(spoke)?;
        let answer: Value = serde_json::from_slice(&body.to_bytes())
            .map_err(|error| Error::protocol(format!("a token: {error}")))?;
        let token = answer["status"]["token"].as_str();
        token
            .map(ToOwned::to_owned)
            .ok_or_else(|| Error::parse("a token", answer["status"].to_string()))
    }

    /// Requests a path, and returns the streamed body.
    pub(super) async fn get(&mut self, path: &str) -> Result<Incoming> {
        let request = hyper::Request::get(path).header("host", "localhost");
        let response = self.send(request, String::new()).await?;
        Ok(response.into_body())
    }

    async fn patch(&mut self, path: &str, form: &str, patch: &Value) -> Result<()> {
        let request = hyper::Request::patch(path)
            .header("host", "localhost")
            .header("content-type", format!("application/{form}+json"));
        let response = self.send(request, patch.to_string()).await?;
        let body = response.into_body().collect().await;
        body.map(drop).map_err(spoke)
    }

    async fn send(
        &mut self,
        request: hyper::http::request::Builder,
        body: String,
    ) -> Result<hyper::Response<Incoming>> {
        let request = request.body(Full::from(body));
        let request = request.map_err(Error::protocol)?;
        let path = request.uri().to_string();
        self.sender.ready().await.map_err(spoke)?;
        let response = self.sender.send_request(request).await.map_err(spoke)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.into_body().collect().await.map_err(spoke)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Err(Error::Protocol(format!("{path}: {status}: {text}")))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn spoke(error: hyper::Error) -> Error {
    Error::Protocol(format!("API server: {error}"))
}
