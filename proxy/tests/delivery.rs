//! Responses that are not delivered as a whole, because of a client that does not read or an endpoint that
//! stops: the effects on the connection, the log and the metrics.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use maglor_testkit::{Authority, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::{Web, connect, outstanding, start, wait_quiet};

/// An access log in JSON.
struct Log {
    dir: TempDir,
}

impl Log {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("access.log")
    }

    fn yaml(&self) -> String {
        format!(
            "access_log: {{path: '{}', format: json}}",
            self.path().display()
        )
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns status and flag of each request, once there are `count`.
    #[track_caller]
    fn flags(&self, count: usize) -> Vec<(u64, String)> {
        eventually(TIMEOUT, "the lines", || self.lines().len() >= count);
        let line = |line: &Value| {
            let flag = line["flag"].as_str().unwrap().to_owned();
            (line["status"].as_u64().unwrap(), flag)
        };
        self.lines().iter().map(line).collect()
    }
}

fn requests(proxy: &Proxy, family: &str, status: &str) -> f64 {
    proxy.metric(family, &[&format!("status=\"{status}\"")])
}

/// Sends pipelined requests on a connection with small buffers that reads nothing.
fn pipeline(proxy: &Proxy, requests: usize, path: &str) -> RawHttp1 {
    let mut client = connect(proxy);
    client.connection().limit_receive_buffer(4096).unwrap();
    client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(requests));
    client
}

#[test]
fn clients_that_do_not_read_are_let_go() {
    let upstream = Upstream::start("a");
    let log = Log::new();
    let proxy = Web::to([upstream.address()])
        .top(&log.yaml())
        .http("stream_idle_timeout: 500ms, idle_timeout: 1s")
        .start();
    // Large and small pieces, with a length and without.
    let paths = ["/bytes/50000", "/bytes/5000", "/chunked/50000"];
    let counts = [400, 4000, 400];
    let clients: Vec<_> = paths
        .iter()
        .zip(counts)
        .map(|(path, count)| {
            let mut client = connect(&proxy);
            client.connection().limit_receive_buffer(4096).unwrap();
            let requests = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(count);
            // The proxy may stop reading before the end.
            std::thread::spawn(move || {
                let _ = client.connection().send(requests);
                client
            })
        })
        .collect();
    let ended = "maglor_downstream_connections_total";
    eventually(TIMEOUT, "all are connected", || {
        proxy.metric(ended, &[]) == 3.0
    });
    eventually(TIMEOUT, "all are let go", || {
        proxy.metric("maglor_downstream_open_connections", &[]) == 0.0
    });
    wait_quiet(&proxy);
    let idle = |line: &Value| line["flag"] == "SI" && line["status"] == 200;
    eventually(TIMEOUT, "a line for each", || {
        log.lines().into_iter().filter(idle).count() == 3
    });
    // An unread response still counts as a response of the endpoint.
    assert_eq!(requests(&proxy, "maglor_http_requests_total", "5xx"), 0.0);
    for client in clients {
        drop(client.join().unwrap());
    }
}

#[test]
fn a_client_that_does_not_read_by_tls_is_let_go() {
    let authority = Authority::new();
    let server = authority.issue(&["test"]);
    let (certificate, key) = (server.cert_file.display(), server.key_file.display());
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .listener(&format!(
            "tls: {{certificate: '{certificate}', private_key: '{key}'}}"
        ))
        .http("stream_idle_timeout: 500ms, idle_timeout: 1s")
        .start();
    let mut client = RawHttp1::connect_tls(
        proxy.listener("web"),
        "test",
        authority.client_config(None, &["http/1.1"]),
    );
    client.connection().limit_receive_buffer(4096).unwrap();
    client.send("GET /bytes/50000 HTTP/1.1\r\nhost: a\r\n\r\n".repeat(400));
    eventually(TIMEOUT, "it is let go", || {
        proxy.metric("maglor_downstream_open_connections", &[]) == 0.0
    });
    wait_quiet(&proxy);
}

/// The drain need not wait for its timeout.
#[test]
fn a_drain_ends_although_a_client_does_not_read() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top("drain_timeout: 60s")
        .http("stream_idle_timeout: 500ms")
        .start();
    let client = pipeline(&proxy, 400, "/bytes/50000");
    eventually(TIMEOUT, "it is served", || {
        requests(&proxy, "maglor_http_requests_total", "2xx") >= 1.0
    });
    assert!(proxy.terminate().success());
    drop(client);
}

/// Each piece takes longer than the idle timeout, although bytes arrive more often.
#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let upstream = Upstream::start("a");
    let log = Log::new();
    let proxy = Web::to([upstream.address()])
        .top(&log.yaml())
        .http("stream_idle_timeout: 400ms")
        .start();
    let mut client = TcpStream::connect(proxy.listener("web")).unwrap();
    std::io::Write::write_all(
        &mut client,
        b"GET /bytes/40000000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    )
    .unwrap();
    let (mut read, mut piece) = (0, [0; 16 * 1024]);
    // Reading a third of a full send buffer takes longer than the idle timeout.
    loop {
        let n = client.read(&mut piece).unwrap();
        if n == 0 {
            break;
        }
        read += n;
        if read < 2_000_000 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(read > 40_000_000, "{read}");
    assert_eq!(log.flags(1), [(200, "-".to_owned())]);
}

#[test]
fn an_answer_to_head_is_whole_in_the_log() {
    let upstream = Upstream::start("a");
    let log = Log::new();
    let proxy = Web::to([upstream.address()]).top(&log.yaml()).start();
    let mut client = connect(&proxy);
    client.send("HEAD /bytes/100 HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 200);
    assert_eq!(client.get("/status/204").status, 204);
    assert_eq!(client.get("/status/304").status, 304);
    let flags = log.flags(3);
    assert!(flags.iter().all(|(_, flag)| flag == "-"), "{flags:?}");
    assert_eq!(log.lines()[0]["method"], "HEAD");
}

#[test]
fn a_client_that_leaves_before_the_end_is_logged_so() {
    let upstream = Upstream::start("a");
    let log = Log::new();
    let proxy = Web::to([upstream.address()]).top(&log.yaml()).start();
    let mut client = pipeline(&proxy, 1, "/bytes/40000000");
    client.connection().read_head().unwrap();
    client.connection().reset_on_close().unwrap();
    drop(client);
    assert_eq!(log.flags(1), [(200, "DC".to_owned())]);
    wait_quiet(&proxy);
    assert_eq!(requests(&proxy, "maglor_http_requests_total", "2xx"), 1.0);
    assert_eq!(
        proxy.metric("maglor_upstream_responses_cut_off_total", &[]),
        0.0
    );
}

/// Requests a response that is cut off over HTTP/1.1 and HTTP/2, and checks that the client and the log show
/// it.
#[track_caller]
fn cut_off(proxy: &Proxy, log: &Log) {
    let mut client = connect(proxy);
    client.send("GET /close-after-head HTTP/1.1\r\nhost: a\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let end = client.connection().read_to_end();
    assert!(end.is_err(), "the end looks like one: {end:?}");
    let mut client = Client::connect(proxy.listener("web"));
    let sent = client.send(h2::get("/close-after-head"));
    let read = client.run(async { h2::read(sent.await.unwrap()).await });
    assert!(read.is_err());
    for (status, flag) in log.flags(2) {
        // Envoy's flags: the connection has ended, the stream was reset.
        assert!(
            status == 200 && (flag == "UC" || flag == "UR"),
            "{status} {flag}"
        );
    }
    for family in [
        "maglor_http_requests_total",
        "maglor_upstream_requests_total",
    ] {
        assert_eq!(requests(proxy, family, "5xx"), 2.0, "{family}");
        assert_eq!(requests(proxy, family, "2xx"), 0.0, "{family}");
    }
    assert_eq!(
        proxy.metric("maglor_upstream_responses_cut_off_total", &[]),
        2.0
    );
    eventually(TIMEOUT, "the endpoint is found to fail", || {
        // The last one stays in service all the same.
        proxy.metric("maglor_upstream_ejections_spared_total", &[]) == 1.0
    });
    assert_eq!(outstanding(proxy), 0.0);
}

const EJECTION: &str =
    "outlier_ejection: {consecutive_local_origin_failure: 2, base_ejection_time: 60s}";

#[test]
fn a_response_that_is_cut_off_is_no_success() {
    let upstream = Upstream::start("a");
    for protocol in ["http1", "http2"] {
        let log = Log::new();
        let proxy = Web::to([upstream.address()])
            .top(&log.yaml())
            .cluster(&format!("protocol: {protocol}, {EJECTION}"))
            .start();
        cut_off(&proxy, &log);
    }
}

#[test]
fn nor_is_one_that_comes_by_the_mesh() {
    let upstream = Upstream::start("a");
    let root = Root::new();
    let inbound = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- name: in\n  address: 127.0.0.1:0\n  tls: mesh\n  \
         inbound: {{application: '{}', protocol: auto}}\n",
        root.member("server").yaml(),
        upstream.address()
    ));
    let log = Log::new();
    let outbound = Web::to([inbound.listener("in")])
        .top(&log.yaml())
        .top(&root.member("client").yaml())
        .cluster(&format!("tls: mesh, policy: random, {EJECTION}"))
        .start();
    cut_off(&outbound, &log);
    eventually(TIMEOUT, "the server's proxy knows, too", || {
        requests(&inbound, "maglor_http_requests_total", "5xx") == 2.0
    });
}

/// Complete responses between truncated ones still count as successes.
#[test]
fn an_endpoint_that_answers_as_a_whole_is_not_ejected() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).cluster(EJECTION).start();
    for _ in 0..4 {
        let mut client = connect(&proxy);
        client.send("GET /close-after-head HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.connection().read_to_end().is_err());
        assert_eq!(connect(&proxy).get("/bytes/100").status, 200);
    }
    assert_eq!(
        proxy.metric("maglor_upstream_responses_cut_off_total", &[]),
        4.0
    );
    assert_eq!(proxy.metric("maglor_upstream_ejected_endpoints", &[]), 0.0);
}
