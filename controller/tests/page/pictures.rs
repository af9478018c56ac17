//! The pictures of docs/dashboard.md. They are drawn again by
//! `cargo test -p maglor-controller --test page -- --ignored pictures`.

use std::fs;
use std::path::Path;

use maglor_testkit::browser::Device;

use crate::fixture::Fixture;
use crate::{DESKTOP, PHONE, open};

/// Maximum size of a picture in bytes.
const LIMIT: usize = 150_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes docs/pictures; fonts differ between machines"]
async fn pictures_of_the_documentation() {
    let Some(fixture) = Fixture::start(8, 12).await else {
        return;
    };
    let traffic = fixture.traffic();
    fixture.has_history(30).await;
    let dark = Device {
        dark: true,
        ..DESKTOP
    };
    let pictures = [
        ("dashboard-overview.png", "#/?select=shop/reviews", DESKTOP),
        ("dashboard-service.png", "#/service/shop/reviews", DESKTOP),
        (
            "dashboard-why.png",
            "#/why/5e1c0f7a-2b64-4a0e-9d6e-5a4c1f0b7d21",
            DESKTOP,
        ),
        ("dashboard-dark.png", "#/", dark),
        ("dashboard-phone.png", "#/", PHONE),
    ];
    for (name, view, device) in pictures {
        draw(&fixture, name, view, device).await;
    }
    traffic.abort();
    drop(fixture);
    let crowded = Fixture::start(50, 500).await.unwrap();
    let small = Device {
        width: 1440,
        height: 900,
        dark: false,
    };
    draw(
        &crowded,
        "dashboard-500-edges.webp",
        "#/?select=shop/cart",
        small,
    )
    .await;
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
        "document.querySelector('main h1').textContent !== 'Tap' || document.querySelectorAll('.tap tbody tr').length > 12",
    )
    .await;
    let format = name.rsplit('.').next().unwrap();
    let picture = page.screenshot(format).await;
    page.close().await;
    assert!(picture.len() <= LIMIT, "{name}: {} bytes", picture.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
    fs::write(folder.join(name), picture).unwrap();
}
