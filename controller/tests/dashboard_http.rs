//! The page and its API over real sockets: where requests may come from, who may send them, what they get.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "page/support.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maglor_controller::dashboard::page::{Access, Dashboard, Denied, Review, Reviewer};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use support::Simulated;

const LIMIT: Duration = Duration::from_secs(20);
const LOCAL: &str = "127.0.0.1:15014";
/// An address of another host.
const FAR: &str = "10.1.2.3:4000";

struct Tokens;

impl Reviewer for Tokens {
    fn review(&self, token: &str) -> Review {
        let result = match token {
            "operator" => Ok(()),
            "other" => Err(Denied::Forbidden),
            _ => Err(Denied::Invalid),
        };
        Box::pin(async move { result })
    }
}

fn dashboard(mesh: &Arc<Simulated>, access: Access) -> Dashboard {
    Dashboard::new(Arc::<Simulated>::clone(mesh), access)
}

/// Serves one request that comes from an address; returns the head in lower case, and the body.
async fn request_from(dashboard: &Dashboard, peer: &str, request: &str) -> (String, Vec<u8>) {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let (peer, local): (SocketAddr, SocketAddr) = (
        peer.parse().unwrap(),
        match peer == LOCAL {
            true => LOCAL.parse().unwrap(),
            false => "10.1.2.4:15015".parse().unwrap(),
        },
    );
    let served = tokio::spawn(dashboard.clone().serve(far, peer, local));
    near.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let read = tokio::time::timeout(LIMIT, near.read_to_end(&mut response));
    read.await.expect("the connection closes").unwrap();
    served.await.unwrap();
    let end = response
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let body = response.split_off(end + 4);
    (String::from_utf8(response).unwrap().to_lowercase(), body)
}

async fn get(dashboard: &Dashboard, path: &str, fields: &str) -> (String, Vec<u8>) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost:15014\r\nconnection: close\r\n{fields}\r\n"
    );
    request_from(dashboard, LOCAL, &request).await
}

fn status(head: &str) -> u16 {
    head.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[tokio::test]
async fn the_page_is_isolated_compressed_and_cached() {
    let dashboard = dashboard(&Simulated::new(3, 2), Access::default());
    let (head, body) = get(&dashboard, "/", "accept-encoding: br, gzip\r\n").await;
    assert_eq!(status(&head), 200, "{head}");
    for field in [
        "content-encoding: gzip",
        "content-type: text/html",
        "x-content-type-options: nosniff",
        "x-frame-options: deny",
        "referrer-policy: no-referrer",
        "default-src 'none'",
        "frame-ancestors 'none'",
        "cache-control: no-cache",
        "vary: accept-encoding",
    ] {
        assert!(head.contains(field), "{field}: {head}");
    }
    assert!(!head.contains("unsafe-inline"), "{head}");
    assert_eq!(body[..2], [0x1f, 0x8b]);
    let (plain, text) = get(&dashboard, "/index.html", "accept-encoding: gzip;q=0\r\n").await;
    assert!(
        !plain.contains("content-encoding") && text.starts_with(b"<!"),
        "{plain}"
    );
    let tag = plain
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let (head, body) = get(&dashboard, "/", &format!("if-none-match: \"x\", {tag}\r\n")).await;
    assert_eq!((status(&head), body.len()), (304, 0), "{head}");
    let (head, _) = get(&dashboard, "/none.js", "").await;
    assert_eq!(status(&head), 404);
    let request = "HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (head, body) = request_from(&dashboard, LOCAL, request).await;
    assert_eq!((status(&head), body.len()), (200, 0));
    assert!(
        head.contains(&format!("content-length: {}", text.len())),
        "{head}"
    );
}

#[tokio::test]
async fn requests_that_another_website_caused_are_rejected() {
    let access = Access {
        host_names: vec!["mesh.example".to_owned()],
        reviewer: None,
    };
    let dashboard = dashboard(&Simulated::new(3, 2), access);
    for (head, expected) in [
        ("host: localhost:8484", 200),
        ("host: 127.0.0.1:8484", 200),
        ("host: [::1]:8484", 200),
        ("host: Mesh.Example:8484", 200),
        (
            "host: localhost\r\norigin: http://localhost\r\nsec-fetch-site: same-origin",
            200,
        ),
        ("host: evil.example", 403),
        ("host: 10.0.0.1", 403),
        ("host: localhost.evil.example", 403),
        ("host: localhost@evil.example", 403),
        ("host: localhost\r\nhost: localhost", 400),
        ("x-host: localhost", 400),
        ("host: localhost\r\norigin: http://evil.example", 403),
        ("host: localhost\r\norigin: null", 403),
        ("host: localhost\r\nsec-fetch-site: cross-site", 403),
        ("host: localhost\r\nsec-fetch-site: same-site", 403),
    ] {
        for path in ["/", "/api/v1/mesh"] {
            let request = format!("GET {path} HTTP/1.1\r\n{head}\r\nconnection: close\r\n\r\n");
            let (answer, _) = request_from(&dashboard, LOCAL, &request).await;
            assert_eq!(status(&answer), expected, "{path} {head}: {answer}");
            assert!(!answer.contains("access-control-allow"), "{answer}");
        }
    }
}

#[tokio::test]
async fn the_network_needs_a_token() {
    let mesh = Simulated::new(3, 2);
    let closed = dashboard(&mesh, Access::default());
    let access = Access {
        host_names: Vec::new(),
        reviewer: Some(Arc::new(Tokens)),
    };
    let open = dashboard(&mesh, access);
    let get_far = async |dashboard: &Dashboard, path: &str, fields: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: 10.1.2.4:15015\r\nconnection: close\r\n{fields}\r\n"
        );
        request_from(dashboard, FAR, &request).await.0
    };
    assert_eq!(
        status(
            &get_far(
                &closed,
                "/api/v1/mesh",
                "authorization: Bearer operator\r\n"
            )
            .await
        ),
        403
    );
    // The files contain no data.
    assert_eq!(status(&get_far(&open, "/", "").await), 200);
    for (fields, expected) in [
        ("", 401),
        ("authorization: Bearer operator\r\n", 200),
        ("authorization: Bearer other\r\n", 403),
        ("authorization: Bearer wrong\r\n", 401),
        ("authorization: Bearer \r\n", 401),
        ("authorization: Basic operator\r\n", 401),
    ] {
        for path in [
            "about",
            "mesh",
            "receipts",
            "decisions",
            "series",
            "service?name=shop/details",
        ] {
            let head = get_far(&open, &format!("/api/v1/{path}"), fields).await;
            assert_eq!(status(&head), expected, "{path} {fields}: {head}");
            assert_eq!(
                expected == 401,
                head.contains("www-authenticate: bearer"),
                "{head}"
            );
        }
    }
    // A token in a URL would be in logs.
    assert_eq!(
        status(&get_far(&open, "/api/v1/mesh?token=operator", "").await),
        401
    );
}

#[tokio::test]
async fn only_bounded_get_requests_are_accepted() {
    let dashboard = dashboard(&Simulated::new(3, 2), Access::default());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request = format!(
            "{method} /api/v1/mesh HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        );
        let (head, _) = request_from(&dashboard, LOCAL, &request).await;
        assert_eq!(status(&head), 405, "{method}: {head}");
        assert!(head.contains("allow: get, head"), "{head}");
    }
    let (head, _) = get(&dashboard, "/api/v1/mesh", "content-length: 5\r\n").await;
    assert_eq!(status(&head), 413, "{head}");
    let (head, _) = get(
        &dashboard,
        &format!("/api/v1/mesh?view={}", "x".repeat(40_000)),
        "",
    )
    .await;
    assert!(matches!(status(&head), 414 | 431), "{head}");
    for (path, expected) in [
        ("mesh?view=pods", 400),
        ("mesh?at=yesterday", 400),
        ("mesh?colour=red", 400),
        ("mesh?view=node&at=1", 400),
        ("service", 400),
        ("service?name=shop/none", 404),
        ("series?points=0", 400),
        ("series?from=10&to=5", 400),
        ("series?edge=a", 400),
        ("tap", 503),
        ("none", 404),
        ("../etc/passwd", 404),
    ] {
        let (head, body) = get(&dashboard, &format!("/api/v1/{path}"), "").await;
        assert_eq!(status(&head), expected, "{path}: {head}");
        assert!(
            json(&body)["error"]
                .as_str()
                .is_some_and(|why| why.len() > 8),
            "{path}"
        );
    }
}

#[tokio::test]
async fn documents_have_what_the_source_has_and_leave_out_what_it_lacks() {
    let mesh = Simulated::new(8, 12);
    let dashboard = dashboard(&mesh, Access::default());
    let (head, body) = get(&dashboard, "/api/v1/mesh", "").await;
    let graph = json(&body);
    assert_eq!(graph["edges"].as_object().unwrap().len(), 12);
    let edge = &graph["edges"]["shop/productpage>shop/details"];
    let rps = edge["rps"].as_f64().unwrap();
    assert!((rps / mesh.signals(0).rps - 1.0).abs() < 0.001, "{edge}");
    assert!(edge["path"].as_str().unwrap().starts_with('M'), "{edge}");
    assert!(
        edge.get("ejected").is_none() && edge.get("split").is_none(),
        "{edge}"
    );
    assert_eq!(graph["vertices"]["shop/productpage"]["ready"], 3);
    let tag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap();
    let (head, _) = get(
        &dashboard,
        "/api/v1/mesh",
        &format!("if-none-match: {tag}\r\n"),
    )
    .await;
    assert_eq!(status(&head), 304, "{head}");
    let (_, body) = get(&dashboard, "/api/v1/service?name=shop%2Freviews", "").await;
    let service = json(&body);
    assert_eq!(
        service["endpoints"].as_array().unwrap().len(),
        3,
        "{service}"
    );
    assert!(
        service["callers"]
            .as_object()
            .unwrap()
            .contains_key("shop/productpage"),
        "{service}"
    );
    let (_, body) = get(&dashboard, "/api/v1/mesh?view=node", "").await;
    assert_eq!(json(&body)["edges"]["node-0>node-1"]["delay_ms"], 0.2);
    let (head, _) = get(&dashboard, "/api/v1/mesh?at=5", "").await;
    assert_eq!(status(&head), 404, "there is no history yet");
}

/// A stream of events from a socket.
struct Events {
    tcp: TcpStream,
    held: String,
}

impl Events {
    async fn open(address: SocketAddr, path: &str) -> Self {
        Self::open_with(address, path, "").await
    }

    async fn open_with(address: SocketAddr, path: &str, fields: &str) -> Self {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /api/v1/{path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{fields}\r\n"
        );
        tcp.write_all(request.as_bytes()).await.unwrap();
        Self {
            tcp,
            held: String::new(),
        }
    }

    /// Returns the kind and the data of the next event.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some(begin) = self.held.find("event: ")
                && let Some(length) = self.held[begin..].find("\n\n")
            {
                let event = self.held[begin..begin + length].to_owned();
                self.held.drain(..begin + length);
                let (kind, data) = event.split_once('\n').unwrap();
                // A chunk of HTTP/1.1 ends within no event here, since each event is a frame.
                let data = data.strip_prefix("data: ").unwrap();
                return (
                    kind["event: ".len()..].to_owned(),
                    serde_json::from_str(data).unwrap(),
                );
            }
            let mut buffer = vec![0; 1 << 16];
            let read = tokio::time::timeout(LIMIT, self.tcp.read(&mut buffer));
            let count = read.await.expect("an event comes in time").unwrap();
            assert!(count > 0, "the stream has ended: {}", self.held);
            self.held
                .push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
    }
}

async fn served(mesh: &Arc<Simulated>) -> SocketAddr {
    let dashboard = dashboard(mesh, Access::default());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(dashboard.clone().serve_socket(socket));
    tokio::spawn(async move { dashboard.run().await });
    address
}

#[tokio::test]
async fn patches_lead_to_the_present_graph_and_a_killed_replica_is_seen() {
    let mesh = Simulated::new(8, 12);
    let address = served(&mesh).await;
    let mut events = Events::open(address, "mesh?view=service").await;
    let (kind, mut graph) = events.next().await;
    assert_eq!(kind, "snapshot");
    mesh.seconds.fetch_add(7, Ordering::Relaxed);
    mesh.killed.store(true, Ordering::Relaxed);
    let begun = std::time::Instant::now();
    while graph["vertices"]["shop/productpage"]["ready"] != 2 {
        let (kind, patch) = events.next().await;
        assert_eq!(kind, "patch");
        let path = &patch["edges"]["shop/productpage>shop/details"]["path"];
        assert!(
            path.is_null(),
            "positions stay while numbers change: {patch}"
        );
        json_patch::merge(&mut graph, &patch);
        assert!(begun.elapsed() < Duration::from_secs(3), "{graph}");
    }
    let rps = graph["edges"]["shop/productpage>shop/details"]["rps"]
        .as_f64()
        .unwrap();
    assert!((rps / mesh.signals(0).rps - 1.0).abs() < 0.001, "{rps}");
    assert!(
        mesh.watched.load(Ordering::Relaxed),
        "the source has been notified of the viewer"
    );
}

#[tokio::test]
async fn a_slow_viewer_gets_the_newest_document_and_no_backlog() {
    let mesh = Simulated::new(50, 500);
    let address = served(&mesh).await;
    // Buffers of the kernel and of the server are smaller than the documents of this time.
    let mut slow = Events::open(address, "mesh").await;
    let mut quick = Events::open(address, "mesh").await;
    let (_, mut graph) = quick.next().await;
    for _ in 0..4 {
        mesh.seconds.fetch_add(1, Ordering::Relaxed);
        let (_, patch) = quick.next().await;
        json_patch::merge(&mut graph, &patch);
    }
    let newest = graph["at"].as_f64().unwrap();
    let (_, mut late) = slow.next().await;
    let mut count = 0;
    while late["at"].as_f64().unwrap() < newest {
        let (_, patch) = slow.next().await;
        json_patch::merge(&mut late, &patch);
        count += 1;
    }
    assert!(count <= 5, "{count}");
}

#[tokio::test]
async fn streams_are_bounded() {
    let mesh = Simulated::new(2, 1);
    let address = served(&mesh).await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut events = Events::open(address, "receipts").await;
        assert_eq!(events.next().await.0, "snapshot");
        streams.push(events);
    }
    let refused = async || {
        let mut events = Events::open(address, "mesh").await;
        let mut head = [0; 12];
        events.tcp.read_exact(&mut head).await.unwrap();
        head == *b"HTTP/1.1 429"
    };
    assert!(refused().await);
    streams.truncate(10);
    // A closed connection is noticed at the next event.
    let begun = std::time::Instant::now();
    while refused().await {
        assert!(begun.elapsed() < LIMIT);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn viewers_use_admin_ports_with_their_own_permissions() {
    let mesh = Simulated::new(3, 2);
    let proxy = support::tapped_proxy().await;
    *mesh.taps.lock().unwrap() = vec![("shop/details-0".to_owned(), proxy)];
    mesh.personal.store(true, Ordering::Relaxed);
    let dashboard = dashboard(&mesh, Access::default());
    let operator = "authorization: Bearer operator\r\n";
    // Everything else needs no token over loopback.
    for (fields, required) in [("", true), (operator, false)] {
        let (head, body) = get(&dashboard, "/api/v1/about", fields).await;
        assert_eq!(status(&head), 200);
        let tap = &json(&body)["tap"];
        assert_eq!(
            (&tap["available"], &tap["token_required"]),
            (&true.into(), &required.into())
        );
    }
    for (fields, expected) in [
        ("", 401),
        ("authorization: Bearer wrong\r\n", 401),
        ("authorization: Bearer other\r\n", 403),
    ] {
        for path in ["tap", "why"] {
            let fields = format!("accept: text/event-stream\r\n{fields}");
            let (head, body) = get(&dashboard, &format!("/api/v1/{path}"), &fields).await;
            assert_eq!(status(&head), expected, "{path} {fields}: {head}");
            let error = json(&body)["error"].as_str().unwrap().to_owned();
            assert_eq!(
                expected == 403,
                error.contains("pods/portforward"),
                "{error}"
            );
        }
    }
    let (head, body) = get(&dashboard, "/api/v1/why", operator).await;
    assert_eq!(status(&head), 200);
    assert_eq!(json(&body)["stories"].as_array().unwrap().len(), 2);
    let address = served(&mesh).await;
    let mut events = Events::open_with(address, "tap", operator).await;
    let first = events.next().await;
    assert_eq!(
        (&*first.0, &first.1["state"]),
        ("proxy", &"connected".into())
    );
    assert_eq!(events.next().await.0, "request");
}

#[tokio::test]
async fn live_requests_of_proxies_are_shown() {
    let mesh = Simulated::new(3, 2);
    let address = served(&mesh).await;
    let proxy = support::tapped_proxy().await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    *mesh.taps.lock().unwrap() = vec![("a".to_owned(), proxy), ("b".to_owned(), gone)];
    let mut events = Events::open(address, "tap?rate=5&status=5xx").await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(events.next().await);
    }
    let has = |kind: &str, proxy: &str| {
        seen.iter()
            .any(|(own, data)| own == kind && data["proxy"] == proxy)
    };
    assert!(
        has("proxy", "a") && has("request", "a") && has("proxy", "b"),
        "{seen:?}"
    );
    let ended = seen
        .iter()
        .find(|(_, data)| data["state"] == "ended")
        .unwrap();
    assert!(
        ended.1["reason"].as_str().unwrap().contains("refused"),
        "{ended:?}"
    );
}
