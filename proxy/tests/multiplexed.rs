//! Shared connections, by HTTP/2 and by the mesh transport: how they begin and end, and that nothing outlives
//! a request.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body::Frame;
use maglor_testkit::process::Signal;
use maglor_testkit::{Proxy, RawServer, TIMEOUT, Upstream, eventually, pattern};

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::relay::{Slow, relay};
use crate::support::{Web, outstanding, wait_quiet};
use ::h2::client::SendRequest;

/// Settings for the protocol to a cluster of members.
const PROTOCOLS: [&str; 3] = ["policy: random", "protocol: http2", "protocol: http1"];

/// Starts the proxy of a mesh workload in front of an application.
fn inbound(root: &Root, application: &Upstream) -> Proxy {
    Web::to([application.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .start()
}

fn outbound(root: &Root, endpoint: SocketAddr, cluster: &str) -> Web {
    Web::to([endpoint])
        .top(&root.member("client").yaml())
        .cluster("tls: mesh")
        .cluster(cluster)
}

#[test]
fn requests_with_little_time_find_a_connection_in_the_end() {
    let application = Upstream::start("a");
    let root = Root::new();
    let inbound = inbound(&root, &application);
    let slow = Slow {
        first: Duration::from_millis(600),
        ..Slow::default()
    };
    for protocol in PROTOCOLS {
        // The handshake takes longer than any request's timeout.
        let endpoint = relay(inbound.listener("web"), slow);
        let outbound = outbound(&root, endpoint, protocol)
            .route("timeout: 200ms")
            .start();
        let mut client = Client::connect(outbound.listener("web"));
        assert_eq!(client.ask(h2::get("/")).status.as_u16(), 504, "{protocol}");
        eventually(TIMEOUT, protocol, || {
            client.ask(h2::get("/")).status.as_u16() == 200
        });
        let connections = outbound.metric("maglor_upstream_connections_total", &[]);
        assert!(connections <= 5.0, "{protocol}: {connections}");
    }
}

#[test]
fn an_upload_ends_with_its_response() {
    let answer = [h2_frame(4, 0, 0, &[]), h2_frame(1, 5, 1, &[0x88])].concat();
    let server = RawServer::start(move |connection, _| {
        connection.read_exact(24)?;
        let mut next = || -> std::io::Result<u8> {
            let head = connection.read_exact(9)?;
            connection.read_exact(u16::from_be_bytes([head[1], head[2]]).into())?;
            Ok(head[3])
        };
        while next()? != 1 {}
        connection.send(&answer)?;
        let mut next = || -> std::io::Result<u8> {
            let head = connection.read_exact(9)?;
            connection.read_exact(u16::from_be_bytes([head[1], head[2]]).into())?;
            Ok(head[3])
        };
        // RST_STREAM.
        while next()? != 3 {}
        Ok(())
    });
    let proxy = Web::to([server.address()])
        .cluster("protocol: http2")
        .start();
    let mut client = Client::connect(proxy.listener("web"));
    let (frames, body) = h2::channel();
    // More than the endpoint's window, so that the upload waits for credit that never comes.
    let data = pattern::bytes(200_000);
    frames.send(Ok(Frame::data(data.into()))).unwrap();
    // The client has not ended its request, and never does.
    let answer = client.ask(h2::request("POST", "/", body));
    assert_eq!(answer.status.as_u16(), 200);
    server.finish();
    assert_eq!(outstanding(&proxy), 0.0);
    drop(frames);
}

fn h2_frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

/// Sends a request with an HTTP/2 client that receives informational responses; returns their statuses, the
/// final one, and `link` of each.
fn ask_for_all(
    address: SocketAddr,
    request: http::Request<()>,
    body: &'static str,
) -> Vec<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async move {
        let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection): (SendRequest<Bytes>, _) =
            ::h2::client::handshake(tcp).await.unwrap();
        let driver = tokio::spawn(connection);
        let (mut response, mut upload) = sender.send_request(request, body.is_empty()).unwrap();
        let mut seen = Vec::new();
        let mut note = |head: &http::Response<()>| {
            let link = head
                .headers()
                .get("link")
                .map(|link| link.to_str().unwrap());
            seen.push((head.status().as_u16(), link.unwrap_or_default().to_owned()));
            head.status().as_u16()
        };
        let last = std::future::poll_fn(|cx| {
            while let std::task::Poll::Ready(Some(head)) = response.poll_informational(cx) {
                if note(&head.unwrap()) == 100 {
                    upload.send_data(Bytes::from(body), true).unwrap();
                }
            }
            std::pin::Pin::new(&mut response).poll(cx)
        });
        let last = tokio::time::timeout(TIMEOUT, last).await.unwrap().unwrap();
        note(&last.map(drop));
        drop(driver);
        seen
    })
}

fn get(path: &str) -> http::Request<()> {
    let uri = format!("http://a{path}");
    http::Request::get(uri).body(()).unwrap()
}

#[test]
fn informational_responses_reach_http2_clients() {
    let application = Upstream::start("a");
    let root = Root::new();
    let member = inbound(&root, &application);
    let plain = Web::to([application.address()]).start();
    // Two hops of HTTP/2.
    let second = Web::to([plain.listener("web")])
        .cluster("protocol: http2")
        .start();
    let mesh = outbound(&root, member.listener("web"), "policy: random").start();
    let http2 = outbound(&root, member.listener("web"), "protocol: http2").start();
    for proxy in [&plain, &second, &mesh, &http2] {
        let address = proxy.listener("web");
        let seen = ask_for_all(address, get("/early-hints"), "");
        assert_eq!(
            (seen.len(), seen[0].0, seen[1].0),
            (2, 103, 200),
            "{seen:?}"
        );
        assert!(!seen[0].1.is_empty(), "{seen:?}");
        // The body is sent when the endpoint asks for it.
        let mut post = get("/continue");
        *post.method_mut() = http::Method::POST;
        post.headers_mut()
            .insert("expect", http::HeaderValue::from_static("100-continue"));
        let seen = ask_for_all(address, post, "hello");
        let statuses: Vec<_> = seen.iter().map(|(status, _)| *status).collect();
        assert_eq!(statuses, [100, 200]);
    }
}

#[test]
fn a_connection_that_is_left_loses_nothing_of_its_last_responses() {
    let application = Upstream::start("a");
    let root = Root::new();
    let slow = Slow {
        // The server has sent everything some time before the client has read it, and more than a second
        // after its drain began.
        piece: Duration::from_millis(25),
        ..Slow::default()
    };
    for protocol in PROTOCOLS {
        let mut inbound = inbound(&root, &application);
        let endpoint = relay(inbound.listener("web"), slow);
        let outbound = outbound(&root, endpoint, protocol).start();
        let mut client = Client::connect(outbound.listener("web"));
        let sent: Vec<_> = (0..8)
            .map(|_| client.send(h2::get("/bytes/200000")))
            .collect();
        let heads = client.run(join_all(sent));
        inbound.signal(Signal::Terminate);
        let bodies = heads.into_iter().map(|head| h2::read(head.unwrap()));
        for answer in client.run(join_all(bodies)) {
            let answer = answer.expect(protocol);
            assert!(answer.body == pattern::bytes(200_000), "{protocol}");
        }
        assert!(inbound.wait_exit(TIMEOUT).success(), "{protocol}");
    }
}

#[test]
fn a_client_of_http2_loses_nothing_when_its_connection_is_left() {
    let application = Upstream::start("a");
    let slow = Slow {
        // The server has sent everything some time before the client has read it, and more than a second
        // after its drain began.
        piece: Duration::from_millis(25),
        ..Slow::default()
    };
    let mut proxy = Web::to([application.address()]).start();
    let mut client = Client::connect(relay(proxy.listener("web"), slow));
    let sent: Vec<_> = (0..8)
        .map(|_| client.send(h2::get("/bytes/200000")))
        .collect();
    let heads = client.run(join_all(sent));
    proxy.signal(Signal::Terminate);
    let bodies = heads.into_iter().map(|head| h2::read(head.unwrap()));
    for answer in client.run(join_all(bodies)) {
        assert!(answer.expect("a whole response").body == pattern::bytes(200_000));
    }
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn connections_that_stand_still_end_with_their_last_request() {
    let application = Upstream::start("a");
    let proxy = Web::to([application.address()])
        .http("idle_timeout: 1s")
        .start();
    let mut client = Client::connect(proxy.listener("web"));
    assert_eq!(client.ask(h2::get("/")).text(), "a");
    eventually(TIMEOUT, "the connection is closed", || client.is_closed());
    wait_quiet(&proxy);
}
