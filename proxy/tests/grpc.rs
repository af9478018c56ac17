//! gRPC calls through clusters without a chosen protocol.

use http::{Request, Version};
use maglor_testkit::{Answer, Authority, Upstream};

use crate::support::h2::{self, Client, Sent};
use crate::support::{Web, get};

fn call(content_type: &str) -> Request<Sent> {
    let mut request = h2::request("POST", "/test.Echo/Say", h2::full(&b"\0\0\0\0\0"[..]));
    let value = content_type.parse().unwrap();
    request.headers_mut().insert("content-type", value);
    request
}

/// Starts a gRPC server: each response ends with a status in its trailers.
fn server() -> Upstream {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(answer()));
    upstream
}

fn answer() -> Answer {
    Answer::text(&b"\0\0\0\0\0"[..])
        .header("content-type", "application/grpc")
        .trailer("grpc-status", "0")
}

#[test]
fn calls_go_by_http2_and_other_requests_as_before() {
    let upstream = server();
    for protocol in ["", "protocol: auto"] {
        let mut web = Web::to([upstream.address()]);
        if !protocol.is_empty() {
            web = web.cluster(protocol);
        }
        let proxy = web.start();
        assert_eq!(get(&proxy, "/").status, 200);
        assert_eq!(upstream.last().version, Version::HTTP_11);
        let mut client = Client::connect(proxy.listener("web"));
        for content_type in ["application/grpc", "application/grpc+proto"] {
            let answer = client.ask(call(content_type));
            assert_eq!(answer.status.as_u16(), 200, "{protocol}");
            assert_eq!(answer.trailers["grpc-status"], "0", "{protocol}");
            assert_eq!(upstream.last().version, Version::HTTP_2, "{protocol}");
        }
        // gRPC-Web is for HTTP/1.1, too.
        for content_type in ["application/grpc-web", "application/json"] {
            assert_eq!(client.ask(call(content_type)).status.as_u16(), 200);
            assert_eq!(upstream.last().version, Version::HTTP_11, "{content_type}");
        }
    }
}

#[test]
fn a_protocol_that_was_chosen_stays() {
    let upstream = server();
    let proxy = Web::to([upstream.address()])
        .cluster("protocol: http1")
        .start();
    let mut client = Client::connect(proxy.listener("web"));
    assert_eq!(client.ask(call("application/grpc")).status.as_u16(), 200);
    assert_eq!(upstream.last().version, Version::HTTP_11);
}

#[test]
fn under_tls_the_endpoint_chooses() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"]);
    for (alpn, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"][..], Version::HTTP_11),
    ] {
        let upstream = Upstream::builder("a")
            .tls(authority.server_config(&identity, alpn, false))
            .answer(|_| Some(answer()))
            .start();
        let proxy = Web::to([upstream.address()])
            .cluster(&format!("tls: {{ca: '{}'}}", authority.file().display()))
            .start();
        // An idle connection of the other version is not used for calls.
        assert_eq!(get(&proxy, "/").status, 200);
        assert_eq!(upstream.last().version, Version::HTTP_11);
        let mut client = Client::connect(proxy.listener("web"));
        assert_eq!(client.ask(call("application/grpc")).status.as_u16(), 200);
        assert_eq!(upstream.last().version, version);
    }
}
