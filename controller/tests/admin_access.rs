//! Access to the pages of the controller's admin port, and to its replicas' pages on the port where proxies
//! are served.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use maglor_testkit::{RawHttp1, RawResponse};

use crate::support::process::Controller;

const OPERATORS: [&str; 11] = [
    "/",
    "/sessions",
    "/receipts",
    "/receipts?all",
    "/resources",
    "/resources?kind=inbound&full",
    "/graph",
    "/graph?parts",
    "/graph?called",
    "/shared",
    "/trust",
];
const PUBLIC: [&str; 3] = ["/live", "/metrics", "/ready"];

async fn start(folder: &std::path::Path, more: &[&str]) -> Controller {
    let resources = folder.join("resources");
    std::fs::create_dir_all(&resources).unwrap();
    let resources = resources.display().to_string();
    let common = [
        "--listen",
        "127.0.0.1:0",
        "--folder",
        &resources,
        "--plain-text",
    ];
    Controller::start(&folder.join("ready.json"), &[&common, more].concat()).await
}

fn ask(to: SocketAddr, method: &str, path: &str, fields: &str) -> RawResponse {
    let head = format!("{method} {path} HTTP/1.1\r\n{fields}content-length: 0\r\n\r\n");
    RawHttp1::connect(to).request(head)
}

/// A non-loopback address of this machine; packets to it do not leave the machine.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Chooses a route; a connect of UDP sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test]
async fn the_network_gets_health_and_metrics_only() {
    let folder = tempfile::tempdir().unwrap();
    let controller = start(folder.path(), &["--admin", "0.0.0.0:0"]).await;
    let port = controller.admin_port();
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for page in PUBLIC {
        assert_eq!(
            ask(here, "GET", page, "host: controller\r\n").status,
            200,
            "{page}"
        );
        assert_eq!(
            ask(here, "POST", page, "host: localhost\r\n").status,
            405,
            "{page}"
        );
    }
    for page in OPERATORS {
        let expected = if page == "/trust" { 404 } else { 200 };
        assert_eq!(
            ask(here, "GET", page, "host: localhost\r\n").status,
            expected,
            "{page}"
        );
        for fields in [
            "host: evil.example\r\n",
            "host: localhost\r\norigin: http://evil.example\r\n",
            "host: localhost\r\nsec-fetch-site: cross-site\r\n",
        ] {
            assert_eq!(
                ask(here, "GET", page, fields).status,
                403,
                "{page} {fields}"
            );
        }
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(
                ask(here, method, page, "host: localhost\r\n").status,
                405,
                "{page}"
            );
        }
    }
    let Some(ip) = own_address() else {
        eprintln!("skipped: this machine has loopback only");
        return;
    };
    let there = SocketAddr::new(ip, port);
    for page in PUBLIC {
        assert_eq!(
            ask(there, "GET", page, "host: controller\r\n").status,
            200,
            "{page}"
        );
    }
    for page in OPERATORS {
        for host in ["localhost", "127.0.0.1", "maglor-controller.maglor"] {
            let seen = ask(there, "GET", page, &format!("host: {host}\r\n"));
            assert_eq!(seen.status, 403, "{page} {host}");
        }
    }
}

#[tokio::test]
async fn the_network_gets_more_where_a_flag_says_so() {
    let Some(ip) = own_address() else { return };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--admin", "0.0.0.0:0", "--admin-remote-access", "full"];
    let controller = start(folder.path(), &arguments).await;
    let there = SocketAddr::new(ip, controller.admin_port());
    assert_eq!(
        ask(there, "GET", "/sessions", &format!("host: {there}\r\n")).status,
        200
    );
    assert_eq!(
        ask(there, "GET", "/sessions", "host: evil.example\r\n").status,
        403
    );
}

#[tokio::test]
async fn silent_connections_do_not_hold_the_admin_port() {
    let folder = tempfile::tempdir().unwrap();
    let controller = start(folder.path(), &["--admin", "127.0.0.1:0"]).await;
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, controller.admin_port()));
    let mut flood: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(admin).unwrap())
        .collect();
    assert_eq!(
        ask(admin, "GET", "/sessions", "host: localhost\r\n").status,
        200
    );
    let mut end = [0];
    flood[0]
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert!(
        matches!(flood[0].read(&mut end), Ok(0)),
        "the oldest gave way"
    );
}

/// In plain text, where clients are not authenticated, replicas query each other on the port of proxies; operators'
/// other pages do not exist.
#[tokio::test]
async fn replicas_ask_on_the_port_of_proxies() {
    let folder = tempfile::tempdir().unwrap();
    let controller = start(folder.path(), &["--admin", "127.0.0.1:0"]).await;
    let port: SocketAddr = controller.listen.parse().unwrap();
    assert_eq!(
        ask(port, "GET", "/graph?parts", "host: a\r\n").json(),
        serde_json::json!([])
    );
    assert_eq!(
        ask(port, "GET", "/shared", "host: a\r\n").json(),
        serde_json::json!([])
    );
    assert_eq!(ask(port, "GET", "/resources", "host: a\r\n").status, 404);
    let mut other = TcpStream::connect(port).unwrap();
    other.write_all(b"POST / HTTP/1.1\r\n\r\n").unwrap();
    other
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1"));
}
