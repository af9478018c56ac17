//! The page in a real Chromium, served by the real service with a simulated mesh, whose numbers are the ground truth.
//!
//! Without a browser the tests skip themselves, and print that they do. `cargo xtask test` installs Chromium where it can.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod axe;
mod fixture;
mod pictures;
mod speed;

mod support;
mod tokens;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fixture::Fixture;
use maglor_controller::dashboard::page::{Source as _, View};
use maglor_testkit::browser::{Device, Page};
use serde_json::{Value, json};

/// A window of a laptop.
const DESKTOP: Device = Device {
    width: 1280,
    height: 800,
    dark: false,
};
/// The narrowest window in which the page must be usable.
const PHONE: Device = Device {
    width: 360,
    height: 740,
    dark: false,
};
/// The views of the page, by the fragment of their address.
const VIEWS: [&str; 10] = [
    "#/",
    "#/?by=node",
    "#/?form=table",
    "#/services",
    "#/service/shop/reviews",
    "#/tap",
    "#/why",
    "#/why/5e1c0f7a-2b64-4a0e-9d6e-5a4c1f0b7d21",
    "#/receipts",
    "#/decisions",
];

/// Whether the rows of a table have the rates and the success of the ground truth, in the three digits that are shown.
const TABLE_IS_TRUE: &str = "
    const parsed = (text) => parseFloat(text) * (/k/.test(text) ? 1000 : 1);
    const near = (text, value, unit = 1) => Math.abs(parsed(text) / unit - value) <= 0.006 * value + 1e-9;
    const rows = [...document.querySelector('table').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    return rows.length === truth.length && truth.every(({ from, to, rps, success, tcp }) => {
      const row = rows.find(([a, b]) => a === from && b === to);
      return row && (tcp || (near(row[2], rps) && near(row[3].replace('> ', ''), success, 100)));
    });";

/// Whether the graph has the edges of the ground truth, with the colour of their success, and wider lines for more calls.
const GRAPH_IS_TRUE: &str = "
    const paths = new Map([...document.querySelectorAll('path.edge[data-id]')].map((path) => [path.dataset.id, path]));
    const kind = ({ tcp, success }) => tcp ? 'tcp' : success >= 0.99 ? 'good' : success >= 0.95 ? 'degraded' : 'failing';
    const width = ({ from, to }) => Number(paths.get(`${from}>${to}`).getAttribute('stroke-width'));
    const calls = truth.filter(({ tcp }) => !tcp).sort((a, b) => a.rps - b.rps);
    return paths.size === truth.length
      && truth.every((edge) => paths.get(`${edge.from}>${edge.to}`)?.classList.contains(`is-${kind(edge)}`))
      && calls.every((edge, at) => at === 0 || width(edge) >= width(calls[at - 1]));";

fn truth(fixture: &Fixture) -> Value {
    let mesh = fixture.mesh.mesh(View::Service);
    let edges = mesh.edges.iter().map(|edge| {
        json!({"from": edge.from, "to": edge.to, "tcp": edge.tcp, "rps": edge.signals.rps,
            "success": edge.signals.success()})
    });
    edges.collect()
}

async fn shows(page: &Page, truth: &Value, check: &str) {
    page.eventually(&format!("((truth) => {{ {check} }})({truth})"))
        .await;
}

/// Waits until a view has been drawn.
async fn open(page: &Page, fixture: &Fixture, fragment: &str) {
    page.navigate(&fixture.url(fragment)).await;
    let drawn = "document.querySelector('main h1') && !document.querySelector('main .empty:not([hidden])') \
                 && document.getElementById('freshness').dataset.state !== 'connecting'";
    page.eventually(drawn).await;
}

fn assert_no_problems(page: &Page) {
    assert_eq!(page.problems(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_graph_is_the_ground_truth_while_traffic_changes() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/").await;
    for second in [0, 7, 31, 60] {
        fixture.mesh.seconds.store(second, Ordering::Relaxed);
        let truth = truth(&fixture);
        shows(&page, &truth, GRAPH_IS_TRUE).await;
        page.press("t").await;
        shows(&page, &truth, TABLE_IS_TRUE).await;
        page.press("t").await;
    }
    let boxes = page
        .evaluate("document.querySelectorAll('.node').length")
        .await;
    assert_eq!(boxes, 12);
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_has_its_share_of_mutual_tls() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    let edge = "shop/productpage>shop/ratings";
    open(&page, &fixture, &format!("#/?select={edge}")).await;
    let label = format!("document.querySelector('[data-label-of=\"{edge}\"]')");
    page.eventually(&format!(
        "{label}.textContent.endsWith('62.5 % mTLS') && {label}.querySelector('.lock').getAttribute('visibility') === 'hidden'"
    ))
    .await;
    page.eventually("document.querySelector('.details').textContent.includes('62.5 %')")
        .await;
    page.press("t").await;
    page.eventually("[...document.querySelectorAll('table td[data-label=\"Mutual TLS\"]')].some((cell) => cell.textContent === '62.5 %')")
        .await;
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_is_seen_within_3_seconds() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let graph = fixture.page(DESKTOP).await;
    open(&graph, &fixture, "#/?select=shop/productpage").await;
    let node = "document.querySelector('.node[data-id=\"shop/productpage\"]').textContent";
    graph
        .eventually(&format!("{node}.includes('3 replicas')"))
        .await;
    let service = fixture.page(DESKTOP).await;
    open(&service, &fixture, "#/service/shop/productpage").await;
    let endpoints = "document.querySelector('table').tBodies[0].rows.length";
    service.eventually(&format!("{endpoints} === 3")).await;

    let killed = Instant::now();
    fixture.mesh.killed.store(true, Ordering::Relaxed);
    graph
        .eventually(&format!("{node}.includes('2 replicas')"))
        .await;
    service.eventually(&format!("{endpoints} === 2")).await;
    let seen = killed.elapsed();
    assert!(seen <= Duration::from_secs(3), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_have_their_queues_side_by_side() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/service/shop/reviews").await;
    for second in [4, 6, 9] {
        fixture.mesh.seconds.store(second, Ordering::Relaxed);
        let details = fixture.mesh.details("shop/reviews").unwrap();
        let queues = details
            .endpoints
            .iter()
            .map(|endpoint| endpoint.signals.unwrap().in_flight);
        let truth: Value = queues.collect::<Vec<_>>().into();
        let check = "
            const bars = [...document.querySelectorAll('.queue')];
            const scale = (bar) => new DOMMatrix(getComputedStyle(bar.querySelector('i')).transform).a;
            return bars.length === truth.length && bars.every((bar, at) => Number(bar.querySelector('b').textContent) === truth[at])
              && bars.every((bar, at) => bars.every((other, to) => truth[at] <= truth[to] ? scale(bar) <= scale(other) : true));";
        shows(&page, &truth, check).await;
    }
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taps_are_live_filtered_and_paused() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/tap").await;
    let rows = "document.querySelectorAll('.tap tbody tr').length";
    page.eventually(&format!("{rows} >= 3")).await;
    page.press("p").await;
    let stopped = page.evaluate(rows).await;
    page.eventually("/^Paused · [1-9]/.test(document.querySelector('.toolbar p').textContent)")
        .await;
    assert_eq!(page.evaluate(rows).await, stopped);
    page.press("p").await;
    page.eventually(&format!("{rows} > {stopped}")).await;

    page.evaluate(
        "(() => { const field = document.querySelector('[name=status]'); field.value = '5xx'; \
                   field.dispatchEvent(new Event('input', { bubbles: true })); })()",
    )
    .await;
    let statuses = "[...document.querySelectorAll('.tap td[data-label=Status]')].map((cell) => cell.textContent)";
    page.eventually(&format!(
        "{statuses}.length >= 2 && {statuses}.every((status) => status === '503')"
    ))
    .await;
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_explained() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let [slow, failed] = support::stories();
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/why").await;
    let rows = "[...document.querySelectorAll('.tap tbody tr')].map((row) => row.textContent)";
    page.eventually(&format!("{rows}.length === 2")).await;
    // Newest first, with the cause in a sentence.
    page.eventually(&format!(
        "{rows}[0].includes('waiting for the first byte') && {rows}[1].includes('503 UF')"
    ))
    .await;
    // Filters are in the address. The other service neither sent nor got these requests.
    for (service, count) in [("shop/cart", 0), ("shop/reviews", 2)] {
        page.evaluate(&format!(
            "(() => {{ const field = document.querySelector('[name=service]'); field.value = '{service}'; \
             field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ))
        .await;
        page.eventually(&format!("{rows}.length === {count}")).await;
        page.eventually("location.hash.startsWith('#/why?service=shop')")
            .await;
    }
    page.evaluate("document.querySelector('.tap tbody a').focus()")
        .await;
    page.press("Enter").await;
    page.eventually("document.querySelector('.because').textContent.includes('10.0.2.1:8080')")
        .await;
    // The parts of the time are consecutive, and the bar has them in the same proportions.
    let parts = "[...document.querySelectorAll('.spent li')].map((part) => part.textContent)";
    let expected = [
        "queue of the cluster12 ms",
        "connecting6 ms",
        "first byte of the endpoint399 ms",
        "body of the response21 ms",
        "client reads1.5 ms",
    ];
    let truth: Value = expected.to_vec().into();
    let shown = page.evaluate(parts).await;
    assert_eq!(shown, truth);
    let widths = "
        const width = (part) => document.querySelector(`.pieces .part-${part}`).getBoundingClientRect().width;
        const ratio = width('endpoint') / width('body');
        return ratio > 15 && ratio < 22;";
    shows(&page, &slow, widths).await;
    // The queues of the candidates, the chosen one first.
    let queues =
        "[...document.querySelectorAll('.candidates tbody tr')].map((row) => row.textContent)";
    assert_eq!(
        page.evaluate(queues).await,
        json!(["10.0.2.1:8080chosen9", "10.0.2.3:80802"])
    );

    // Search from any view; both attempts are shown with their reasons.
    page.press("/").await;
    for letter in failed["id"].as_str().unwrap().chars() {
        page.press(&letter.to_string()).await;
    }
    page.press("Enter").await;
    page.eventually("document.querySelectorAll('.attempts > li').length === 2")
        .await;
    page.eventually(
        "document.querySelector('.attempts').textContent.includes('Connection refused')",
    )
    .await;
    assert_no_problems(&page);
    // A service shows its own.
    open(&page, &fixture, "#/service/shop/reviews").await;
    page.eventually(&format!("{rows}.length === 2")).await;
    // What is not kept is said.
    page.navigate(&fixture.url("#/why/unknown")).await;
    page.eventually("document.querySelector('.notice').textContent.includes('Nothing is kept')")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slider_shows_the_past_and_the_button_the_present() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    fixture.has_history(10).await;
    open(&page, &fixture, "#/").await;
    page.eventually("!document.getElementById('time').hidden")
        .await;
    // The numbers of the first sample, which are recorded before the traffic changes.
    let past = page.evaluate("fetch('api/v1/about').then((response) => response.json()).then(({ history }) => history.oldest)").await;
    let truth = truth(&fixture);
    fixture.mesh.seconds.store(40, Ordering::Relaxed);
    page.press("t").await;
    shows(&page, &self::truth(&fixture), TABLE_IS_TRUE).await;
    page.evaluate(&format!(
        "(() => {{ const slider = document.getElementById('slider'); slider.value = {past}; \
         slider.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    ))
    .await;
    page.eventually("document.getElementById('freshness').dataset.state === 'past'")
        .await;
    shows(&page, &truth, TABLE_IS_TRUE).await;
    page.press("l").await;
    page.eventually("document.getElementById('freshness').dataset.state === 'live'")
        .await;
    shows(&page, &self::truth(&fixture), TABLE_IS_TRUE).await;
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_reports_a_lost_server_and_reconnects() {
    let Some(mut fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/").await;
    fixture.stop();
    page.eventually("document.getElementById('freshness').dataset.state === 'lost'")
        .await;
    // What is known stays visible.
    page.eventually("document.querySelectorAll('.node').length === 12")
        .await;
    fixture.mesh.seconds.store(13, Ordering::Relaxed);
    fixture.restart().await;
    page.eventually("document.getElementById('freshness').dataset.state === 'live'")
        .await;
    shows(&page, &truth(&fixture), GRAPH_IS_TRUE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_reached_by_keys() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    open(&page, &fixture, "#/").await;
    page.press("/").await;
    page.eventually("document.activeElement.id === 'search'")
        .await;
    for letter in "check".chars() {
        page.press(&letter.to_string()).await;
    }
    page.eventually(
        "document.querySelector('[role=option]').textContent.includes('shop/checkout')",
    )
    .await;
    page.press("Enter").await;
    page.eventually("document.querySelector('.node.selected').dataset.id === 'shop/checkout'")
        .await;
    page.eventually("document.querySelector('.details h2').textContent === 'shop/checkout'")
        .await;

    page.evaluate("document.querySelector('.node[tabindex=\"0\"]').focus()")
        .await;
    page.press("ArrowLeft").await;
    let moved = "document.activeElement.classList.contains('node') && document.activeElement.dataset.id !== 'shop/checkout'";
    page.eventually(moved).await;
    let outline = "getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth";
    page.eventually(&format!("parseFloat({outline}) >= 2"))
        .await;
    page.press("Enter").await;
    page.eventually("location.hash.startsWith('#/service/shop/')")
        .await;
    for (key, title) in [
        ("1", "Communication graph"),
        ("2", "Services"),
        ("3", "Tap"),
        ("4", "Why"),
        ("5", "Receipts"),
        ("6", "Decisions"),
    ] {
        page.press(key).await;
        page.eventually(&format!(
            "document.querySelector('main h1').textContent === '{title}'"
        ))
        .await;
    }
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_view_scrolls_sideways_on_a_phone() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    fixture.has_history(10).await;
    let page = fixture.page(PHONE).await;
    for view in VIEWS {
        open(&page, &fixture, view).await;
        let width = page.evaluate("document.documentElement.scrollWidth").await;
        assert!(width.as_u64() <= Some(360), "{view}: {width}");
        // What the user can touch is inside, too, unless a part of the page scrolls by itself.
        let outside =
            "[...document.querySelectorAll('a, button, input, select')].filter((element) => {
            const { left, right, width } = element.getBoundingClientRect();
            return width && !element.closest('.scroll, .skip, svg') && (left < -1 || right > 361);
          }).map((element) => element.outerHTML)";
        assert_eq!(page.evaluate(outside).await, json!([]), "{view}");
    }
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_follow_the_system_and_the_switch() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let brightness = "(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number); return r + g + b; })()";
    let page = fixture
        .page(Device {
            dark: true,
            ..DESKTOP
        })
        .await;
    open(&page, &fixture, "#/").await;
    page.eventually(&format!("{brightness} < 120")).await;
    // Automatic, then light.
    page.evaluate("document.getElementById('scheme').click()")
        .await;
    page.eventually(&format!("{brightness} > 600")).await;
    // The choice outlives the page.
    open(&page, &fixture, "#/services").await;
    page.navigate("about:blank").await;
    open(&page, &fixture, "#/").await;
    page.eventually(&format!("{brightness} > 600")).await;
    assert_no_problems(&page);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_leaves_the_origin_and_the_page_is_small() {
    let Some(fixture) = Fixture::start(12, 18).await else {
        return;
    };
    let page = fixture.page(DESKTOP).await;
    for view in VIEWS {
        open(&page, &fixture, view).await;
    }
    let origin = fixture.url("");
    let round_trips = page.round_trips();
    for round_trip in &round_trips {
        assert!(
            round_trip.url.starts_with(&origin) || round_trip.url.starts_with("data:"),
            "{}",
            round_trip.url
        );
    }
    let files = round_trips
        .iter()
        .filter(|round_trip| !round_trip.url.contains("/api/"));
    let sizes =
        files.filter_map(|round_trip| Some((round_trip.url.clone(), round_trip.transferred?)));
    let total: u64 = sizes.clone().map(|(_, size)| size).sum();
    println!("transferred for the page: {total} bytes");
    assert!(
        (10_000..=100_000).contains(&total),
        "{total}: {:?}",
        sizes.collect::<Vec<_>>()
    );
    assert_no_problems(&page);
}
