//! Frames that cost their sender almost nothing: floods of them end the connection, and only that one.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

use maglor_testkit::{RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::{self, Web};

/// More frames than any limit allows.
const MANY: u32 = 400_000;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// GET, http, / and the authority `a`, from the static table of HPACK.
const GET: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
/// The same with POST and `/hang`.
const POST: [u8; 11] = [0x83, 0x86, 0x44, 5, b'/', b'h', b'a', b'n', b'g', 0x41, 1];

/// Sends frames until the connection is closed; returns the code of the last GOAWAY, and how many were sent.
fn flood(address: SocketAddr, first: &[u8], mut next: impl FnMut(u32) -> Vec<u8>) -> (u32, u32) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut reading = client.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut code = None;
        loop {
            let mut head = [0; 9];
            if reading.read_exact(&mut head).is_err() {
                return code;
            }
            seen.resize(usize::from(u16::from_be_bytes([head[1], head[2]])), 0);
            if reading.read_exact(&mut seen).is_err() {
                return code;
            }
            if head[3] == 7 {
                code = Some(u32::from_be_bytes(seen[4..8].try_into().unwrap()));
            }
        }
    });
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    client.write_all(&frame(4, 0, 0, &[])).unwrap();
    client.write_all(first).unwrap();
    let mut sent = 0;
    while sent < MANY {
        let frames: Vec<u8> = (0..100)
            .flat_map(|_| {
                sent += 1;
                next(sent)
            })
            .collect();
        if client.write_all(&frames).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Write);
    (reader.join().unwrap().expect("a GOAWAY"), sent)
}

#[test]
fn floods_of_http2_frames_are_answered_with_goaway() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let address = proxy.listener("web");
    let mut victim = Client::connect(address);
    let open = [frame(1, 4, 1, &[&POST[..], b"a"].concat())].concat();
    let begun = frame(1, 0, 1, &GET);
    let stream = |n: u32| 2 * n + 1;
    type Next = Box<dyn FnMut(u32) -> Vec<u8>>;
    let cases: [(&str, Vec<u8>, Next); 10] = [
        ("SETTINGS", vec![], Box::new(|_| frame(4, 0, 0, &[]))),
        ("PING", vec![], Box::new(|_| frame(6, 0, 0, &[0; 8]))),
        (
            "acknowledged PING",
            vec![],
            Box::new(|_| frame(6, 1, 0, &[0; 8])),
        ),
        (
            "PRIORITY",
            vec![],
            Box::new(|n| frame(2, 0, 2 * (n % 1000) + 1, &[0, 0, 0, 0, 9])),
        ),
        (
            "WINDOW_UPDATE",
            vec![],
            Box::new(|_| frame(8, 0, 0, &[0, 0, 0, 1])),
        ),
        (
            "WINDOW_UPDATE of a stream",
            open.clone(),
            Box::new(|_| frame(8, 0, 1, &[0, 0, 0, 1])),
        ),
        ("unknown", vec![], Box::new(|_| frame(200, 0, 0, &[]))),
        ("empty DATA", open, Box::new(|_| frame(0, 0, 1, &[]))),
        (
            "empty CONTINUATION",
            begun,
            Box::new(|_| frame(9, 0, 1, &[])),
        ),
        (
            "RST_STREAM",
            vec![],
            Box::new(move |n| {
                [
                    frame(1, 5, stream(n), &GET),
                    frame(3, 0, stream(n), &[0, 0, 0, 8]),
                ]
                .concat()
            }),
        ),
    ];
    for (what, first, next) in cases {
        let (code, sent) = flood(address, &first, next);
        assert_eq!(code, ENHANCE_YOUR_CALM, "{what}");
        assert!(sent < MANY, "{what}");
        assert_eq!(victim.ask(h2::get("/")).text(), "a", "{what}");
    }
}

#[test]
fn a_flood_from_an_endpoint_ends_its_connection() {
    let server = maglor_testkit::RawServer::start(|connection, _| {
        connection.read_exact(24)?;
        connection.send(frame(4, 0, 0, &[]))?;
        let pings = frame(6, 1, 0, &[0; 8]).repeat(1000);
        for _ in 0..400 {
            if connection.send(&pings).is_err() {
                return Ok(());
            }
        }
        Err(std::io::Error::other("the flood has no end"))
    });
    let proxy = Web::to([server.address()])
        .cluster("protocol: http2")
        .start();
    assert_eq!(support::get(&proxy, "/").status, 502);
    server.finish();
}

/// Returns a frame of the mesh transport.
fn member_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

#[test]
fn floods_of_the_mesh_transport_are_answered_with_goaway() {
    let root = Root::new();
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .top(&root.member("server").yaml())
        .listener("tls: mesh")
        .start();
    let get = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    type Next = Box<dyn FnMut(u32) -> Vec<u8>>;
    let cases: [(&str, usize, Next); 6] = [
        (
            "HEAD and RESET",
            0,
            Box::new(|n| {
                [
                    member_frame(1, 1, n, get),
                    member_frame(3, 0, n, &[0, 0, 0, 1]),
                ]
                .concat()
            }),
        ),
        ("PING", 16, Box::new(|_| member_frame(5, 0, 0, &[0; 8]))),
        ("PONG", 0, Box::new(|_| member_frame(6, 0, 0, &[0; 8]))),
        (
            "WINDOW",
            0,
            Box::new(|_| member_frame(4, 0, 0, &[0, 0, 0, 1])),
        ),
        ("unknown", 0, Box::new(|_| member_frame(99, 0, 0, &[]))),
        (
            "a head without end",
            0,
            Box::new(|_| member_frame(1, 2, 1, &[])),
        ),
    ];
    for (number, (what, answer, mut next)) in (1..).zip(cases) {
        let config = root.member("client").client("maglor/1");
        let client = RawHttp1::connect_tls(proxy.listener("web"), "a.test", config);
        let mut client = client.into_connection();
        // SETTINGS.
        client.read_exact(12).unwrap();
        let mut sent = 0;
        while sent < MANY {
            let frames: Vec<u8> = (0..100)
                .flat_map(|_| {
                    sent += 1;
                    next(sent)
                })
                .collect();
            if client.send(&frames).is_err()
                || (answer > 0 && client.read_exact(100 * answer).is_err())
            {
                break;
            }
        }
        assert!(sent < MANY, "{what}");
        eventually(TIMEOUT, what, || {
            proxy.metric(
                "maglor_mesh_connections_failed_total",
                &["reason=\"flood\""],
            ) == f64::from(number)
        });
    }
}
