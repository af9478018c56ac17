//! A controller on a real API server, while one source attacks all of its ports: admission answers, and the Lease is kept.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and says so when it skips.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maglor_cluster::{Cluster, Kubectl, Options};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use support::process::Controller;

const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const QUESTIONS: usize = 200;
/// The aim on an idle machine is 200 ms.
const LIMIT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

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
            _ => assert!(
                started.elapsed() < PATIENCE,
                "the webhook has a certificate"
            ),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let text: k8s_openapi::ByteString = serde_json::from_value(json!(text)).unwrap();
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&text.0) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

async fn tcp(from: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket
        .connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .await
}

async fn tls(
    from: IpAddr,
    port: u16,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("maglor-controller.maglor.svc").unwrap();
    let connector = TlsConnector::from(Arc::clone(config));
    connector.connect(name, tcp(from, port).await?).await
}

/// Whether a pod is admitted.
async fn admitted(port: u16, config: &Arc<ClientConfig>) -> bool {
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

/// Attacks a port until `stop`: silent connections, and handshakes or requests without pause.
fn attack(port: u16, config: Option<&Arc<ClientConfig>>, stop: &Arc<AtomicBool>) {
    for _ in 0..4 {
        let (config, stop) = (config.cloned(), Arc::clone(stop));
        tokio::spawn(async move {
            let mut silent = std::collections::VecDeque::new();
            while !stop.load(Ordering::SeqCst) {
                silent.extend(tcp(ATTACKER, port).await.ok());
                if silent.len() > 100 {
                    silent.pop_front();
                }
                match &config {
                    Some(config) => drop(timeout(LIMIT, tls(ATTACKER, port, config)).await),
                    None => {
                        let Ok(mut socket) = tcp(ATTACKER, port).await else {
                            continue;
                        };
                        let _ = socket
                            .write_all(
                                b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
                            )
                            .await;
                        let _ = timeout(LIMIT, socket.read_to_end(&mut Vec::new())).await;
                    }
                }
            }
        });
    }
}

fn lease(kubectl: &Kubectl) -> serde_json::Value {
    let found = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
    found.unwrap()["spec"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn admission_answers_and_the_lease_is_kept_while_all_ports_are_attacked() {
    if !Cluster::is_possible(|line| println!("{line}")).unwrap() {
        return;
    }
    let options = Options {
        name: "attacks".into(),
        nodes: 1,
        ..Options::default()
    };
    let cluster = Cluster::start(options).unwrap();
    let kubectl = cluster.kubectl();
    let folder = tempfile::tempdir().unwrap();
    for (_, definition) in maglor_controller::crd::yaml().unwrap() {
        kubectl.apply(&definition).unwrap();
    }
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
    let before = (lease(kubectl), controller.memory());
    let (_, discovery) = controller.listen.rsplit_once(':').unwrap();
    let stop = Arc::default();
    attack(webhook, Some(&config), &stop);
    attack(discovery.parse().unwrap(), Some(&config), &stop);
    attack(controller.admin_port(), None, &stop);
    let mut took = Vec::new();
    let begun = Instant::now();
    // Longer than a term.
    while took.len() < QUESTIONS || begun.elapsed() < Duration::from_secs(30) {
        let asked = Instant::now();
        assert!(
            timeout(5 * LIMIT, admitted(webhook, &config))
                .await
                .unwrap()
        );
        took.push(asked.elapsed());
    }
    let after = (lease(kubectl), controller.memory());
    stop.store(true, Ordering::SeqCst);
    took.sort_unstable();
    let p99 = took[took.len() * 99 / 100 - 1];
    println!(
        "{} admissions, p50 {:?}, p99 {p99:?}; {} MB, {} MB before",
        took.len(),
        took[took.len() / 2],
        after.1 >> 20,
        before.1 >> 20
    );
    assert!(p99 < LIMIT, "{p99:?}");
    assert_eq!(after.0["holderIdentity"], "one");
    assert_eq!(after.0["leaseTransitions"], before.0["leaseTransitions"]);
    assert_ne!(after.0["renewTime"], before.0["renewTime"]);
    let log = controller.log();
    assert_eq!(
        log.matches("this replica writes").count(),
        1,
        "the term never ended"
    );
    assert_eq!(log.matches("the lease cannot be renewed").count(), 0);
    drop(controller);
    cluster.stop().unwrap();
}
