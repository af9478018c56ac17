//! Proxies that become workloads of the mesh by the real controller over a folder: certificates that are
//! renewed and roots that are replaced under load, and starts while the controller is unavailable.
//!
//! Skipped with a message if the proxy is not built: `cargo build -p maglor-proxy`.

use std::time::{Duration, SystemTime};

use maglor_identity::Authority;
use maglor_identity::tls::{Client, Expected};
use maglor_testkit::{ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support;
use crate::support::fixture::{CART, Fixture, WEB, domain};
use crate::support::members::{Load, MESH, Mesh, binary, cart, certified, ready, web};
use crate::support::process::put;

#[tokio::test(flavor = "multi_thread")]
async fn proxies_become_members_by_their_tokens() {
    let Some(mesh) = Mesh::start("1h").await else {
        return;
    };
    mesh.reaches();
    assert_eq!(ready(&mesh.web), (200, "ready\n".to_owned()));
    let handshakes = mesh.cart.metric("maglor_mesh_handshakes_total", &[]);
    assert!(handshakes > 0.0, "the two have spoken mutual TLS");
    let seen = mesh.application.last();
    let client = seen.header("x-forwarded-client-cert").unwrap();
    assert!(
        client.contains("URI=spiffe://mesh.example/ns/shop/sa/web"),
        "{client}"
    );
    mesh.fixture
        .controller
        .until("both have said whom they trust", "/trust", |trust| {
            trust["clients"] == 2
                && trust["clients_behind"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
        })
        .await;
    // Keys stay in memory, or in the folder for the next start, readable only by their owner.
    let kept = mesh.fixture.path("cache-web/identity.pem");
    let mode = std::os::unix::fs::PermissionsExt::mode(&kept.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// The `token_file` is read again at each attempt.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_a_proxy_waits_and_says_why() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::start(MESH, "1h").await;
    put(&fixture.path("trust.pem"), &fixture.bundle().to_pem());
    let token = fixture.path("late-token");
    let proxy = ProxyBuilder::new(&binary)
        .config(web(&fixture, &token))
        .start();
    eventually(TIMEOUT, "the missing file is named", || {
        let (status, text) = ready(&proxy);
        status == 503 && text.contains("no identity yet") && text.contains("late-token")
    });
    put(&token, "token-of-no-workload");
    eventually(TIMEOUT, "the wrong token is named", || {
        ready(&proxy).1.contains("invalid token")
    });
    put(&token, WEB);
    eventually(TIMEOUT, "it is ready", || ready(&proxy).0 == 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_wait_for_the_first_certificate() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::start(MESH, "1h").await;
    put(&fixture.path("trust.pem"), &fixture.bundle().to_pem());
    let (token, application) = (fixture.path("late-token"), Upstream::start("cart"));
    let config = cart(&fixture, &token, &application);
    let proxy = ProxyBuilder::new(&binary).config(config).start();
    let web = fixture.member(WEB).await;
    let config = Client::new(&web, Expected::Member, &[b"http/1.1"])
        .unwrap()
        .config();
    let address = proxy.listener("inbound");
    let call = move || {
        RawHttp1::connect_tls(address, "cart", config)
            .get("/")
            .status
    };
    let client = std::thread::spawn(call);
    eventually(TIMEOUT, "the client is connected", || {
        proxy.metric("maglor_downstream_open_connections", &[]) > 0.0
    });
    assert!(!client.is_finished());
    put(&token, CART);
    assert_eq!(client.join().unwrap(), 200);
}

/// Certificates of ten seconds are renewed twice, and the root is replaced meanwhile, without errors.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_roots_are_replaced_under_load() {
    let Some(mesh) = Mesh::start("10s").await else {
        return;
    };
    mesh.reaches();
    let load = Load::start(mesh.web.listener("outbound"));
    let renewed = |more: f64| {
        let before = [&mesh.cart, &mesh.web].map(certified);
        eventually(
            Duration::from_secs(30),
            "both have new certificates",
            || {
                let now = [&mesh.cart, &mesh.web].map(certified);
                (0..2).all(|i| now[i] >= before[i] + more)
            },
        );
    };
    renewed(1.0);
    let old = mesh.fixture.bundle();
    let now = SystemTime::now();
    let next = Authority::create(&domain(), now).unwrap();
    let both = next.bundle().unwrap().union(&old).unwrap();
    let crossed = next.crossed_by(&mesh.fixture.authority, now).unwrap();
    mesh.fixture.rotate(&next, &both, Some(&crossed));
    mesh.fixture
        .controller
        .until("both trust both roots", "/trust", |trust| {
            trust["roots"] == 2
                && trust["clients_behind"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
        })
        .await;
    renewed(1.0);
    mesh.fixture.rotate(&next, &next.bundle().unwrap(), None);
    mesh.fixture
        .controller
        .until("the old root is gone", "/trust", |trust| {
            trust["roots"] == 1
                && trust["clients_behind"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
        })
        .await;
    let before = load.answered();
    eventually(TIMEOUT, "calls go on", || load.answered() > before + 200);
    let (answered, failed) = load.end();
    println!("{answered} calls, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(mesh.call(), 200);
}

fn both_are_certified_again(mesh: &Mesh) {
    let before = [&mesh.cart, &mesh.web].map(certified);
    eventually(Duration::from_secs(30), "both are certified again", || {
        [&mesh.cart, &mesh.web]
            .map(certified)
            .iter()
            .zip(before)
            .all(|(now, before)| *now > before)
    });
}

/// A program outside of the mesh writes another root, then a third one, then an invalid one; no call
/// fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_others_write_is_replaced_under_load() {
    let Some(mesh) = Mesh::start("10s").await else {
        return;
    };
    mesh.reaches();
    let load = Load::start(mesh.web.listener("outbound"));
    let controller = &mesh.fixture.controller;
    let roots = |file: &str| {
        let text = std::fs::read_to_string(mesh.fixture.path(file)).unwrap();
        text.matches("BEGIN CERTIFICATE").count()
    };
    let replace = || {
        let next = Authority::create(&domain(), SystemTime::now()).unwrap();
        mesh.fixture.rotate(&next, &next.bundle().unwrap(), None);
        next
    };
    let phase = |expected: &'static str| {
        move |trust: &serde_json::Value| trust["rotation"]["phase"] == expected
    };
    let second = replace();
    controller
        .until("the new root is announced", "/trust", |trust| {
            trust["roots"] == 2 && trust["rotation"]["phase"] == "announcing"
        })
        .await;
    // The next one comes before the first has signed.
    let third = replace();
    controller
        .until("the third root signs", "/trust", phase("retiring"))
        .await;
    eventually(
        Duration::from_secs(30),
        "all have certificates of the third root",
        || {
            let roots = ["cache-cart", "cache-web"].map(|folder| {
                std::fs::read_to_string(mesh.fixture.path(folder).join("roots.pem"))
                    .unwrap_or_default()
            });
            let third = third.certificate_pem();
            let body: String = third.lines().skip(1).take(2).collect();
            roots
                .iter()
                .all(|text| text.replace('\n', "").contains(&body))
        },
    );
    both_are_certified_again(&mesh);
    // A key that does not match the certificate: the current authority stays in use, and the error is reported.
    put(
        &mesh.fixture.path("ca/ca_key.pem"),
        &second.private_key_pem(),
    );
    controller
        .until("the broken one is refused", "/trust", |trust| {
            trust["rotation"]["refused"]
                .as_str()
                .is_some_and(|why| why.contains("key"))
        })
        .await;
    put(
        &mesh.fixture.path("ca/ca_key.pem"),
        &third.private_key_pem(),
    );
    controller
        .until(
            "the good one is back, and the oldest has retired",
            "/trust",
            |trust| {
                trust["rotation"]["refused"].is_null() && trust["rotation"]["phase"] == "steady"
            },
        )
        .await;
    assert_eq!(roots("ca/trust_bundle.pem"), 1);
    assert!(!mesh.fixture.path("ca/succession.json").exists());
    let before = load.answered();
    eventually(TIMEOUT, "calls go on", || load.answered() > before + 200);
    let (answered, failed) = load.end();
    println!("{answered} calls, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

/// The controller is killed while both roots are trusted; the next process restores the state.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_killed_goes_on_replacing_a_root() {
    let mut fixture = Fixture::start(MESH, "1h").await;
    let old = fixture.certified(CART).await;
    let next = Authority::create(&domain(), SystemTime::now()).unwrap();
    fixture.rotate(&next, &next.bundle().unwrap(), None);
    let announced = |trust: &serde_json::Value| trust["rotation"]["phase"] == "announcing";
    fixture
        .controller
        .until("the new root is announced", "/trust", announced)
        .await;
    let kept = fixture.path("ca/succession.json").metadata().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&kept.permissions());
    assert_eq!(mode & 0o777, 0o600, "it holds private keys");
    fixture.kill();
    fixture.start_again().await;
    fixture
        .controller
        .until(
            "both are trusted, and the new one signs",
            "/trust",
            |trust| trust["roots"] == 2 && trust["rotation"]["phase"] == "retiring",
        )
        .await;
    // An existing member is accepted, and one with only the old root can verify the controller.
    let live = maglor_identity::Live::new(old, fixture.bundle()).unwrap();
    let mut stream = support::grpc::Stream::open(fixture.connect(&live).await, "shop/cart-0").await;
    stream.want(maglor_xds::Kind::Bundle, &[maglor_xds::BUNDLE]);
    stream
        .until("the roots are published", |seen| !seen.is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_starts_without_its_controller_uses_its_cache() {
    let Some(mut mesh) = Mesh::start("1h").await else {
        return;
    };
    mesh.reaches();
    let kept = mesh.fixture.path("cache-web/resources");
    eventually(TIMEOUT, "what was learnt is kept", || kept.exists());
    mesh.fixture.kill();
    assert_eq!(mesh.call(), 200, "who runs goes on");
    // It starts again, without a server.
    mesh.restart_web();
    mesh.reaches();
    let (status, text) = ready(&mesh.web);
    assert!(
        status == 200 && text.contains("cached resources"),
        "{status} {text}"
    );
    assert_eq!(mesh.web.metric("maglor_xds_cached", &[]), 1.0);
    // The controller is available again: its resources apply.
    mesh.fixture.start_again().await;
    eventually(Duration::from_secs(30), "the controller answers", || {
        ready(&mesh.web) == (200, "ready\n".to_owned())
    });
    assert_eq!(mesh.call(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_kept_and_is_broken_is_passed_over() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::start(MESH, "1h").await;
    put(&fixture.path("trust.pem"), &fixture.bundle().to_pem());
    put(&fixture.path("web-token"), WEB);
    std::fs::create_dir(fixture.path("cache-web")).unwrap();
    for name in ["identity.pem", "roots.pem", "resources"] {
        put(&fixture.path("cache-web").join(name), "nonsense");
    }
    let proxy = ProxyBuilder::new(&binary)
        .config(web(&fixture, &fixture.path("web-token")))
        .start();
    eventually(TIMEOUT, "it is ready", || ready(&proxy).0 == 200);
    for name in ["identity.pem", "resources"] {
        assert!(proxy.stderr().contains(name), "{}", proxy.stderr());
    }
}
