//! Executes the runbooks about authorities in docs/runbooks.md, with real processes and a folder of resources.
//!
//! Skipped with a message if the proxy is not built: `cargo build -p maglor-proxy`.

use std::time::{Duration, Instant, SystemTime};

use maglor_identity::Authority;
use maglor_testkit::eventually;

use crate::support::fixture::domain;
use crate::support::members::{Load, Mesh, certified, ready};
use crate::support::process::put;

/// Everything is back so long after the roots are where proxies read them.
const BACK: Duration = Duration::from_secs(30);

fn another() -> Authority {
    Authority::create(&domain(), SystemTime::now()).unwrap()
}

/// Until both members have new certificates, and new connections between them succeed.
fn both_are_certified_anew(mesh: &Mesh, before: [f64; 2]) {
    let began = Instant::now();
    eventually(BACK, "both have certificates of the authority", || {
        let now = [&mesh.cart, &mesh.web].map(certified);
        let good = [&mesh.cart, &mesh.web].map(|proxy| ready(proxy).0 == 200);
        (0..2).all(|at| now[at] > before[at] && good[at]) && (0..6).all(|_| mesh.call() == 200)
    });
    println!("back after {:.1} s", began.elapsed().as_secs_f64());
}

/// No replica and no backup are left: the controller starts with another authority, and the platform replaces
/// the file of roots. Certificates that have not expired are refused all the same: their authority is not trusted any
/// more.
#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_lost() {
    let Some(mut mesh) = Mesh::start("24h").await else {
        return;
    };
    mesh.reaches();
    let before = [&mesh.cart, &mesh.web].map(certified);
    mesh.fixture.kill();
    let next = another();
    let roots = next.bundle().unwrap();
    mesh.fixture.rotate(&next, &roots, None);
    // The stored state is lost, too.
    let _ = std::fs::remove_file(mesh.fixture.path("ca/succession.json"));
    mesh.fixture.start_again().await;
    put(&mesh.fixture.path("trust.pem"), &roots.to_pem());
    both_are_certified_anew(&mesh, before);
}

/// A root was replaced after the backup that is restored: both are trusted, and no call fails.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_authority_is_restored() {
    let Some(mesh) = Mesh::start("10s").await else {
        return;
    };
    mesh.reaches();
    let load = Load::with_pauses(mesh.web.listener("outbound"), Duration::from_millis(10));
    let (old, newer) = (mesh.fixture.bundle(), another());
    for (authority, roots) in [
        (&newer, newer.bundle().unwrap()),
        (&mesh.fixture.authority, old),
    ] {
        let before = [&mesh.cart, &mesh.web].map(certified);
        mesh.fixture.rotate(authority, &roots, None);
        mesh.fixture
            .controller
            .until("the written authority signs", "/trust", |trust| {
                trust["rotation"]["phase"] == "retiring"
            })
            .await;
        both_are_certified_anew(&mesh, before);
        mesh.fixture
            .controller
            .until("only its root is left", "/trust", |trust| {
                trust["rotation"]["phase"] == "steady" && trust["roots"] == 1
            })
            .await;
    }
    let (answered, failed) = load.end();
    assert!(failed.is_empty(), "{failed:?}");
    println!("{answered} calls, none failed");
}
