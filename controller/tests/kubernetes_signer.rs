//! Certificates by an external signer on a real API server, with exactly the rights that this needs: the test is the
//! signer. The failures of a signer are in `signer.rs`.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and says so
//! when it skips.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Authority, Identity, KeyRequest, Live, TrustBundle};
use maglor_testkit::cluster::Kubectl;
use maglor_testkit::eventually;
use maglor_xds::grpc_server::{CertifyRequest, CertifyResponse};
use serde_json::json;

use crate::support;
use crate::support::grpc::{Connection, Status};
use crate::support::members::{Member, binary, certified, proxy};
use crate::support::process::{Controller, put};
use crate::support::signer::{SIGNER, base64, is_waiting, sign, text};

const LIMIT: Duration = Duration::from_secs(120);
const DOMAIN: &str = "cluster.local";
/// Short, so that a proxy renews during the test.
const TTL: Duration = Duration::from_secs(15);

/// Of certificates.k8s.io what the chart grants with the value `signer`, and everything that has nothing to do with it.
const RIGHTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: maglor-controller, namespace: maglor}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maglor-controller}
rules:
- apiGroups: ['', apiextensions.k8s.io, apps, authentication.k8s.io, autoscaling, coordination.k8s.io,
    discovery.k8s.io, events.k8s.io, gateway.networking.k8s.io, maglor.dev, metrics.k8s.io, networking.istio.io,
    security.istio.io, telemetry.istio.io]
  resources: ['*']
  verbs: ['*']
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests]
  verbs: [create, delete, get]
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests/approval]
  verbs: [update]
- apiGroups: [certificates.k8s.io]
  resources: [signers]
  resourceNames: [maglor.test/signer]
  verbs: [approve]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maglor-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maglor-controller}
subjects: [{kind: ServiceAccount, name: maglor-controller, namespace: maglor}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop}
";

/// Signs approved requests until it is dropped.
struct Signer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Signer {
    fn start(kubectl: Kubectl, authority: Authority) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !AtomicBool::load(&ends, Ordering::SeqCst) {
                sign_waiting(&kubectl, &authority);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn sign_waiting(kubectl: &Kubectl, authority: &Authority) {
    let Ok(all) = kubectl.json(&["get", "certificatesigningrequests"]) else {
        return;
    };
    for object in all["items"].as_array().unwrap() {
        if !is_waiting(object) {
            continue;
        }
        let issued = sign(authority, &text(&object["spec"]["request"]), TTL);
        let patch = json!({"status": {"certificate": base64(&issued)}}).to_string();
        let name = object["metadata"]["name"].as_str().unwrap();
        let command = [
            "patch",
            "csr",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ];
        // It may have been deleted meanwhile.
        if let Err(error) = kubectl.run(&command) {
            println!("{name} not signed: {error}");
        }
    }
}

/// A kubeconfig with a token of the controller's account.
fn kubeconfig(kubectl: &Kubectl, folder: &Path) -> PathBuf {
    let token = ["create", "token", "-n", "maglor", "maglor-controller"];
    let token = kubectl.run(&token).unwrap();
    let view = ["config", "view", "--raw", "--minify"];
    let mut config = kubectl.json(&view).unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = folder.join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

async fn ask(
    controller: &Controller,
    roots: &TrustBundle,
    der: Vec<u8>,
    token: &str,
) -> Result<CertifyResponse, Status> {
    let nameless = Live::nameless(roots.clone()).unwrap();
    let id = format!("spiffe://{DOMAIN}/ns/maglor/sa/maglor-controller");
    let expected = Expected::OneOf(vec![id.parse().unwrap()]);
    let config = Client::new(&nameless, expected, &[b"h2"]).unwrap().config();
    let connection = Connection::open(&controller.listen, Some(config));
    let request = CertifyRequest {
        certificate_signing_request: der.into(),
        token: token.to_owned(),
    };
    connection.await.unwrap().certify(&request).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn a_signer_issues_with_the_rights_of_the_chart() {
    let Some(cluster) = support::on_cluster::cluster("signer") else {
        return;
    };
    let kubectl = cluster.kubectl();
    let folder = tempfile::tempdir().unwrap();
    kubectl.run(&["create", "namespace", "maglor"]).unwrap();
    kubectl.apply(RIGHTS).unwrap();
    let authority = Authority::create(&DOMAIN.parse().unwrap(), SystemTime::now()).unwrap();
    let root = authority.certificate_pem();
    put(&folder.path().join("ca.crt"), &root);
    let file = format!("--from-file={}", folder.path().join("ca.crt").display());
    let secret = [
        "create",
        "secret",
        "generic",
        "maglor-ca",
        "-n",
        "maglor",
        &file,
    ];
    kubectl.run(&secret).unwrap();
    let signer = Signer::start(kubectl.clone(), authority);

    let kubeconfig = kubeconfig(kubectl, folder.path());
    let arguments = [
        "--listen=127.0.0.1:0",
        "--replica=one",
        &format!("--signer={SIGNER}"),
    ];
    let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
    let ready = folder.path().join("ready.json");
    let controller = Controller::start_with(&ready, &arguments, &variables).await;
    let roots = TrustBundle::from_pem(root.as_bytes()).unwrap();
    let token = [
        "create",
        "token",
        "-n",
        "shop",
        "cart",
        "--audience",
        "maglor.dev/identity",
    ];
    let token = kubectl.run(&token).unwrap().trim().to_owned();

    names_are_required_and_verified(&controller, &roots, &token).await;
    a_proxy_renews(&controller, folder.path(), &root, &token);
    nothing_is_left(kubectl);
    let log = controller.log();
    let refused: Vec<_> = log
        .lines()
        .filter(|line| line.contains("orbidden"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    drop((controller, signer));
    cluster.stop().unwrap();
}

async fn names_are_required_and_verified(
    controller: &Controller,
    roots: &TrustBundle,
    token: &str,
) {
    let key = KeyRequest::generate().unwrap();
    let response = ask(controller, roots, key.der().unwrap(), token)
        .await
        .unwrap();
    let expected = format!("spiffe://{DOMAIN}/ns/shop/sa/cart");
    assert_eq!(response.required_identity, expected);
    let id = expected.parse().unwrap();
    let named = key.der_naming(&id, &[]).unwrap();
    let response = ask(controller, roots, named, token).await.unwrap();
    let chain = response.chain.iter().map(|one| one.to_vec());
    let identity: Identity = key.certified(chain).unwrap();
    assert_eq!(identity.id(), &id);
    let live = Live::new(identity, roots.clone()).unwrap();
    assert!(live.is_trusted(SystemTime::now()));
    let foreign = format!("spiffe://{DOMAIN}/ns/maglor/sa/maglor-controller");
    let foreign = key.der_naming(&foreign.parse().unwrap(), &[]).unwrap();
    let status = ask(controller, roots, foreign, token).await.unwrap_err();
    assert_eq!(status.code, 3, "{}", status.message);
}

fn a_proxy_renews(controller: &Controller, folder: &Path, root: &str, token: &str) {
    let Some(binary) = binary() else { return };
    put(&folder.join("token"), token);
    put(&folder.join("trust.pem"), root);
    let member = Member {
        account: "cart",
        token: &folder.join("token"),
        roots: &folder.join("trust.pem"),
        cache: &folder.join("cache"),
        domain: DOMAIN,
        controller: &controller.listen,
    };
    let listener = "listeners:
- name: outbound
  address: 127.0.0.1:0
  http: {discovery: {namespace: shop, timeout: 10s}, virtual_hosts: []}
";
    let proxy = proxy(&binary, member.yaml() + listener, &[]);
    eventually(LIMIT, "the proxy renews its certificate", || {
        certified(&proxy) >= 2.0
    });
}

/// No key of the root, no request, and the roots in every namespace.
fn nothing_is_left(kubectl: &Kubectl) {
    let secrets = kubectl.json(&["get", "secrets", "-A"]).unwrap();
    for secret in secrets["items"].as_array().unwrap() {
        let name = secret["metadata"]["name"].as_str().unwrap();
        let keys = secret["data"].as_object().cloned().unwrap_or_default();
        let keys: Vec<_> = keys.keys().map(String::as_str).collect();
        match name {
            "maglor-ca" => assert_eq!(keys, ["ca.crt"]),
            "maglor-ca-in-force" => panic!("a succession without an authority"),
            _ => {}
        }
    }
    let roots = ["get", "configmap", "maglor-trust-bundle", "-n", "shop"];
    eventually(LIMIT, "the roots are in the namespace", || {
        kubectl.run(&roots).is_ok()
    });
    eventually(LIMIT, "requests are deleted", || {
        let all = kubectl
            .json(&["get", "certificatesigningrequests"])
            .unwrap();
        let ours = all["items"].as_array().unwrap().iter();
        let mut ours = ours.filter(|one| one["spec"]["signerName"] == SIGNER);
        ours.next().is_none()
    });
}
