//! Identities on a real API server: the authority's Secret, bundles in every namespace, real tokens of
//! service accounts, and a root that is replaced while the replica that writes is killed.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports
//! when it skips.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Authority, Identity, KeyRequest, Live, TrustBundle};
use maglor_testkit::cluster::Kubectl;
use maglor_xds::grpc_server::CertifyRequest;
use maglor_xds::{BUNDLE, Kind, decode};

use crate::support;
use crate::support::grpc::{Connection, Status, Stream};
use crate::support::process::Controller;

const LIMIT: Duration = Duration::from_secs(60);
const AUDIENCE: &str = "maglor.dev/identity";

const RESOURCES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-0, namespace: shop}
spec: {serviceAccountName: cart, containers: [{name: a, image: nowhere.invalid/none}]}
";

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{what} after {:?}", started.elapsed());
}

async fn replica(name: &str, kubectl: &Kubectl, folder: &Path) -> Controller {
    let kubeconfig = kubectl.kubeconfig().to_str().unwrap();
    let ready = folder.join(format!("{name}.json"));
    let arguments = [["--listen", "127.0.0.1:0"], ["--replica", name]];
    Controller::start_with(
        &ready,
        arguments.as_flattened(),
        &[("KUBECONFIG", kubeconfig)],
    )
    .await
}

/// A key of the Secret, PEM.
fn secret(kubectl: &Kubectl, key: &str) -> Option<String> {
    let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
    let text = kubectl.run(&["get", "secret", "maglor-ca", "-n", "maglor", "-o", &path]);
    let text = text.ok().filter(|text| !text.is_empty())?;
    let mut decode = std::process::Command::new("base64");
    let mut child = decode
        .arg("-d")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    Some(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
}

fn bundle(kubectl: &Kubectl) -> TrustBundle {
    TrustBundle::from_pem(secret(kubectl, "ca.crt").unwrap().as_bytes()).unwrap()
}

/// The trust bundle with which pods of a namespace start.
fn config_map(kubectl: &Kubectl, namespace: &str) -> Option<String> {
    let path = "jsonpath={.data.ca\\.pem}";
    let map = [
        "get",
        "configmap",
        "maglor-trust-bundle",
        "-n",
        namespace,
        "-o",
        path,
    ];
    kubectl.run(&map).ok()
}

fn token(kubectl: &Kubectl, arguments: &[&str]) -> String {
    let command = [&["create", "token", "-n", "shop", "cart"], arguments].concat();
    kubectl.run(&command).unwrap().trim().to_owned()
}

async fn connect(controller: &Controller, live: &Arc<Live>) -> Connection {
    let id = "spiffe://cluster.local/ns/maglor/sa/maglor-controller";
    let expected = Expected::OneOf(vec![id.parse().unwrap()]);
    let config = Client::new(live, expected, &[b"h2"]).unwrap().config();
    Connection::open(&controller.listen, Some(config))
        .await
        .unwrap()
}

async fn certify(
    controller: &Controller,
    bundle: TrustBundle,
    token: &str,
) -> Result<Identity, Status> {
    let key = KeyRequest::generate().unwrap();
    let request = CertifyRequest {
        certificate_signing_request: key.der().unwrap().into(),
        token: token.to_owned(),
    };
    let nameless = Live::nameless(bundle).unwrap();
    let response = connect(controller, &nameless)
        .await
        .certify(&request)
        .await?;
    Ok(key
        .certified(response.chain.iter().map(|one| one.to_vec()))
        .unwrap())
}

fn phase(trust: &serde_json::Value) -> &str {
    trust["rotation"]["phase"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn accounts_become_members_and_a_root_is_replaced() {
    let Some(cluster) = support::on_cluster::cluster("identity") else {
        return;
    };
    let kubectl = cluster.kubectl();
    let folder = tempfile::tempdir().unwrap();
    kubectl.run(&["create", "namespace", "maglor"]).unwrap();
    let first = replica("first", kubectl, folder.path()).await;
    let second = replica("second", kubectl, folder.path()).await;

    bundles_are_everywhere(kubectl);
    tokens_are_judged_by_the_api_server(kubectl, &second).await;

    a_root_is_replaced(kubectl, first, &second).await;
    a_root_that_others_write_is_replaced(kubectl, &second).await;
    drop(second);
    cluster.stop().unwrap();
}

/// While the replica that writes is killed, and a proxy at the other one does not answer.
async fn a_root_is_replaced(kubectl: &Kubectl, first: Controller, second: &Controller) {
    // A proxy at the replica that does not write, which does not answer yet.
    let own = token(kubectl, &["--audience", AUDIENCE]);
    let identity = certify(second, bundle(kubectl), &own).await.unwrap();
    let live = Live::new(identity, bundle(kubectl)).unwrap();
    let mut stream = Stream::open(connect(second, &live).await, "shop/cart-0").await;
    stream.want(Kind::Bundle, &[BUNDLE]);
    stream
        .until("the root is published", |seen| !seen.is_empty())
        .await;
    stream.hold();
    let old = bundle(kubectl);
    kubectl
        .run(&[
            "annotate",
            "secret",
            "-n",
            "maglor",
            "maglor-ca",
            "maglor.dev/rotate=1",
        ])
        .unwrap();
    second
        .until("the new root is announced", "/trust", |trust| {
            phase(trust) == "announcing" && trust["clients_behind"][0] == "shop/cart-0"
        })
        .await;
    first
        .until(
            "the replica that writes knows who is missing",
            "/trust",
            |trust| {
                trust["rotation"]["missing"]
                    .to_string()
                    .contains("shop/cart-0")
            },
        )
        .await;
    assert_eq!(bundle(kubectl).certificates().len(), 2);

    println!("killing the replica that writes");
    drop(first);
    stream
        .until("both roots are published", |seen| {
            let body = seen.values().next().cloned().flatten().unwrap();
            decode::bundle(BUNDLE, &body).unwrap().certificates().len() == 2
        })
        .await;
    until("the other replica writes", || {
        let lease = kubectl.json(&["get", "lease", "maglor-controller", "-n", "maglor"]);
        lease.unwrap()["spec"]["holderIdentity"] == "second"
    });
    let trust = second.json("/trust").await;
    assert_eq!(
        phase(&trust),
        "announcing",
        "it waits for the proxy: {trust}"
    );
    stream.answer();
    second
        .until("the new root signs", "/trust", |trust| {
            phase(trust) == "retiring"
        })
        .await;
    // A client with only the old root trusts certificates of the new one, and gets a certificate.
    let fresh = token(kubectl, &["--audience", AUDIENCE]);
    let identity = certify(second, old.clone(), &fresh).await.unwrap();
    let live = Live::new(identity, old).unwrap();
    assert!(live.is_trusted(SystemTime::now()));
    until("both roots are everywhere", || {
        config_map(kubectl, "shop").is_some_and(|text| text.matches("BEGIN").count() == 2)
    });
}

/// Writes a foreign authority into the Secret.
fn write_secret(kubectl: &Kubectl, data: &serde_json::Value) {
    let patch = serde_json::json!({
        "metadata": {"labels": null},
        "stringData": data,
        "data": {"chain.crt": null, "next.crt": null, "next.key": null},
    });
    let patch = patch.to_string();
    let secret = [
        "patch",
        "secret",
        "-n",
        "maglor",
        "maglor-ca",
        "--type=merge",
    ];
    kubectl
        .run(&[&secret[..], &["-p", &patch]].concat())
        .unwrap();
}

/// Like cert-manager, which does not track members.
async fn a_root_that_others_write_is_replaced(kubectl: &Kubectl, controller: &Controller) {
    let before = TrustBundle::from_pem(config_map(kubectl, "shop").unwrap().as_bytes()).unwrap();
    let own = token(kubectl, &["--audience", AUDIENCE]);
    let identity = certify(controller, before.clone(), &own).await.unwrap();
    let live = Live::new(identity, before.clone()).unwrap();
    let new = Authority::create(&"cluster.local".parse().unwrap(), SystemTime::now()).unwrap();
    let (certificate, key) = (new.certificate_pem(), new.private_key_pem());
    let data = serde_json::json!({"tls.crt": certificate, "tls.key": key, "ca.crt": certificate});
    write_secret(kubectl, &data);
    let roots = before.certificates().len() as u64 + 1;
    controller
        .until(
            "the new root is announced beside the others",
            "/trust",
            |trust| phase(trust) == "announcing" && trust["roots"] == roots,
        )
        .await;
    controller
        .until("the new root signs", "/trust", |trust| {
            phase(trust) == "retiring" && trust["roots"] == roots
        })
        .await;
    let kept = ["get", "secret", "-n", "maglor", "maglor-ca-in-force"];
    kubectl.run(&kept).unwrap();
    // An existing member is served, and one with the previous roots trusts certificates of the new one.
    let stream = Stream::open(connect(controller, &live).await, "shop/cart-0").await;
    let identity = certify(controller, before.clone(), &own).await.unwrap();
    assert!(
        Live::new(identity, before.clone())
            .unwrap()
            .is_trusted(SystemTime::now())
    );
    drop(stream);
    write_secret(kubectl, &serde_json::json!({"tls.key": "nonsense"}));
    controller
        .until("what cannot be used is refused", "/trust", |trust| {
            trust["rotation"]["refused"].is_string() && trust["roots"] == roots
        })
        .await;
    certify(controller, before, &own).await.unwrap();
    write_secret(kubectl, &serde_json::json!({"tls.key": key}));
    controller
        .until("and taken when it is right again", "/trust", |trust| {
            trust["rotation"]["refused"].is_null()
        })
        .await;
}

fn bundles_are_everywhere(kubectl: &Kubectl) {
    until("the authority is there", || {
        secret(kubectl, "ca.crt").is_some()
    });
    let root = secret(kubectl, "ca.crt").unwrap();
    let right = |namespace: &str| config_map(kubectl, namespace).as_deref() == Some(&*root);
    until("default has the roots", || right("default"));
    kubectl
        .apply(RESOURCES.split("---").next().unwrap())
        .unwrap();
    until("a new namespace has the roots", || right("shop"));
    let key = secret(kubectl, "tls.key");
    kubectl
        .run(&["delete", "secret", "maglor-ca", "-n", "maglor"])
        .unwrap();
    until("the authority is put back", || {
        secret(kubectl, "tls.key") == key
    });
    let delete = ["delete", "configmap", "maglor-trust-bundle", "-n", "shop"];
    kubectl.run(&delete).unwrap();
    until("what is deleted comes back", || right("shop"));
    let wrong = r#"{"data":{"ca.pem":"nonsense"}}"#;
    let patch = [
        "patch",
        "configmap",
        "maglor-trust-bundle",
        "-n",
        "shop",
        "-p",
        wrong,
    ];
    kubectl.run(&patch).unwrap();
    until("what is changed is put right", || right("shop"));
}

async fn tokens_are_judged_by_the_api_server(kubectl: &Kubectl, controller: &Controller) {
    until("the pod is there", || kubectl.apply(RESOURCES).is_ok());
    let bundle = bundle(kubectl);
    let good = token(kubectl, &["--audience", AUDIENCE]);
    let identity = certify(controller, bundle.clone(), &good).await.unwrap();
    assert_eq!(
        identity.id().as_str(),
        "spiffe://cluster.local/ns/shop/sa/cart"
    );
    let of_pod = [
        "--audience",
        AUDIENCE,
        "--bound-object-kind=Pod",
        "--bound-object-name=cart-0",
    ];
    let of_pod = token(kubectl, &of_pod);
    certify(controller, bundle.clone(), &of_pod).await.unwrap();
    kubectl
        .run(&[
            "delete",
            "pod",
            "cart-0",
            "-n",
            "shop",
            "--force",
            "--grace-period=0",
        ])
        .unwrap();
    let refused = async |token: &str| {
        let refused = certify(controller, bundle.clone(), token)
            .await
            .unwrap_err();
        (refused.code, refused.message)
    };
    // The API server remembers good tokens for ten seconds.
    let started = Instant::now();
    loop {
        match certify(controller, bundle.clone(), &of_pod).await {
            Err(status) => {
                assert_eq!(status.code, 16, "{}", status.message);
                break;
            }
            Ok(_) => assert!(
                started.elapsed() < LIMIT,
                "a pod that is gone gets no certificate"
            ),
        }
        // No more often than one workload is certified.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for wrong in [
        token(kubectl, &[]),
        token(kubectl, &["--audience", "another.audience"]),
        format!("{good}x"),
        "nonsense".to_owned(),
        String::new(),
    ] {
        assert_eq!(refused(&wrong).await.0, 16);
    }
}
