//! Trailers: the fields that are passed as such, in both directions and by every protocol.

use http::HeaderMap;
use hyper::body::Frame;
use maglor_testkit::{Answer, Proxy, RawServer, Upstream};
use serde_json::json;

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::{Web, connect, start};

/// Fields that frame, route, authenticate or identify a message.
const UNFIT: [&str; 14] = [
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "if-match",
    "set-cookie",
    "x-envoy-attempt-count",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-maglor-client",
    "x-real-ip",
    "x_forwarded_for",
];

const FIT: [&str; 3] = ["grpc-message", "grpc-status", "x-sum"];

fn all() -> impl Iterator<Item = &'static str> {
    UNFIT.into_iter().chain(FIT)
}

fn map() -> HeaderMap {
    all()
        .map(|name| (name.parse().unwrap(), "7".parse().unwrap()))
        .collect()
}

fn text() -> String {
    all().map(|name| format!("{name}: 7\r\n")).collect()
}

/// The proxies in front of an application: one, or two workloads of the mesh.
struct Way {
    first: Proxy,
    /// Proxy of the application, and the root that signed for both.
    _second: Option<(Proxy, Root)>,
}

/// Returns both paths to a server with this protocol.
fn ways(server: std::net::SocketAddr, protocol: &str) -> [Way; 2] {
    let direct = Web::to([server])
        .cluster(&format!("protocol: {protocol}"))
        .start();
    let root = Root::new();
    let second = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\n{}\nlisteners:\n- name: in\n  address: 127.0.0.1:0\n  tls: mesh\n  \
         http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: app}}]}}]}}\n\
         clusters:\n- {{name: app, endpoints: ['{server}'], protocol: {protocol}}}\n",
        root.member("server").yaml(),
    ));
    let first = Web::to([second.listener("in")])
        .top(&root.member("client").yaml())
        .cluster("tls: mesh")
        .start();
    let direct = Way {
        first: direct,
        _second: None,
    };
    let mesh = Way {
        first,
        _second: Some((second, root)),
    };
    [direct, mesh]
}

fn expected() -> serde_json::Value {
    json!(FIT.map(|name| [name, "7"]))
}

/// Returns the trailers that the server has received, sorted.
fn received(answer: &serde_json::Value) -> serde_json::Value {
    let mut all: Vec<_> = answer["trailers"].as_array().unwrap().clone();
    all.sort_by_key(ToString::to_string);
    all.into()
}

#[test]
fn of_requests_only_those_pass_that_may_come_late() {
    let upstream = Upstream::start("a");
    for protocol in ["http1", "http2"] {
        for Way { first, .. } in &ways(upstream.address(), protocol) {
            let mut client = connect(first);
            client.send("POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
            client.send(format!("3\r\nabc\r\n0\r\n{}\r\n", text()));
            let answer = client.response();
            assert_eq!(
                received(&answer.json()),
                expected(),
                "HTTP/1.1 to {protocol}"
            );
            let mut trailers = map();
            // A length after the content is an error there: see below.
            trailers.remove("content-length");
            let answer = upload(first, trailers).unwrap();
            assert_eq!(received(&answer.json()), expected(), "HTTP/2 to {protocol}");
        }
    }
}

/// Uploads by HTTP/2.
fn upload(proxy: &Proxy, trailers: HeaderMap) -> Result<h2::Answer, hyper::Error> {
    let mut client = Client::connect(proxy.listener("web"));
    let (frames, body) = h2::channel();
    let sent = client.send(h2::request("POST", "/upload", body));
    frames.send(Ok(Frame::data("abc".into()))).unwrap();
    frames.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(frames);
    client.run(async { h2::read(sent.await?).await })
}

/// HTTP/2 frames mark the end of a message, and peers reject a length that comes after the content.
#[test]
fn a_length_in_trailers_of_http2_ends_the_request() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    for length in ["3", "7"] {
        let mut trailers = HeaderMap::new();
        trailers.insert("content-length", length.parse().unwrap());
        assert!(upload(&proxy, trailers).is_err(), "{length}");
    }
}

/// Sends a request by each version.
fn ask(ways: &[Way], what: &str) {
    for Way { first, .. } in ways {
        let response = connect(first).get("/");
        assert_eq!((response.status, response.text()), (200, "abc"), "{what}");
        let mut names: Vec<_> = response.trailers.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, FIT, "{what} to HTTP/1.1");
        let answer = Client::connect(first.listener("web")).ask(h2::get("/"));
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "abc"),
            "{what}"
        );
        let mut names: Vec<_> = answer
            .trailers
            .keys()
            .map(http::HeaderName::as_str)
            .collect();
        names.sort_unstable();
        assert_eq!(names, FIT, "{what} to HTTP/2");
    }
}

#[test]
fn of_responses_only_those_pass_that_may_come_late() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = RawServer::answering(format!("{head}3\r\nabc\r\n0\r\n{}\r\n", text()), 100);
    ask(&ways(server.address(), "http1"), "HTTP/1.1");
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(all().fold(Answer::text("abc"), |a, name| a.trailer(name, "7"))));
    ask(&ways(upstream.address(), "http2"), "HTTP/2");
}

/// A pseudo-header field in a trailer section is malformed (RFC 9113 §8.1, RFC 9110 §5.1).
#[test]
fn pseudo_headers_in_trailers_are_an_error() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    client.send("POST /upload HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\n:path: /x\r\n\r\n");
    assert_eq!(client.response().status, 400);
}
