//! Handwritten frames: what a mesh workload may send, and what ends its stream or its connection.

use maglor_testkit::{Proxy, RawConnection, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support::mesh::Root;
use crate::support::{self, Web};

const DATA: u8 = 0;
const HEAD: u8 = 1;
const RESET: u8 = 3;
const WINDOW: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;
const GOAWAY: u8 = 7;
const SETTINGS: u8 = 8;
const END: u8 = 1;

/// A received frame.
#[derive(Debug, Eq, PartialEq)]
struct Seen {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A member that sends handwritten frames.
struct Raw(RawConnection);

fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

impl Raw {
    fn send(&mut self, frames: impl AsRef<[u8]>) {
        self.0.send(frames).unwrap();
    }

    fn next(&mut self) -> Seen {
        let header = self.0.read_exact(8).unwrap();
        let length = u16::from_be_bytes([header[0], header[1]]);
        Seen {
            kind: header[2],
            flags: header[3],
            stream: u32::from_be_bytes(header[4..8].try_into().unwrap()),
            payload: self.0.read_exact(length.into()).unwrap(),
        }
    }

    /// Reads the head of the response on a stream.
    fn head(&mut self, stream: u32) -> String {
        let seen = self.next();
        assert_eq!((seen.kind, seen.stream), (HEAD, stream), "{seen:?}");
        String::from_utf8(seen.payload).unwrap()
    }

    /// Asserts that the connection ends with a GOAWAY of this last stream.
    fn assert_gone(mut self, last: u32, what: &str) {
        let seen = self.next();
        let word = [&last.to_be_bytes()[..], &[0, 0, 0, 3]].concat();
        assert_eq!((seen.kind, seen.payload), (GOAWAY, word), "{what}");
        assert!(self.0.read_exact(1).is_err(), "{what}");
    }
}

struct Fixture {
    proxy: Proxy,
    root: Root,
    application: Upstream,
}

impl Fixture {
    fn start(http: &str) -> Self {
        let root = Root::new();
        let application = Upstream::start("a");
        let proxy = Web::to([application.address()])
            .top(&root.member("server").yaml())
            .listener("tls: mesh")
            .http(http)
            .start();
        Self {
            proxy,
            root,
            application,
        }
    }

    fn connect(&self) -> Raw {
        let config = self.root.member("client").client("maglor/1");
        let client = RawHttp1::connect_tls(self.proxy.listener("web"), "a.test", config);
        let mut raw = Raw(client.into_connection());
        let first = raw.next();
        assert_eq!((first.kind, first.stream), (SETTINGS, 0));
        raw
    }

    fn failed(&self, reason: &str) -> f64 {
        let reason = format!("reason=\"{reason}\"");
        self.proxy
            .metric("maglor_mesh_connections_failed_total", &[&reason])
    }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn a_request_by_hand() {
    let fixture = Fixture::start("max_concurrent_streams: 2");
    let mut raw = fixture.connect();
    raw.send(frame(PING, 0, 0, 7_u64.to_be_bytes()));
    let pong = raw.next();
    assert_eq!(
        (pong.kind, pong.payload),
        (PONG, 7_u64.to_be_bytes().to_vec())
    );
    raw.send(frame(HEAD, END, 1, GET));
    let head = raw.head(1);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-length: 1\r\n") && head.ends_with("\r\n\r\n"));
    let data = raw.next();
    assert_eq!(
        (data.kind, data.flags, &data.payload[..]),
        (DATA, END, &b"a"[..])
    );
    // Unknown frame types of later versions are skipped, and stream numbers may have gaps.
    raw.send(frame(77, 255, 3, "whatever"));
    raw.send(frame(
        HEAD,
        0,
        9,
        "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n",
    ));
    raw.send(frame(DATA, 0, 9, "ab"));
    raw.send(frame(DATA, END, 9, "cd"));
    assert!(raw.head(9).starts_with("HTTP/1.1 200 OK"));
    let body = raw.next();
    assert!(
        String::from_utf8_lossy(&body.payload).contains("\"bytes\":4"),
        "{body:?}"
    );
}

#[test]
fn what_two_parsers_could_read_differently_is_refused_on_its_stream() {
    let fixture = Fixture::start("max_header_bytes: 4096");
    let mut raw = fixture.connect();
    let long = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
        "x".repeat(5000)
    );
    let cases = [
        (
            "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.1\r\nhost: a\r\nconnection: x\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\nhost: a\n\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.1\r\nhost: a\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n",
            "400",
        ),
        ("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n", "405"),
        (&long, "431"),
    ];
    for (stream, (text, status)) in (1..).zip(cases) {
        raw.send(frame(HEAD, END, stream, text));
        let head = raw.head(stream);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{text:?}: {head}"
        );
        while raw.next().flags & END == 0 {}
    }
    assert_eq!(fixture.application.requests(), 0);
    assert_eq!(fixture.failed(""), 0.0);
}

#[test]
fn a_body_of_another_length_than_announced_is_cut_off() {
    let fixture = Fixture::start("max_concurrent_streams: 9");
    let mut raw = fixture.connect();
    let post = "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n";
    for (stream, (flags, body)) in (1..).zip([(0, "abcde"), (END, "abc")]) {
        raw.send(frame(HEAD, 0, stream, post));
        raw.send(frame(DATA, flags, stream, body));
        let seen = raw.next();
        assert_eq!((seen.kind, seen.stream), (RESET, stream));
        assert_eq!(seen.payload, [0, 0, 0, 3]);
    }
    raw.send(frame(HEAD, END, 5, GET));
    assert!(raw.head(5).starts_with("HTTP/1.1 200"));
}

#[test]
fn streams_above_the_limit_are_refused_and_those_before_live() {
    let fixture = Fixture::start("max_concurrent_streams: 2");
    let mut raw = fixture.connect();
    // In one write, and only the first is ever answered: the order of the responses is certain.
    let requests: Vec<u8> = (1..)
        .zip(["/delay/200ms", "/hang", "/"])
        .flat_map(|(stream, path)| {
            let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            frame(HEAD, END, stream, head)
        })
        .collect();
    raw.send(requests);
    let seen = raw.next();
    assert_eq!(
        (seen.kind, seen.stream, &seen.payload[..]),
        (RESET, 3, &[0, 0, 0, 2][..])
    );
    assert!(raw.head(1).starts_with("HTTP/1.1 200"));
}

#[test]
fn what_makes_no_sense_costs_the_connection_and_is_counted() {
    let fixture = Fixture::start("max_concurrent_streams: 9");
    let long = [0xff, 0xff, DATA, 0, 0, 0, 0, 1];
    let cases: [(&str, Vec<u8>, u32); 9] = [
        ("a frame that is too long", long.to_vec(), 0),
        ("data of no stream", frame(DATA, END, 0, "x"), 0),
        ("data of a stream to come", frame(DATA, END, 3, "x"), 0),
        (
            "credit for a stream to come",
            frame(WINDOW, 0, 3, [0, 0, 0, 1]),
            0,
        ),
        ("no credit", frame(WINDOW, 0, 0, [0; 4]), 0),
        (
            "too much credit",
            frame(WINDOW, 0, 0, [0x7f, 0xff, 0xff, 0xff]),
            0,
        ),
        ("a short reset", frame(RESET, 0, 1, [0; 2]), 0),
        (
            "a stream twice",
            [frame(HEAD, END, 4, "x"), frame(HEAD, END, 4, "x")].concat(),
            4,
        ),
        (
            "a frame in a head",
            [frame(HEAD, 2, 1, "GET"), frame(PING, 0, 0, [0; 8])].concat(),
            0,
        ),
    ];
    for (number, (what, bytes, last)) in (1..).zip(cases) {
        let mut raw = fixture.connect();
        raw.send(bytes);
        raw.assert_gone(last, what);
        eventually(TIMEOUT, what, || {
            fixture.failed("malformed") == f64::from(number)
        });
    }
}

#[test]
fn more_than_the_window_costs_the_connection() {
    let fixture = Fixture::start("max_concurrent_streams: 9");
    let mut raw = fixture.connect();
    raw.send(frame(HEAD, 0, 1, "POST /hang HTTP/1.1\r\nhost: a\r\n\r\n"));
    for _ in 0..200 {
        // The connection may be closed before everything is sent.
        if raw.0.send(frame(DATA, 0, 1, [1; 16_000])).is_err() {
            break;
        }
    }
    eventually(TIMEOUT, "it is counted", || {
        fixture.failed("malformed") == 1.0
    });
    eventually(TIMEOUT, "nothing is under way", || {
        support::outstanding(&fixture.proxy) == 0.0
    });
}

#[test]
fn windows_are_kept_and_heads_need_none() {
    let fixture = Fixture::start("max_concurrent_streams: 99");
    let mut raw = fixture.connect();
    for stream in 1..=17 {
        let request = "GET /bytes/200000 HTTP/1.1\r\nhost: a\r\n\r\n";
        raw.send(frame(HEAD, END, stream, request));
    }
    let mut sent = [0; 18];
    let (mut all, mut heads) = (0, 0);
    // The connection's window has the size of sixteen stream windows.
    while all < 1 << 20 || heads < 17 {
        let seen = raw.next();
        if seen.kind == DATA {
            sent[seen.stream as usize] += seen.payload.len();
            all += seen.payload.len();
        }
        heads += i32::from(seen.kind == HEAD);
    }
    assert_eq!(all, 1 << 20);
    assert!(sent.iter().all(|sent| *sent <= 1 << 16), "{sent:?}");
    raw.send(frame(HEAD, END, 40, GET));
    assert!(raw.head(40).starts_with("HTTP/1.1 200"));
    raw.send(frame(RESET, 0, 40, [0, 0, 0, 1]));
    // A larger connection window is of no use to a stream that has used up its own.
    raw.send(frame(WINDOW, 0, 0, (1_u32 << 24).to_be_bytes()));
    for stream in 1..=17 {
        raw.send(frame(WINDOW, 0, stream, (1_u32 << 20).to_be_bytes()));
    }
    let mut ended = 0;
    while ended < 17 {
        let seen = raw.next();
        if seen.kind == DATA && seen.stream != 40 {
            sent[seen.stream as usize] += seen.payload.len();
            ended += i32::from(seen.flags & END != 0);
        }
    }
    assert!(sent[1..].iter().all(|sent| *sent == 200_000), "{sent:?}");
}

#[test]
fn who_asks_and_never_reads_is_left() {
    let fixture = Fixture::start("max_concurrent_streams: 9");
    let mut raw = fixture.connect();
    let mut stream = 0;
    let mut many = || {
        let more = stream + 1..=stream + 4096;
        stream += 4096;
        let head = |stream| frame(HEAD, END, stream, "GET /hang HTTP/1.1\r\nhost: a\r\n\r\n");
        more.flat_map(head).collect::<Vec<_>>()
    };
    // All but a few are refused, and the client does not read the refusals.
    eventually(TIMEOUT, "it is counted", || {
        let _ = raw.0.send(many());
        fixture.failed("backlog") == 1.0
    });
}

#[test]
fn a_response_whose_end_is_never_taken_has_a_time_limit() {
    let fixture = Fixture::start("stream_idle_timeout: 1s");
    let mut raw = fixture.connect();
    let request = "GET /bytes/80000 HTTP/1.1\r\nhost: a\r\n\r\n";
    raw.send(frame(HEAD, END, 1, request));
    let mut taken = 0;
    let last = loop {
        let seen = raw.next();
        if seen.kind != DATA {
            taken += i32::from(seen.kind == HEAD);
            if seen.kind != HEAD {
                break seen;
            }
        }
    };
    assert_eq!((taken, last.kind, last.stream), (1, RESET, 1), "{last:?}");
    assert_eq!(last.payload, [0, 0, 0, 4]);
    raw.send(frame(HEAD, END, 2, GET));
    assert!(raw.head(2).starts_with("HTTP/1.1 200"));
}

#[test]
fn streams_that_fail_cost_the_connection_no_credit() {
    let fixture = Fixture::start("max_concurrent_streams: 9");
    let mut raw = fixture.connect();
    let post = "POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n";
    // Together far more than the connection's window.
    let mut credit = 1_i64 << 20;
    for stream in 1..=200 {
        raw.send(frame(HEAD, 0, stream, post));
        raw.send(frame(DATA, 0, stream, [1; 16_000]));
        credit -= 16_000;
        assert!(credit > 0, "{stream}");
        loop {
            let seen = raw.next();
            if seen.kind == WINDOW && seen.stream == 0 {
                let bytes = u32::from_be_bytes(seen.payload.try_into().unwrap());
                credit += i64::from(bytes);
            } else if seen.kind == RESET {
                assert_eq!(seen.stream, stream);
                break;
            }
        }
    }
}
