//! The pictures of docs/dashboard.md. They are drawn again by
//! `cargo test -p maglor-dashboard --test page -- --ignored pictures`.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use maglor_testkit::browser::Device;

use crate::fixture::Fixture;
use crate::{DESKTOP, PHONE, open};

/// Maximum size of a picture in bytes.
const LIMIT: usize = 450_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes docs/pictures; fonts differ between machines"]
async fn pictures_of_the_documentation() {
    let Some(fixture) = Fixture::start(8, 12).await else {
        return;
    };
    fixture.mesh.seconds.store(25, Ordering::Relaxed);
    fixture.has_history().await;
    let dark = Device {
        dark: true,
        ..DESKTOP
    };
    let pictures = [
        ("dashboard-overview", "#/?select=shop/reviews", DESKTOP),
        ("dashboard-service", "#/service/shop/reviews", DESKTOP),
        ("dashboard-dark", "#/", dark),
        ("dashboard-nodes", "#/?by=node", DESKTOP),
        ("dashboard-tap", "#/tap", DESKTOP),
        ("dashboard-receipts", "#/receipts", DESKTOP),
        ("dashboard-decisions", "#/decisions", DESKTOP),
        ("dashboard-phone", "#/", PHONE),
    ];
    for (name, view, device) in pictures {
        draw(&fixture, name, view, device).await;
    }
    drop(fixture);
    let crowded = Fixture::start(50, 500).await.unwrap();
    let small = Device {
        width: 960,
        height: 560,
        dark: false,
    };
    draw(&crowded, "dashboard-500-edges", "#/?select=shop/cart", small).await;
}

async fn draw(fixture: &Fixture, name: &str, view: &str, device: Device) {
    let page = fixture.page(device).await;
    open(&page, fixture, view).await;
    // Two frames later everything has been laid out and drawn.
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))",
    )
    .await;
    page.eventually("document.querySelectorAll('.chart').length === 0 || document.querySelector('.chart path.line[d]')").await;
    page.eventually(
        "!document.querySelector('.tap') || document.querySelectorAll('.tap tbody tr').length > 12",
    )
    .await;
    let picture = page.screenshot().await;
    page.close().await;
    assert!(picture.len() <= LIMIT, "{name}: {} bytes", picture.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    fs::write(folder.join(format!("{name}.png")), picture).unwrap();
}
