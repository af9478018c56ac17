//! Two sidecars with mutual TLS between them: any protocol of the applications arrives unchanged. Without
//! redirection, so the PROXY protocol provides the outbound sidecar with the original destinations.

use std::net::SocketAddr;
use std::time::Duration;

use http::Version;
use maglor_testkit::{
    Answer, Proxy, RawHttp1, RawServer, Recorded, TIMEOUT, Upstream, eventually, pattern,
};

use crate::support::mesh::Root;
use crate::support::start;

/// A pair of sidecars.
struct Pair {
    inbound: Proxy,
    outbound: Proxy,
}

impl Pair {
    /// Starts a pair in front of this application, with this declared protocol.
    fn start(application: SocketAddr, protocol: &str) -> Self {
        let root = Root::new();
        let inbound = start(&format!(
            "admin: {{address: '127.0.0.1:0'}}
{}
listeners:
- name: in
  address: 127.0.0.1:0
  detection_timeout: 200ms
  tls: mesh
  inbound: {{application: '{application}', protocol: {protocol}}}
",
            root.member("server").yaml()
        ));
        let outbound = start(&format!(
            "admin: {{address: '127.0.0.1:0'}}
outbound_grace: 0s
{}
listeners:
- name: out
  address: 127.0.0.1:0
  proxy_protocol: require
  detection_timeout: 200ms
  outbound:
    services: [{{name: server, addresses: ['10.0.0.5:80'], cluster: server}}]
    unknown: refuse
clusters:
- {{name: server, tls: mesh, endpoints: ['{}']}}
",
            root.member("client").yaml(),
            inbound.listener("in")
        ));
        Self { inbound, outbound }
    }

    fn connect(&self) -> RawHttp1 {
        let mut client = RawHttp1::connect(self.outbound.listener("out"));
        client.send("PROXY TCP4 192.0.2.1 10.0.0.5 1234 80\r\n");
        client
    }

    fn detected(&self, protocol: &str) -> (f64, f64) {
        let label = format!("protocol=\"{protocol}\"");
        let name = "maglor_downstream_protocol_detected_total";
        let of = |proxy: &Proxy| proxy.metric(name, &[&label]);
        (of(&self.outbound), of(&self.inbound))
    }
}

#[test]
fn a_request_keeps_its_version() {
    let application = Upstream::start("application");
    let pair = Pair::start(application.address(), "auto");
    let mut client = pair.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "application");
    }
    let mut client = pair.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // SETTINGS, and HEADERS of `GET / HTTP/2` for `a`: indexed fields of RFC 7541, appendix A.
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // In addition a field that is trusted only from another proxy: that the request was HTTP/1.1 originally.
    let carried: &[u8] = b"\0\x15x-maglor-http-version\x031.1";
    let block = [&[0x82, 0x86, 0x84, 0x41, 1, b'a'][..], carried].concat();
    client.send([0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    client.send(block);
    eventually(TIMEOUT, "the application is asked", || {
        application.requests() == 4
    });
    let versions: Vec<_> = application
        .recorded()
        .iter()
        .map(|seen| seen.version)
        .collect();
    assert_eq!(versions[..3], [Version::HTTP_11; 3]);
    assert_eq!(versions[3], Version::HTTP_2);
    assert_eq!(pair.detected("http1"), (1.0, 1.0));
    assert_eq!(pair.detected("http2"), (1.0, 0.0));
    assert_eq!(pair.detected("mux"), (0.0, 1.0));
    // Only the client of the first three has a connection of that version.
    assert_eq!(application.connections(), 2);
    let name = "x-maglor-http-version";
    let reported = application
        .recorded()
        .iter()
        .any(|seen| seen.headers.contains_key(name));
    assert!(!reported, "between proxies only");
}

#[test]
fn requests_at_the_same_time_share_one_connection_and_keep_their_version() {
    let application = Upstream::start("application");
    let slow = |_: &Recorded| Some(Answer::text("slow").after(Duration::from_millis(300)));
    application.set_answer(slow);
    let pair = Pair::start(application.address(), "auto");
    let mut clients: Vec<_> = (0..8).map(|_| pair.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-maglor-http-version: 2\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().text(), "slow");
    }
    let seen = application.recorded();
    assert!(seen.iter().all(|seen| seen.version == Version::HTTP_11));
    let name = "x-maglor-http-version";
    assert!(!seen.iter().any(|seen| seen.headers.contains_key(name)));
    // The first request found no connection to share.
    let connections = "maglor_downstream_connections_total";
    let between = pair.inbound.metric(connections, &["listener=\"in\""]);
    assert_eq!(between, 2.0);
}

#[test]
fn bytes_arrive_as_bytes() {
    let echo = RawServer::start(|connection, _| {
        let all = connection.read_to_end()?;
        connection.send(all)?;
        connection.finish_sending()
    });
    for protocol in ["auto", "tcp"] {
        let pair = Pair::start(echo.address(), protocol);
        for size in [5, 1_000_000] {
            let mut bytes = b"\0\x01\x02".to_vec();
            bytes.extend(pattern::bytes(size));
            let mut client = pair.connect();
            client.send(&bytes);
            client.connection().finish_sending().unwrap();
            assert!(
                client.connection().read_to_end().unwrap() == bytes,
                "{size}"
            );
        }
    }
}

#[test]
fn the_server_may_speak_first() {
    let greeter = RawServer::start(|connection, _| {
        connection.send("220 ready\r\n")?;
        connection.expect("QUIT\r\n")
    });
    let pair = Pair::start(greeter.address(), "auto");
    let mut client = pair.connect();
    client.connection().expect("220 ready\r\n").unwrap();
    client.send("QUIT\r\n");
    client.assert_closed();
    assert_eq!(pair.detected("silent"), (1.0, 1.0));
}

#[test]
fn the_outbound_proxy_serves_its_application_to_the_end() {
    let application = Upstream::start("application");
    let mut pair = Pair::start(application.address(), "http");
    let mut client = pair.connect();
    assert_eq!(client.get("/").text(), "application");
    pair.outbound
        .signal(maglor_testkit::process::Signal::Terminate);
    pair.outbound.wait_for_log("draining");
    client.assert_silent(Duration::from_millis(300));
    assert_eq!(client.get("/").text(), "application");
    drop(client);
    assert!(pair.outbound.wait_exit(TIMEOUT).success());
    assert_eq!(pair.inbound.admin_get("/ready").status, 200);
}
