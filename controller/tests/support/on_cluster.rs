//! A controller on this host that serves a real API server's cluster, and clients of its webhook.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use maglor_testkit::cluster::{Cluster, Kubectl, Options};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::process::Controller;

/// The name that the webhook proves.
pub(crate) const NAME: &str = "maglor-controller.maglor.svc";
const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(60);

/// See the module's documentation.
pub(crate) struct OnCluster {
    // Ended before its cluster.
    pub(crate) controller: Controller,
    pub(crate) webhook: u16,
    /// Trusts the webhook.
    pub(crate) config: Arc<ClientConfig>,
    cluster: Cluster,
    _folder: tempfile::TempDir,
}

impl OnCluster {
    /// Starts both, and waits until a pod is admitted; `None`, with the printed reason, if that is not possible.
    pub(crate) async fn start(name: &str) -> Option<Self> {
        let cluster = cluster(name)?;
        let kubectl = cluster.kubectl();
        let folder = tempfile::tempdir().unwrap();
        kubectl.run(&["create", "namespace", "maglor"]).unwrap();
        let webhook = free_port();
        let listen = format!("127.0.0.1:{webhook}");
        let arguments = [
            "--listen",
            "127.0.0.1:0",
            "--replica",
            "one",
            "--webhook",
            &listen,
        ];
        let kubeconfig = [("KUBECONFIG", kubectl.kubeconfig().to_str().unwrap())];
        let ready = folder.path().join("ready.json");
        let controller = Controller::start_with(&ready, &arguments, &kubeconfig).await;
        let config = root(kubectl);
        assert!(admitted(webhook, &config).await);
        Some(Self {
            controller,
            webhook,
            config,
            cluster,
            _folder: folder,
        })
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    pub(crate) fn stop(self) {
        drop(self.controller);
        self.cluster.stop().unwrap();
    }
}

/// Starts a cluster of one node with the definitions of the mesh; `None`, with the printed reason, if that is not
/// possible.
pub(crate) fn cluster(name: &str) -> Option<Cluster> {
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return None;
    }
    let cluster = Cluster::start(Options {
        name: name.into(),
        nodes: 1,
        ..Options::default()
    });
    let cluster = cluster.unwrap();
    for (_, definition) in maglor_controller::crd::yaml().unwrap() {
        cluster.kubectl().apply(&definition).unwrap();
    }
    Some(cluster)
}

fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

/// The name by which the API server reaches the webhook.
fn root(kubectl: &Kubectl) -> Arc<ClientConfig> {
    let path = "jsonpath={.data.ca\\.crt}";
    let command = [
        "get",
        "secret",
        "maglor-webhook",
        "-n",
        "maglor",
        "-o",
        path,
    ];
    let started = Instant::now();
    let text = loop {
        match kubectl.run(&command) {
            Ok(text) if !text.is_empty() => break text,
            _ => assert!(started.elapsed() < LIMIT, "the webhook has a certificate"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let text: k8s_openapi::ByteString = serde_json::from_value(json!(text)).unwrap();
    maglor_testkit::certs::trusting(&text.0)
}

pub(crate) async fn tcp(from: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket
        .connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .await
}

pub(crate) async fn tls(
    from: IpAddr,
    port: u16,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(NAME).unwrap();
    let connector = TlsConnector::from(Arc::clone(config));
    connector.connect(name, tcp(from, port).await?).await
}

/// Whether a pod is admitted.
pub(crate) async fn admitted(port: u16, config: &Arc<ClientConfig>) -> bool {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "default", "name": "a", "operation": "CREATE", "object": pod}});
    let body = review.to_string();
    let head = format!(
        "POST /inject/namespace HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut tls = tls(API_SERVER, port, config).await.unwrap();
    tls.write_all((head + &body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer).await;
    answer.starts_with("HTTP/1.1 200") && answer.contains("\"allowed\":true")
}
