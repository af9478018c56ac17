//! HTTP/2: responses without a body, including the proxy's own, and connections that are closed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use maglor_testkit::process::Signal;
use maglor_testkit::{RawServer, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::{Web, connect, get, start};

#[test]
fn own_answers_to_head_have_no_body_and_cost_no_connection() {
    let proxy = start(
        "listeners:\n- name: web\n  address: 127.0.0.1:0\n  http: {virtual_hosts: [{domains: ['*'], \
         routes: [{match: {path: /here}, direct_response: {status: 200, body: hello}}, \
         {match: {path: /there}, redirect: {path: /here}}, \
         {match: {path: /none}, cluster: none}]}]}\nclusters: [{name: none, endpoints: []}]\n",
    );
    let mut client = Client::connect(proxy.listener("web"));
    for (path, status) in [("/here", 200), ("/there", 301), ("/none", 503), ("/x", 404)] {
        let answer = client.ask(h2::request("HEAD", path, h2::empty()));
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (status, ""),
            "{path}"
        );
        assert_eq!(client.ask(h2::get(path)).status.as_u16(), status, "{path}");
    }
    assert_eq!(client.ask(h2::get("/here")).text(), "hello");
}

#[test]
fn an_endpoint_that_takes_few_requests_on_a_connection_gets_more_connections() {
    let upstream = Upstream::start("a");
    let endpoint = Web::to([upstream.address()])
        .http("max_concurrent_streams: 2")
        .start();
    let proxy = Web::to([endpoint.listener("web")])
        .cluster("protocol: http2")
        .start();
    // It announces that when it is first connected to.
    assert_eq!(get(&proxy, "/").text(), "a");
    let mut clients = Vec::new();
    for number in 1..=8 {
        let mut client = connect(&proxy);
        client.send("GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
        clients.push(client);
        eventually(TIMEOUT, "no request waits for the end of another", || {
            upstream.requests() == number + 1
        });
    }
    let connections = proxy.metric("maglor_upstream_open_connections", &[]);
    assert_eq!(connections, 4.0);
}

#[test]
fn what_an_endpoint_did_wrong_is_said() {
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")?;
        connection.read_to_end().map(drop)
    });
    let proxy = Web::to([server.address()])
        .cluster("protocol: http2")
        .start();
    let answer = get(&proxy, "/");
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.text(),
        "upstream HTTP/2: a frame longer than 16384 bytes\n"
    );
}

#[test]
fn hosts_that_are_none_are_refused() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = Client::connect(proxy.listener("web"));
    for (uri, status) in [
        ("http://a/", 200),
        ("http://a:80/", 200),
        ("http://[::1]/", 200),
        ("http://u:p@a/", 400),
        ("http://a@b.example/", 400),
    ] {
        let mut request = h2::get("/");
        *request.uri_mut() = uri.parse().unwrap();
        assert_eq!(client.ask(request).status.as_u16(), status, "{uri}");
    }
    assert_eq!(upstream.requests(), 3);
}

#[test]
fn what_is_no_http_is_closed_without_an_answer() {
    let upstream = Upstream::start("a");
    for protocol in ["auto", "http2"] {
        let proxy = Web::to([upstream.address()])
            .http(&format!("protocol: {protocol}"))
            .start();
        let mut client = TcpStream::connect(proxy.listener("web")).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
            .write_all(b"INVALID CONNECTION PREFACE\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        // A reset would be an error.
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"", "{protocol}");
    }
}

#[test]
fn streams_that_cross_the_goodbye_are_taken() {
    let upstream = Upstream::start("a");
    let mut proxy = Web::to([upstream.address()]).start();
    let address = proxy.listener("web");
    let mut client = shake_hands(address);
    proxy.signal(Signal::Terminate);
    eventually(TIMEOUT, "new connections are rejected", || {
        TcpStream::connect(address).is_err()
    });
    let (goodbye, _) = read_until(&mut client, |kind, _| kind == 7);
    assert_eq!(goodbye, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    // GET, http, / and the authority `a`, from the static table of HPACK.
    let get = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    client.write_all(&frame(1, 5, 1, &get)).unwrap();
    let (body, flags) = read_until(&mut client, |kind, stream| kind == 0 && stream == 1);
    assert_eq!((body.as_slice(), flags & 1), (&b"a"[..], 1));
    drop(client);
    assert!(proxy.wait_exit(TIMEOUT).success());
}

#[test]
fn fields_and_targets_are_what_http1_would_have_them_be() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("match: {headers: [{name: x-a, exact: b}]}")
        .start();
    let mut client = shake_hands(proxy.listener("web"));
    // GET, http, / and the authority `a`, from the static table of HPACK; then names and values.
    let mut get = vec![0x82, 0x86, 0x84, 0x41, 1, b'a'];
    for (name, value) in [
        ("x-a", "b"),
        ("content-length", "3"),
        ("content-length", "3"),
    ] {
        get.extend([0, name.len() as u8]);
        get.extend(name.as_bytes());
        get.push(value.len() as u8);
        get.extend(value.as_bytes());
    }
    client.write_all(&frame(1, 4, 1, &get)).unwrap();
    client.write_all(&frame(0, 1, 1, b"xyz")).unwrap();
    let (body, _) = read_until(&mut client, |kind, stream| kind == 0 && stream == 1);
    assert_eq!(body, b"a");
    let lengths = upstream.last().headers;
    let lengths: Vec<_> = lengths.get_all("content-length").iter().collect();
    assert_eq!(lengths, ["3"]);
    // The target for the server as a whole is for OPTIONS only.
    let whole = [0x82, 0x86, 0x44, 1, b'*', 0x41, 1, b'a'];
    client.write_all(&frame(1, 5, 3, &whole)).unwrap();
    let (body, _) = read_until(&mut client, |kind, stream| kind == 0 && stream == 3);
    assert_eq!(body, b"malformed request: malformed request target\n");
    // White space at an end of a value would not be part of the value for an endpoint (RFC 9113, section
    // 8.2.1).
    let mut blank = vec![0x82, 0x86, 0x84, 0x41, 1, b'a', 0, 3];
    blank.extend(b"x-a\x03 b\t");
    client.write_all(&frame(1, 5, 5, &blank)).unwrap();
    let (code, _) = read_until(&mut client, |kind, stream| kind == 3 && stream == 5);
    assert_eq!(code, [0, 0, 0, 1], "PROTOCOL_ERROR");
    assert_eq!(upstream.requests(), 1);
}

#[test]
fn a_malformed_request_costs_its_own_stream_while_others_go_on() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = shake_hands(proxy.listener("web"));
    let post = |path: &[u8]| {
        let mut head = vec![0x83, 0x86, 0x44, path.len() as u8];
        head.extend(path);
        head.extend([0x41, 1, b'a']);
        head
    };
    // An upload and a download are in progress all the time.
    client
        .write_all(&frame(1, 4, 1, &post(b"/upload")))
        .unwrap();
    client.write_all(&frame(0, 0, 1, b"half")).unwrap();
    let mut drip = post(b"/drip/20/20ms");
    drip[0] = 0x82;
    client.write_all(&frame(1, 5, 3, &drip)).unwrap();
    eventually(TIMEOUT, "both have begun", || upstream.requests() >= 2);
    let bad: [&[u8]; 6] = [
        b"\0\x01X\x01y",
        b"\0\x01x\x03a\rb",
        b"\0\x0aconnection\x05close",
        b"\0\x05:path\x01/",
        b"\0\x0econtent-length\x01x",
        b"\x40\x02te\x04gzip",
    ];
    let mut dripped = 0;
    let mut ended = [false; 2];
    for (number, fields) in bad.iter().enumerate() {
        let stream = 5 + 2 * number as u8;
        let head = [&post(b"/x")[..], fields].concat();
        client.write_all(&frame(1, 5, stream, &head)).unwrap();
        let code = loop {
            let mut is_data = false;
            let (payload, flags) = read_until(&mut client, |kind, of| {
                is_data = kind == 0 && of == 3;
                is_data || kind == 3 && of == stream
            });
            if !is_data {
                break payload;
            }
            dripped += payload.len();
            ended[1] |= flags & 1 == 1;
        };
        assert_eq!(code, [0, 0, 0, 1], "{number}");
    }
    client.write_all(&frame(0, 1, 1, b" and half")).unwrap();
    while ended != [true; 2] {
        let mut of = 0;
        let (body, flags) = read_until(&mut client, |kind, stream| {
            of = stream;
            kind == 0
        });
        match of {
            1 => assert!(
                String::from_utf8_lossy(&body).contains("\"bytes\":13"),
                "{body:?}"
            ),
            _ => dripped += body.len(),
        }
        ended[usize::from(of / 2)] |= flags & 1 == 1;
    }
    assert_eq!(dripped, 200);
    assert_eq!(upstream.requests(), 2);
}

#[test]
fn what_is_not_sent_to_its_end_has_a_time_limit() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("header_timeout: 300ms")
        .start();
    let get = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let cases: [(&str, Vec<u8>); 4] = [
        ("a preface", b"PRI * HTTP/2.0\r\n\r\n".to_vec()),
        ("no settings", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("a block", [shake(), frame(1, 1, 1, &get)].concat()),
        (
            "a frame of a block",
            [shake(), frame(1, 5, 1, &get)[..12].to_vec()].concat(),
        ),
    ];
    for (what, bytes) in cases {
        let mut client = TcpStream::connect(proxy.listener("web")).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(&bytes).unwrap();
        // The end, not a reset.
        client.read_to_end(&mut Vec::new()).expect(what);
    }
    assert_eq!(upstream.requests(), 0);
    // A body may arrive arbitrarily slowly.
    let mut client = shake_hands(proxy.listener("web"));
    client
        .write_all(&frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']))
        .unwrap();
    let data = frame(0, 1, 1, b"abc");
    client.write_all(&data[..10]).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    client.write_all(&data[10..]).unwrap();
    let (body, _) = read_until(&mut client, |kind, stream| kind == 0 && stream == 1);
    assert_eq!(body, b"a");
}

#[test]
fn a_request_whose_answer_is_sent_early_is_given_up_without_error() {
    let proxy = start(
        "listeners:\n- name: web\n  address: 127.0.0.1:0\n  http: {virtual_hosts: [{domains: ['*'], \
         routes: [{direct_response: {status: 200, body: hello}}]}]}\nclusters: []\n",
    );
    let mut client = shake_hands(proxy.listener("web"));
    client
        .write_all(&frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']))
        .unwrap();
    let (body, flags) = read_until(&mut client, |kind, stream| kind == 0 && stream == 1);
    assert_eq!((&body[..], flags), (&b"hello"[..], 1));
    let (code, _) = read_until(&mut client, |kind, stream| kind == 3 && stream == 1);
    assert_eq!(code, [0; 4], "NO_ERROR");
    // Late frames have no effect.
    client.write_all(&frame(0, 1, 1, b"late")).unwrap();
    client
        .write_all(&frame(1, 5, 3, &[0x82, 0x86, 0x84, 0x41, 1, b'a']))
        .unwrap();
    let (body, _) = read_until(&mut client, |kind, stream| kind == 0 && stream == 3);
    assert_eq!(body, b"hello");
}

#[test]
fn a_request_that_is_reset_without_error_does_not_look_whole() {
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        let body = connection.read_to_end()?;
        assert_eq!(body, b"3\r\nabc\r\n");
        Ok(())
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = shake_hands(proxy.listener("web"));
    // POST instead of GET.
    let post = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    client.write_all(&frame(1, 4, 1, &post)).unwrap();
    client.write_all(&frame(0, 0, 1, b"abc")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    client.write_all(&frame(3, 0, 1, &[0; 4])).unwrap();
    eventually(TIMEOUT, "a request", || server.connections() == 1);
    server.finish();
}

#[test]
fn a_response_that_is_reset_without_error_does_not_look_whole() {
    let reset = frame(3, 0, 1, &[0; 4]);
    for (flags, whole) in [(0, false), (1, true)] {
        let answer = [
            frame(4, 0, 0, &[]),
            frame(1, 4, 1, &[0x88]),
            frame(0, flags, 1, b"half"),
            reset.clone(),
        ];
        let server = RawServer::start(move |connection, _| {
            // The preface, then frames up to the head of the request.
            connection.read_exact(24)?;
            loop {
                let head = connection.read_exact(9)?;
                connection.read_exact(u16::from_be_bytes([head[1], head[2]]).into())?;
                if head[3] == 1 {
                    break;
                }
            }
            connection.send(answer.concat())?;
            connection.read_to_end().map(drop)
        });
        let proxy = Web::to([server.address()])
            .cluster("protocol: http2")
            .start();
        let mut client = connect(&proxy);
        // The body is incomplete, which is the purpose of such a reset.
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n");
        let head = client.connection().read_head().unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let end = client.connection().read_to_end();
        let is_whole = end.is_ok_and(|body| body.ends_with(b"0\r\n\r\n"));
        assert_eq!(is_whole, whole);
    }
}

#[test]
fn pseudo_headers_that_are_malformed_cost_their_stream() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = shake_hands(proxy.listener("web"));
    let authority = [0x41, 1, b'a'];
    // GET with a scheme or a path of its own.
    let cases: [(&str, &[u8]); 6] = [
        ("an empty scheme", &[0x82, 0x46, 0, 0x84]),
        ("no scheme", &[0x82, 0x84]),
        ("an empty path", &[0x82, 0x86, 0x44, 0]),
        ("no path", &[0x82, 0x86]),
        ("a query alone", &[0x82, 0x86, 0x44, 2, b'?', b'x']),
        ("a path without slash", &[0x82, 0x86, 0x44, 1, b'x']),
    ];
    let mut stream = 1;
    for (what, fields) in cases {
        let fields = [fields, &authority].concat();
        client.write_all(&frame(1, 5, stream, &fields)).unwrap();
        // A stream error, or 400: never the end of the connection.
        let wanted = |kind, of| kind == 7 || (of == stream && matches!(kind, 0 | 3));
        let (answer, _) = read_until(&mut client, wanted);
        let reset = answer == [0, 0, 0, 1];
        let refused = answer == b"malformed request: malformed request target\n";
        assert!(reset || refused, "{what}: {answer:?}");
        stream += 2;
    }
    assert_eq!(upstream.requests(), 0);
    let get = [&[0x82, 0x86, 0x84][..], &authority].concat();
    client.write_all(&frame(1, 5, stream, &get)).unwrap();
    let (body, _) = read_until(&mut client, |kind, of| kind == 0 && of == stream);
    assert_eq!(body, b"a");
}

#[test]
fn a_response_whose_end_is_never_read_has_a_time_limit() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("stream_idle_timeout: 1s")
        .start();
    let mut client = shake_hands(proxy.listener("web"));
    // More than the window of the client, and less than the proxy reads ahead.
    let path = b"/bytes/80000";
    let mut get = vec![0x82, 0x86, 0x44, path.len() as u8];
    get.extend(path);
    get.extend([0x41, 1, b'a']);
    client.write_all(&frame(1, 5, 1, &get)).unwrap();
    let (code, _) = read_until(&mut client, |kind, stream| kind == 3 && stream == 1);
    assert_eq!(code, [0, 0, 0, 2], "INTERNAL_ERROR");
}

#[test]
fn a_refusal_that_is_never_read_has_a_time_limit() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .http("stream_idle_timeout: 300ms")
        .start();
    let mut client = shake_hands(proxy.listener("web"));
    let no_window = [0, 4, 0, 0, 0, 0];
    client.write_all(&frame(4, 0, 0, &no_window)).unwrap();
    let connect = [&[0x42, 7][..], b"CONNECT", &[0x41, 1, b'a']].concat();
    let malformed = [0x82, 0x86, 0x44, 1, b'*', 0x41, 1, b'a'];
    for (stream, request) in [(1, &connect[..]), (3, &malformed)] {
        client.write_all(&frame(1, 5, stream, request)).unwrap();
        let (code, _) = read_until(&mut client, |kind, of| kind == 3 && of == stream);
        assert_eq!(code, [0, 0, 0, 2], "INTERNAL_ERROR");
    }
    assert_eq!(upstream.requests(), 0);
}

/// Returns a connection after the preface, settings without change, and the acknowledgement of the proxy's.
fn shake_hands(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(&shake()).unwrap();
    client
}

/// Returns the preface, settings without change, and the acknowledgement of the proxy's.
fn shake() -> Vec<u8> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    [&preface[..], &frame(4, 0, 0, &[]), &frame(4, 1, 0, &[])].concat()
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
    [&head, payload].concat()
}

/// Returns the payload and flags of the first frame that is wanted, by type and stream.
fn read_until(client: &mut TcpStream, mut wanted: impl FnMut(u8, u8) -> bool) -> (Vec<u8>, u8) {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u16::from_be_bytes([head[1], head[2]]).into()];
        client.read_exact(&mut payload).unwrap();
        if wanted(head[3], head[8]) {
            return (payload, head[4]);
        }
    }
}
