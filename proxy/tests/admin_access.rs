//! Access to the pages of the admin port: from the network, from this host, and from websites in a browser on
//! this host; and the effects of connection floods on it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, RawResponse, TIMEOUT, Upstream, eventually};
use tempfile::TempDir;

use crate::support;
use crate::support::netns::Namespace;
use crate::support::{Web, connect, get};

/// Pages for operators, and a method that each of them supports.
const OPERATORS: [(&str, &str); 12] = [
    ("GET", "/"),
    ("GET", "/clusters"),
    ("GET", "/config"),
    ("POST", "/drain"),
    ("PUT", "/drain"),
    ("GET", "/listeners"),
    ("GET", "/logging"),
    ("PUT", "/logging?level=error"),
    ("POST", "/logging?level=error"),
    ("GET", "/routes"),
    ("GET", "/tap"),
    ("HEAD", "/config"),
];
const PUBLIC: [&str; 3] = ["/ready", "/live", "/metrics"];

fn ask(admin: SocketAddr, method: &str, path: &str, fields: &str) -> RawResponse {
    let head = format!("{method} {path} HTTP/1.1\r\n{fields}content-length: 0\r\n\r\n");
    RawHttp1::connect(admin).request(head)
}

/// Checks that no request has had an effect.
#[track_caller]
fn assert_untouched(proxy: &Proxy) {
    assert_eq!(proxy.admin_get("/logging").text().trim(), "info");
    assert_eq!(proxy.admin_get("/ready").text(), "ready\n");
    assert_eq!(get(proxy, "/").status, 200, "it does not drain");
}

/// Returns two hosts, `10.77.0.2` and `10.77.0.1`, joined by a virtual cable.
fn hosts() -> Option<(Namespace, Namespace)> {
    let (host, far) = (Namespace::new()?, Namespace::new()?);
    host.join("10.77.0.2/24 fd77::2/64", &far, "10.77.0.1/24 fd77::1/64");
    Some((host, far))
}

/// Starts a proxy on a host, with these settings of its admin port; returns it and the port.
fn start_on(host: &Namespace, web: &Web, admin: &str) -> (Proxy, u16) {
    let yaml = web
        .yaml()
        .replace("admin: {address: \"127.0.0.1:0\"}", admin);
    let wrapper = TempDir::new().unwrap();
    let script = wrapper.path().join("proxy");
    let binary = env!("CARGO_BIN_EXE_maglor-proxy");
    let text = format!(
        "#!/bin/sh\nexec ip netns exec {} {binary} \"$@\"\n",
        host.name()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let proxy = ProxyBuilder::new(script).config(yaml).start();
    let port = proxy.admin().port();
    (proxy, port)
}

#[test]
fn the_network_gets_health_and_metrics_only() {
    let Some((host, far)) = hosts() else { return };
    let upstream = host.enter(|| Upstream::start("a"));
    let web = Web::to([upstream.address()]);
    let probes = format!(
        "admin: {{address: '[::]:0', probes: {{web/live: 'http:{}/'}}}}",
        upstream.address().port()
    );
    let (proxy, port) = start_on(&host, &web, &probes);
    for to in ["10.77.0.2", "fd77::2"] {
        let admin = SocketAddr::new(to.parse().unwrap(), port);
        // From another host, and from this one by an address that is not loopback.
        for from in [&far, &host] {
            from.enter(|| {
                for page in PUBLIC.into_iter().chain(["/probe/web/live"]) {
                    let seen = ask(admin, "GET", page, "host: web.shop:15020\r\n");
                    assert_eq!(seen.status, 200, "{page}");
                }
                for (method, page) in OPERATORS {
                    for name in ["localhost", "127.0.0.1", to, "web.shop"] {
                        let seen = ask(admin, method, page, &format!("host: {name}\r\n"));
                        assert_eq!(seen.status, 403, "{method} {page} {name}");
                        assert!(!seen.text().contains("cluster"), "{}", seen.text());
                    }
                }
                let other = ask(admin, "GET", "/probe/../config", "host: localhost\r\n");
                assert_eq!(other.status, 404);
                let absolute = ask(
                    admin,
                    "POST",
                    "http://localhost/drain",
                    "host: localhost\r\n",
                );
                assert_eq!(absolute.status, 403);
            });
        }
    }
    host.enter(|| {
        for loopback in [
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from(([127, 9, 9, 9], port)),
        ] {
            let config = ask(loopback, "GET", "/config", "host: localhost:15020\r\n");
            assert_eq!(config.status, 200);
        }
        assert_untouched(&proxy);
    });
}

#[test]
fn the_network_gets_more_where_a_setting_says_so() {
    let Some((host, far)) = hosts() else { return };
    let upstream = host.enter(|| Upstream::start("a"));
    let web = Web::to([upstream.address()]);
    let settings = "admin: {address: '10.77.0.2:0', remote_access: full}";
    let (mut proxy, port) = start_on(&host, &web, settings);
    let admin = SocketAddr::from(([10, 77, 0, 2], port));
    far.enter(|| {
        let by = |method: &str, page: &str, fields: &str| ask(admin, method, page, fields).status;
        let address = format!("host: {admin}\r\n");
        assert_eq!(by("GET", "/config", &address), 200);
        assert_eq!(by("PUT", "/logging?level=warn", &address), 200);
        assert_eq!(by("GET", "/config", "host: evil.example\r\n"), 403);
        assert_eq!(
            by(
                "POST",
                "/drain",
                &format!("{address}origin: http://evil.example\r\n")
            ),
            403
        );
        assert_eq!(
            by(
                "POST",
                "/drain",
                &format!("{address}content-type: text/plain\r\n")
            ),
            415
        );
        assert_eq!(by("POST", "/drain", &address), 200);
    });
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn websites_get_and_cause_nothing() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let admin = proxy.admin();
    for (method, page) in OPERATORS {
        for (fields, expected) in [
            ("", 400),
            ("host: evil.example\r\n", 403),
            ("host: localhost.evil.example\r\n", 403),
            ("host: 10.0.0.1\r\n", 403),
            ("host: 0.0.0.0\r\n", 403),
            ("host: a\r\n", 403),
            ("host: localhost\r\nhost: evil.example\r\n", 400),
            ("host: localhost\r\norigin: http://evil.example\r\n", 403),
            ("host: localhost\r\norigin: http://localhost:8080\r\n", 403),
            ("host: localhost\r\norigin: null\r\n", 403),
            ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
            ("host: localhost\r\nsec-fetch-site: same-site\r\n", 403),
        ] {
            let seen = ask(admin, method, page, fields);
            assert_eq!(seen.status, expected, "{method} {page} {fields:?}");
        }
        if matches!(method, "POST" | "PUT") {
            for kind in [
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=a",
                "text/plain",
            ] {
                let seen = ask(
                    admin,
                    method,
                    page,
                    &format!("host: localhost\r\ncontent-type: {kind}\r\n"),
                );
                assert_eq!(seen.status, 415, "{method} {page} {kind}");
            }
        } else {
            for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
                if page != "/logging" || !matches!(method, "POST" | "PUT") {
                    let seen = ask(admin, method, page, "host: localhost\r\n");
                    assert_eq!(seen.status, 405, "{method} {page}");
                }
            }
        }
    }
    for page in PUBLIC {
        assert_eq!(
            ask(admin, "POST", page, "host: localhost\r\n").status,
            405,
            "{page}"
        );
        assert_eq!(
            ask(admin, "GET", page, "host: evil.example\r\n").status,
            200,
            "{page}"
        );
    }
    let safe = ask(
        admin,
        "GET",
        "/config",
        "host: localhost\r\norigin: http://localhost\r\nsec-fetch-site: same-origin\r\n",
    );
    assert_eq!(safe.status, 200);
    assert_eq!(safe.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(safe.header("cache-control"), Some("no-store"));
    assert_eq!(safe.header("access-control-allow-origin"), None);
    assert_untouched(&proxy);
    assert_eq!(
        ask(admin, "POST", "/drain", "host: localhost\r\n").status,
        200
    );
}

/// Opens connections that send nothing.
fn silent(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|_| TcpStream::connect(to).unwrap())
        .collect()
}

#[test]
fn floods_of_the_admin_port_reach_nothing_else() {
    let Some((host, far)) = hosts() else { return };
    let upstream = host.enter(|| Upstream::start("a"));
    let web = Web::to([upstream.address()]);
    let (proxy, port) = start_on(&host, &web, "admin: {address: '0.0.0.0:0'}");
    let admin = SocketAddr::from(([10, 77, 0, 2], port));
    let before = proxy.open_files();
    let mut flood = far.enter(|| silent(admin, 400));
    eventually(TIMEOUT, "connections of one source are bounded", || {
        proxy.open_files() <= before + 16
    });
    // The oldest connections of the flood are closed for its own new ones.
    let mut end = [0];
    assert!(matches!(flood[0].read(&mut end), Ok(0) | Err(_)));
    // Some that request much and read nothing.
    for reader in flood.iter_mut().rev().take(16) {
        let _ = reader.write_all(&b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(200));
    }
    far.enter(|| assert_eq!(ask(admin, "GET", "/ready", "host: a\r\n").status, 200));
    host.enter(|| {
        // From another source, and from loopback.
        assert_eq!(ask(admin, "GET", "/ready", "host: a\r\n").status, 200);
        assert_eq!(proxy.admin_get("/config").status, 200);
        assert_eq!(get(&proxy, "/").text(), "a");
        let here = silent(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), 100);
        assert_eq!(proxy.admin_get("/config").status, 200);
        assert_eq!(get(&proxy, "/").text(), "a");
        drop(here);
    });
}

#[test]
fn floods_of_a_listener_do_not_reach_the_admin_port() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener("max_connections: 20")
        .start();
    let flood: Vec<_> = (0..100).map(|_| connect(&proxy)).collect();
    assert_eq!(proxy.admin_get("/config").status, 200);
    assert_eq!(proxy.admin_get("/ready").status, 200);
    drop(flood);
    assert_untouched(&proxy);
}

#[test]
fn a_connection_that_asks_nothing_is_closed() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut silent = TcpStream::connect(proxy.admin()).unwrap();
    let mut slow = TcpStream::connect(proxy.admin()).unwrap();
    slow.write_all(b"GET /ready HTTP/1.1\r\nhost:").unwrap();
    for socket in [&mut silent, &mut slow] {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut text = Vec::new();
        socket.read_to_end(&mut text).unwrap();
        assert!(!text.starts_with(b"HTTP/1.1 200"));
    }
}

/// A request forwarded by the data plane would appear to be one of an operator on this host.
#[test]
fn clients_do_not_reach_the_admin_port_through_the_proxy() {
    let yaml = "
admin: {address: '0.0.0.0:0'}
listeners:
- {name: web, address: '127.0.0.1:0', proxy_protocol: require, tcp: {cluster: there}}
clusters:
- {name: there, type: original-destination}
";
    let proxy = support::start(yaml);
    let port = proxy.admin().port();
    for to in ["127.0.0.1", "127.0.0.2", "0.0.0.0"] {
        let mut client = TcpStream::connect(proxy.listener("web")).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = "POST /drain HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
        write!(client, "PROXY TCP4 10.0.0.9 {to} 1 {port}\r\n{request}").unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(proxy.admin_get("/ready").status, 200);
    let refused = "maglor_downstream_connections_refused_total";
    assert_eq!(proxy.metric(refused, &["reason=\"no_upstream\""]), 3.0);
}
