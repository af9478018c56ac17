//! Certificates by an external signer: the program with an API server in memory, and a signer beside it. The same with
//! a real API server is in `kubernetes_signer.rs`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Authority, Identity, KeyRequest, Live, SpiffeId, TrustBundle};
use maglor_testkit::{RawHttp1, RawResponse, TIMEOUT, eventually};
use maglor_xds::grpc_server::{CertifyRequest, CertifyResponse};
use serde_json::json;

use crate::support::fake_api::{Collection, FakeApi};
use crate::support::fixture::{CART, DOMAIN, WEB, domain};
use crate::support::grpc::{Connection, Status};
use crate::support::members::{Member, binary, certified, proxy};
use crate::support::process::{Controller, put};
use crate::support::signer::{SIGNER, base64, condition, is_waiting, sign, text};

const HOUR: Duration = Duration::from_secs(3600);

/// What the signer does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Deny,
    Issue,
}

fn secrets() -> Collection {
    Collection::new("api/v1", Some("maglor"), "secrets")
}

fn requests() -> Collection {
    let api = "apis/certificates.k8s.io/v1";
    Collection::new(api, None, "certificatesigningrequests")
}

/// A signer that looks at the API server often.
struct Signer {
    mode: Arc<Mutex<Mode>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Signer {
    fn start(api: &FakeApi, authority: Authority, ttl: Duration) -> Self {
        let (mode, stop) = (Arc::new(Mutex::new(Mode::Issue)), Arc::default());
        let (api, seen, ends) = (api.clone(), Arc::clone(&mode), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !AtomicBool::load(&ends, Ordering::SeqCst) {
                for (name, mut object) in api.list(&requests()) {
                    if !is_waiting(&object) {
                        continue;
                    }
                    let mode = *seen.lock().unwrap();
                    match mode {
                        Mode::Deny => {
                            let conditions = object["status"]["conditions"].as_array_mut();
                            conditions.unwrap().push(condition("Failed"));
                        }
                        Mode::Issue => {
                            let request = text(&object["spec"]["request"]);
                            let issued = sign(&authority, &request, ttl);
                            object["status"]["certificate"] = base64(&issued);
                        }
                    }
                    api.put(&requests(), &name, object);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            mode,
            stop,
            thread: Some(thread),
        }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// A controller with a signer.
struct Fixture {
    // Ended first.
    controller: Controller,
    signer: Signer,
    api: FakeApi,
    root: String,
    admin: u16,
    folder: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("log of the controller:\n{}", self.controller.log());
        }
    }
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it without roots, and puts them there once the controller has stated what is missing.
    async fn start(ttl: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let api = FakeApi::start();
        api.write_kubeconfig(&at("kubeconfig"));
        let tokens = at("tokens");
        put(&tokens, &format!("{CART} shop/cart\n{WEB} shop/web\n"));
        let authority = Authority::create(&domain(), SystemTime::now()).unwrap();
        let root = authority.certificate_pem();
        let signer = Signer::start(&api, authority, ttl);
        let arguments = [
            ["--listen", "127.0.0.1:0"],
            ["--admin", "127.0.0.1:0"],
            ["--replica", "one"],
            ["--signer", SIGNER],
            ["--tokens", tokens.to_str().unwrap()],
            ["--trust-domain", DOMAIN],
            ["--leaf-ttl", "1h"],
        ];
        let kubeconfig = at("kubeconfig");
        let variables = [("KUBECONFIG", kubeconfig.to_str().unwrap())];
        let ready = at("ready.json");
        let controller = Controller::spawn(&ready, arguments.as_flattened(), &variables);
        let mut fixture = Self {
            controller,
            signer,
            api,
            root,
            admin: 0,
            folder,
        };
        fixture.finds_admin();
        fixture.waits_for("Secret maglor/maglor-ca does not exist");
        fixture.put_roots("");
        fixture.waits_for("`ca.crt` of Secret maglor/maglor-ca: no certificate found");
        fixture.put_roots(&fixture.root);
        fixture.controller.serves(&ready).await;
        fixture
    }

    /// Waits until the admin port is open, which the log has.
    fn finds_admin(&mut self) {
        let log = &self.controller;
        self.admin = maglor_testkit::wait::until(TIMEOUT, "the admin port is open", || {
            let log = log.log();
            let line = log
                .lines()
                .find(|line| line.contains("admin server listening"))?;
            let (_, port) = line.trim_end().rsplit_once(':')?;
            port.trim_end_matches(')').parse().ok()
        });
    }

    /// Waits until the controller is not ready for this reason.
    fn waits_for(&self, why: &str) {
        eventually(TIMEOUT, why, || {
            let response = self.admin("/ready");
            assert_eq!(response.status, 503);
            response.text().contains(why)
        });
    }

    fn admin(&self, path: &str) -> RawResponse {
        RawHttp1::connect(([127, 0, 0, 1], self.admin).into()).get_local(path)
    }

    fn has_metric(&self, line: &str) {
        eventually(TIMEOUT, line, || {
            let metrics = self.admin("/metrics");
            metrics.text().lines().any(|one| one == line)
        });
    }

    fn put_roots(&self, roots: &str) {
        let secret = json!({"type": "Opaque", "data": {"ca.crt": base64(roots)}});
        self.api.put(&secrets(), "maglor-ca", secret);
    }

    fn bundle(&self) -> TrustBundle {
        TrustBundle::from_pem(self.root.as_bytes()).unwrap()
    }

    async fn ask(&self, der: Vec<u8>, token: &str) -> Result<CertifyResponse, Status> {
        let nameless = Live::nameless(self.bundle()).unwrap();
        let id = SpiffeId::workload(&domain(), "maglor", "maglor-controller").unwrap();
        let config = Client::new(&nameless, Expected::OneOf(vec![id]), &[b"h2"]).unwrap();
        let connection = Connection::open(&self.controller.listen, Some(config.config()));
        let request = CertifyRequest {
            certificate_signing_request: der.into(),
            token: token.to_owned(),
        };
        connection.await.unwrap().certify(&request).await
    }

    /// Asks as a proxy does, in two steps.
    async fn certified(&self, token: &str) -> Result<Identity, Status> {
        let key = KeyRequest::generate().unwrap();
        let response = self.ask(key.der().unwrap(), token).await?;
        assert!(response.chain.is_empty());
        let id = response.required_identity.parse().unwrap();
        let named = key.der_naming(&id, &[]).unwrap();
        let response = self.ask(named, token).await?;
        assert_eq!(response.required_identity, "");
        let chain = response.chain.iter().map(|one| one.to_vec());
        Ok(key.certified(chain).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_issues_and_no_key_is_in_the_cluster() {
    let fixture = Fixture::start(HOUR).await;
    let identity = fixture.certified(CART).await.unwrap();
    let expected = SpiffeId::workload(&domain(), "shop", "cart").unwrap();
    assert_eq!(identity.id(), &expected);
    let live = Live::new(identity, fixture.bundle()).unwrap();
    assert!(live.is_trusted(SystemTime::now()));

    // Names of another account, and of one that does not exist.
    for account in ["web", "admin"] {
        let id = SpiffeId::workload(&domain(), "shop", account).unwrap();
        let named = KeyRequest::generate().unwrap().der_naming(&id, &[]);
        let status = fixture.ask(named.unwrap(), CART).await.unwrap_err();
        assert_eq!(status.code, 3, "{}", status.message);
        assert!(status.message.contains(account), "{}", status.message);
    }
    let status = fixture.ask(Vec::new(), CART).await.unwrap_err();
    assert_eq!(status.code, 3, "{}", status.message);

    // No Secret but that of the roots, and nothing is left of requests.
    let all = fixture
        .api
        .list(&Collection::new("api/v1", None, "secrets"));
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(!all[0].1.to_string().contains("tls.key"));
    eventually(TIMEOUT, "requests are deleted", || {
        fixture.api.list(&requests()).is_empty()
    });
    let trust = fixture.controller.json("/trust").await;
    assert_eq!(trust["signer"], SIGNER, "{trust}");
    assert_eq!(trust["rotation"]["phase"], "steady", "{trust}");
    let metrics = fixture.admin("/metrics");
    let expiry = "maglor_controller_expiry_seconds{certificate=";
    for (certificate, is_known) in [("root", true), ("controller", true), ("authority", false)] {
        let line = format!("{expiry}\"{certificate}\"}}");
        assert_eq!(metrics.text().contains(&line), is_known, "{certificate}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_fails_is_quoted() {
    let fixture = Fixture::start(HOUR).await;
    fixture.signer.set(Mode::Deny);
    let status = fixture.certified(CART).await.unwrap_err();
    assert_eq!(status.code, 9, "{}", status.message);
    let expected = "signer `maglor.test/signer` failed: Policy: not for shops";
    assert_eq!(status.message, expected);
    fixture.has_metric("maglor_controller_certificates_total{result=\"signer\"} 1");
    fixture.signer.set(Mode::Issue);
    fixture.certified(CART).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_change_at_once_and_unusable_ones_not_at_all() {
    let fixture = Fixture::start(HOUR).await;
    let other = Authority::create(&domain(), SystemTime::now()).unwrap();
    let both = fixture.root.clone() + &other.certificate_pem();
    fixture.put_roots(&both);
    let controller = &fixture.controller;
    controller
        .until("both roots are trusted", "/trust", |trust| {
            trust["roots"] == 2
        })
        .await;
    fixture.has_metric("maglor_controller_authority_refused 0");
    fixture.put_roots("nonsense");
    controller
        .until("the roots are refused", "/trust", |trust| {
            trust["rotation"]["refused"].is_string() && trust["roots"] == 2
        })
        .await;
    fixture.has_metric("maglor_controller_authority_refused 1");
    fixture.api.delete(&secrets(), "maglor-ca");
    controller
        .until("a Secret that is missing is named", "/trust", |trust| {
            let refused = trust["rotation"]["refused"].as_str();
            refused.is_some_and(|why| why.contains("does not exist")) && trust["roots"] == 2
        })
        .await;
    fixture.certified(CART).await.unwrap();
    // A certificate that does not lead to the roots is not used.
    fixture.put_roots(&other.certificate_pem());
    controller
        .until("the new root alone is trusted", "/trust", |trust| {
            let error = trust["own_certificate_error"].as_str();
            trust["roots"] == 1 && error.is_some_and(|why| why.contains("does not verify"))
        })
        .await;
    let status = fixture.certified(WEB).await.unwrap_err();
    assert_eq!(status.code, 9, "{}", status.message);
    fixture.put_roots(&fixture.root);
    controller
        .until(
            "the controller has a certificate again",
            "/trust",
            |trust| trust["own_certificate_error"].is_null(),
        )
        .await;
    fixture.certified(WEB).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_names_itself_and_renews() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::start(Duration::from_secs(12)).await;
    put(&fixture.path("token"), CART);
    put(&fixture.path("trust.pem"), &fixture.root);
    let member = Member {
        account: "cart",
        token: &fixture.path("token"),
        roots: &fixture.path("trust.pem"),
        cache: &fixture.path("cache"),
        domain: DOMAIN,
        controller: &fixture.controller.listen,
    };
    let listener = "listeners:
- name: outbound
  address: 127.0.0.1:0
  http: {discovery: {namespace: shop, timeout: 10s}, virtual_hosts: []}
";
    let proxy = proxy(&binary, member.yaml() + listener, &[]);
    eventually(TIMEOUT, "the proxy has a certificate", || {
        certified(&proxy) >= 1.0
    });
    assert!(proxy.metric("maglor_identity_usable", &[]) >= 1.0);
    let renewed = Duration::from_secs(60);
    eventually(renewed, "the proxy renews it twice", || {
        certified(&proxy) >= 3.0
    });
    let failed = proxy.metric("maglor_identity_requests_total", &["result=\"failed\""]);
    assert!(failed < 1.0, "{failed}");
    // Only its first request had no name.
    fixture.has_metric("maglor_controller_certificates_total{result=\"unnamed\"} 1");
}
