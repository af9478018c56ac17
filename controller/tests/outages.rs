//! Control planes and nodes that were unavailable, and clocks that were wrong, for longer than certificates are valid:
//! calls between members continue while their identities are valid, and everything recovers soon after, without a
//! restart.
//!
//! Days are jumps of the clock (`support/clock.rs`). Skipped with a message if the proxy is not built:
//! `cargo build -p maglor-proxy`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use maglor_identity::Authority;
use maglor_testkit::{Proxy, TIMEOUT, eventually};

use crate::support::clock::Clock;
use crate::support::fixture::domain;
use crate::support::members::{Load, Mesh, certified, ready};
use crate::support::process::put;

/// Everything is back after this long at the latest.
const BACK: Duration = Duration::from_secs(30);
/// More than are made by one connection between members: the last one meets identities of now.
const CALLS: usize = 6;
/// Days of an outage, in which certificates of a day have expired.
const DAYS: i64 = 3;

fn expires(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_identity_expiry_seconds", &[])
}

fn is_usable(proxy: &Proxy) -> bool {
    proxy.metric("maglor_identity_usable", &[]) == 1.0
}

fn is_connected(proxy: &Proxy) -> bool {
    proxy.metric("maglor_xds_connected", &[]) == 1.0
}

/// Waits until both members are certified, ready and connected, and a new connection reaches `cart`.
fn is_back(mesh: &Mesh, what: &str) {
    let began = Instant::now();
    eventually(BACK, what, || {
        let all = [&mesh.cart, &mesh.web];
        let good = |proxy: &Proxy| is_usable(proxy) && is_connected(proxy) && ready(proxy).0 == 200;
        all.into_iter().all(good) && (0..CALLS).all(|_| mesh.call() == 200)
    });
    println!("{what}: back after {:.1} s", began.elapsed().as_secs_f64());
}

/// Both members report that their identities have expired, and the one that accepts only members is not ready.
fn have_expired(mesh: &Mesh) {
    eventually(
        BACK,
        "the proxies say that their identities have expired",
        || {
            let (cart, web) = (ready(&mesh.cart), ready(&mesh.web));
            let says = |text: &str| text.contains("the certificate expired at");
            let shown = !is_usable(&mesh.cart) && !is_usable(&mesh.web);
            cart.0 == 503 && web.0 == 200 && says(&cart.1) && says(&web.1) && shown
        },
    );
}

fn calls_go_on(mesh: &Mesh) {
    let answers: Vec<_> = (0..CALLS).map(|_| mesh.call()).collect();
    assert_eq!(answers, [200; CALLS]);
}

/// A control plane that is unavailable for longer than the lifetime of certificates, with real clocks: 10 s and 16 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_returns_after_certificates_have_expired() {
    let Some(mut mesh) = Mesh::start("10s").await else {
        return;
    };
    mesh.reaches();
    let load = Load::start(mesh.web.listener("outbound"));
    mesh.fixture.kill();
    // Until the first of them ends.
    let end = expires(&mesh.cart).min(expires(&mesh.web));
    let lives = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs_f64() < end - 0.5
    };
    eventually(BACK, "the first certificate is about to expire", || {
        !lives()
    });
    let (answered, failed) = load.end();
    assert!(failed.is_empty(), "{failed:?}");
    println!("{answered} calls while identities lived, none failed");
    have_expired(&mesh);
    mesh.fixture.start_again().await;
    is_back(&mesh, "a new serving certificate");
    calls_go_on(&mesh);
}

/// A mesh whose processes share one clock, or use one for the controller and one for the proxies.
struct Clocked {
    mesh: Mesh,
    controller: Clock,
    node: Clock,
}

impl Clocked {
    async fn start() -> Option<Self> {
        let (controller, node) = (Clock::new(), Clock::new());
        let (ours, theirs) = (controller.environment(), node.environment());
        let mesh = Mesh::start_with("24h", ours, theirs).await?;
        mesh.reaches();
        Some(Self {
            mesh,
            controller,
            node,
        })
    }

    fn pass(&self, days: i64) {
        self.controller.set_days(days);
        self.node.set_days(days);
    }
}

/// Nodes that were suspended for days, the controller's among them: no timer has noticed.
#[tokio::test(flavor = "multi_thread")]
async fn all_machines_were_suspended() {
    let Some(all) = Clocked::start().await else {
        return;
    };
    let before = [&all.mesh.cart, &all.mesh.web].map(certified);
    all.pass(DAYS);
    eventually(BACK, "both have new certificates", || {
        let now = [&all.mesh.cart, &all.mesh.web].map(certified);
        (0..2).all(|at| now[at] > before[at])
    });
    is_back(&all.mesh, "all machines suspended for days");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_returns_after_days() {
    let Some(mut all) = Clocked::start().await else {
        return;
    };
    all.mesh.fixture.kill();
    calls_go_on(&all.mesh);
    all.pass(DAYS);
    have_expired(&all.mesh);
    all.mesh.fixture.start_again().await;
    is_back(&all.mesh, "the controller after days");
}

/// The root was replaced meanwhile; the platform has replaced the file of roots.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_returns_after_days_with_another_root() {
    let Some(mut all) = Clocked::start().await else {
        return;
    };
    all.mesh.fixture.kill();
    all.pass(DAYS);
    have_expired(&all.mesh);
    let next = Authority::create(&domain(), SystemTime::now()).unwrap();
    let bundle = next.bundle().unwrap();
    all.mesh.fixture.rotate(&next, &bundle, None);
    put(&all.mesh.fixture.path("trust.pem"), &bundle.to_pem());
    all.mesh.fixture.start_again().await;
    is_back(&all.mesh, "another root");
}

/// Everything lost power for days.
#[tokio::test(flavor = "multi_thread")]
async fn proxies_start_again_before_their_controller_does() {
    let Some(mut all) = Clocked::start().await else {
        return;
    };
    all.mesh.fixture.kill();
    all.pass(DAYS);
    all.mesh.restart_cart();
    all.mesh.restart_web();
    eventually(
        TIMEOUT,
        "the proxies say that they have no identity",
        || {
            let (status, text) = ready(&all.mesh.web);
            status == 503 && text.contains("no identity yet")
        },
    );
    all.mesh.fixture.start_again().await;
    is_back(&all.mesh, "proxies first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_starts_again_before_its_proxies_do() {
    let Some(mut all) = Clocked::start().await else {
        return;
    };
    all.mesh.fixture.kill();
    all.pass(DAYS);
    all.mesh.fixture.start_again().await;
    all.mesh.restart_cart();
    all.mesh.restart_web();
    is_back(&all.mesh, "the controller first");
}

/// The clock of a node is set back by days: its members continue calling each other, and still reach a controller
/// whose certificate is newer than their clock.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_node_is_set_back() {
    let Some(mut all) = Clocked::start().await else {
        return;
    };
    let load = Load::start(all.mesh.web.listener("outbound"));
    all.node.set_days(-DAYS);
    all.mesh.fixture.kill();
    all.mesh.fixture.start_again().await;
    is_back(&all.mesh, "a clock that is behind");
    all.node.set_days(0);
    is_back(&all.mesh, "a clock that is right again");
    let (answered, failed) = load.end();
    assert!(failed.is_empty(), "{failed:?}");
    println!("{answered} calls, none failed");
}

/// A clock ahead of time is indistinguishable from an outage: identities have expired. They are back with the clock.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_node_is_set_forward() {
    let Some(all) = Clocked::start().await else {
        return;
    };
    all.node.set_days(DAYS);
    have_expired(&all.mesh);
    all.node.set_days(0);
    is_back(&all.mesh, "a clock that is right again");
}

/// A controller whose clock is wrong for a while takes nothing from its members.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_the_controller_jumps() {
    let Some(all) = Clocked::start().await else {
        return;
    };
    let load = Load::start(all.mesh.web.listener("outbound"));
    for days in [DAYS, -DAYS] {
        all.controller.set_days(days);
        let made = |log: &str| log.matches("controller certificate loaded").count();
        let before = made(&all.mesh.fixture.controller.log());
        eventually(BACK, "the controller notices", || {
            made(&all.mesh.fixture.controller.log()) > before
        });
        calls_go_on(&all.mesh);
    }
    all.controller.set_days(0);
    is_back(&all.mesh, "a controller whose clock is right again");
    let (answered, failed) = load.end();
    assert!(failed.is_empty(), "{failed:?}");
    println!("{answered} calls, none failed");
}
