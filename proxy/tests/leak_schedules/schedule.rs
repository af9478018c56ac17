//! The behaviour of clients, drawn from a seed.

use std::fmt;
use std::time::Duration;

use maglor_balance::Rng;

/// Paths that select the behaviour of servers, see `maglor_testkit::upstream`.
const BEHAVIOURS: [&str; 25] = [
    "/bytes/0",
    "/bytes/100",
    "/bytes/20000",
    "/bytes/200000",
    "/bytes/1000000",
    "/chunked/30000",
    "/chunked/300000",
    "/drip/5/20ms",
    "/drip/50/10ms",
    "/stall/1000",
    "/stall/100000",
    "/hang",
    "/close",
    "/close-after-head",
    "/early/200",
    "/early/200/100",
    "/early/413",
    "/early/200/300000",
    "/early/503",
    "/delay/30ms",
    "/delay/400ms",
    "/status/503",
    "/upload",
    "/trailers",
    "/early-hints",
];
/// Those that leave an upload unfinished, or read it whole.
const OF_UPLOADS: [&str; 7] = [
    "/early/200",
    "/early/200/100",
    "/early/413",
    "/early/200/300000",
    "/early/503",
    "/upload",
    "/hang",
];
/// The first part of a path chooses the transport to the server, the second one the route's policy.
const TRANSPORTS: [&str; 4] = ["h1", "h2", "mesh", "mesh2"];
const POLICIES: [&str; 5] = ["plain", "retry", "hedge", "mirror", "queue"];

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) clients: Vec<Script>,
}

/// The protocol of a client, and the proxy to which it connects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
    /// The mesh transport, to the inbound proxy.
    Member,
    /// HTTP/2 over mesh TLS, to the inbound proxy.
    MemberHttp2,
}

/// How a client reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reads {
    All,
    Nothing,
    /// This many bytes each 10 ms.
    Slowly(usize),
}

/// How a client disconnects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaves {
    Close,
    /// Ends its sending side, and reads on until it disconnects.
    Half,
    Reset,
}

/// One client.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) speaks: Speaks,
    /// Whether it uses the listener that is added and removed.
    pub(crate) extra: bool,
    /// The bytes to send, each piece after a pause.
    pub(crate) pieces: Vec<(Duration, Vec<u8>)>,
    pub(crate) reads: Reads,
    pub(crate) leaves: Leaves,
    /// Time after the last piece until it disconnects.
    pub(crate) stays: Duration,
    requests: Vec<String>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pieces = self
            .pieces
            .iter()
            .map(|(pause, piece)| (pause, piece.len()));
        let pieces: Vec<_> = pieces.collect();
        f.debug_struct("Script")
            .field("speaks", &self.speaks)
            .field("extra", &self.extra)
            .field("requests", &self.requests)
            .field("pieces", &format_args!("{pieces:?}"))
            .field("reads", &self.reads)
            .field("leaves", &self.leaves)
            .field("stays", &self.stays)
            .finish()
    }
}

impl Schedule {
    /// One client of each protocol, and perhaps further ones.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draw = Draw(Rng::seed(seed));
        let mut speaks = vec![Speaks::Http1, Speaks::Http2, Speaks::Member];
        for _ in 0..draw.below(3) {
            let all = [
                Speaks::Http1,
                Speaks::Http2,
                Speaks::Member,
                Speaks::MemberHttp2,
            ];
            speaks.push(draw.one_of(&all));
        }
        let clients = speaks
            .into_iter()
            .map(|speaks| draw.script(speaks))
            .collect();
        Self { seed, clients }
    }
}

/// A request before it is encoded.
struct Request {
    path: String,
    behaviour: &'static str,
    /// Size of the body in bytes; `None` = a GET.
    body: Option<usize>,
    chunked: bool,
}

struct Draw(Rng);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(u32::try_from(n).unwrap()) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }

    fn millis(&mut self, below: usize) -> Duration {
        Duration::from_millis(self.below(below) as u64)
    }

    fn script(&mut self, speaks: Speaks) -> Script {
        let many = match speaks {
            Speaks::Http1 => 1 + self.below(3),
            _ => 1 + self.below(6),
        };
        let requests: Vec<Request> = (0..many).map(|_| self.request(speaks)).collect();
        let mut bytes = match speaks {
            Speaks::Http1 => requests.iter().flat_map(http1).collect(),
            Speaks::Http2 | Speaks::MemberHttp2 => self.http2(&requests),
            Speaks::Member => self.member(&requests),
        };
        if self.percent(30) {
            let length = self.below(bytes.len() + 1);
            bytes.truncate(length);
        }
        let describe = |one: &Request| format!("{} {} {:?}", one.path, one.behaviour, one.body);
        Script {
            speaks,
            extra: matches!(speaks, Speaks::Http1 | Speaks::Http2) && self.percent(20),
            pieces: self.pieces(&bytes),
            reads: match self.below(10) {
                0 | 1 => Reads::Nothing,
                2 | 3 => Reads::Slowly(self.one_of(&[1, 100, 2000])),
                _ => Reads::All,
            },
            leaves: self.one_of(&[Leaves::Close, Leaves::Half, Leaves::Reset]),
            stays: self.millis(700),
            requests: requests.iter().map(describe).collect(),
        }
    }

    fn request(&mut self, speaks: Speaks) -> Request {
        // The inbound proxy forwards to servers, not to another member.
        let transports = match speaks {
            Speaks::Http1 | Speaks::Http2 => &TRANSPORTS[..],
            Speaks::Member | Speaks::MemberHttp2 => &TRANSPORTS[..2],
        };
        let (transport, policy) = (self.one_of(transports), self.one_of(&POLICIES));
        let with_body = self.percent(50);
        let behaviour = match with_body && self.percent(60) {
            true => self.one_of(&OF_UPLOADS),
            false => self.one_of(&BEHAVIOURS),
        };
        Request {
            path: format!("/{transport}/{policy}"),
            behaviour,
            body: with_body.then(|| self.one_of(&[0, 10, 5000, 60_000, 300_000, 1_000_000])),
            chunked: self.percent(30),
        }
    }

    /// Splits at random places, with pauses.
    fn pieces(&mut self, bytes: &[u8]) -> Vec<(Duration, Vec<u8>)> {
        let mut cuts: Vec<usize> = (0..self.below(6))
            .map(|_| self.below(bytes.len() + 1))
            .collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| bytes[cut[0]..cut[1]].to_vec());
        pieces.map(|piece| (self.millis(120), piece)).collect()
    }

    /// Interleaves the frames of streams, and keeps the order within each stream.
    fn interleave(&mut self, mut streams: Vec<Vec<Vec<u8>>>) -> Vec<u8> {
        // Streams begin in the order of their numbers.
        let mut out: Vec<u8> = Vec::new();
        let mut begun = 0;
        loop {
            streams[..begun]
                .iter_mut()
                .for_each(|frames| frames.truncate(1000));
            let live: Vec<usize> = (0..begun).filter(|at| !streams[*at].is_empty()).collect();
            if live.is_empty() && begun == streams.len() {
                return out;
            }
            let next = match begun < streams.len() && (live.is_empty() || self.percent(40)) {
                true => {
                    begun += 1;
                    begun - 1
                }
                false => self.one_of(&live),
            };
            out.extend(streams[next].remove(0));
        }
    }

    fn http2(&mut self, requests: &[Request]) -> Vec<u8> {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let window = self
            .one_of(&[65_535_u32, 65_535, 1_000_000, 1000, 0])
            .to_be_bytes();
        out.extend(frame2(4, 0, 0, &[&[0, 4], &window[..]].concat()));
        if self.percent(60) {
            out.extend(frame2(8, 0, 0, &1_000_000_u32.to_be_bytes()));
        }
        let streams = (0_u32..).zip(requests).map(|(number, request)| {
            let stream = 2 * number + 1;
            let end = u8::from(request.body.is_none());
            let mut frames = vec![frame2(1, 4 | end, stream, &hpack(request))];
            // Within the initial window of a stream.
            let body = vec![b'x'; request.body.unwrap_or(0).min(60_000)];
            if request.body.is_some() {
                frames.extend(body.chunks(8000).map(|data| frame2(0, 0, stream, data)));
                if self.percent(80) {
                    frames.push(frame2(0, 1, stream, &[]));
                }
            }
            if self.percent(40) {
                frames.push(frame2(8, 0, stream, &100_000_u32.to_be_bytes()));
            }
            if self.percent(25) {
                frames.insert(
                    1 + self.below(frames.len()),
                    frame2(3, 0, stream, &[0, 0, 0, 8]),
                );
            }
            frames
        });
        let streams = streams.collect();
        out.extend(self.interleave(streams));
        out
    }

    fn member(&mut self, requests: &[Request]) -> Vec<u8> {
        let streams = (1_u32..).zip(requests).map(|(stream, request)| {
            let length = request.body.map(|body| body.min(60_000));
            let announced = length.filter(|_| !request.chunked);
            let fields = announced.map_or(String::new(), |n| format!("content-length: {n}\r\n"));
            let head = text(request, &fields);
            let end = u8::from(length.is_none());
            let mut frames = match self.percent(20) {
                true => {
                    let (first, rest) = head.as_bytes().split_at(self.below(head.len()));
                    vec![
                        [
                            member(1, 2 | end, stream, first),
                            member(1, end, stream, rest),
                        ]
                        .concat(),
                    ]
                }
                false => vec![member(1, end, stream, head.as_bytes())],
            };
            let body = vec![b'x'; length.unwrap_or(0)];
            frames.extend(body.chunks(8000).map(|data| member(0, 0, stream, data)));
            if length.is_some() && self.percent(80) {
                frames.push(member(0, 1, stream, &[]));
            }
            if self.percent(40) {
                frames.push(member(4, 0, stream, &100_000_u32.to_be_bytes()));
            }
            if self.percent(25) {
                let reason = self.one_of(&[0, 1, 4]);
                frames.insert(
                    1 + self.below(frames.len()),
                    member(3, 0, stream, &[0, 0, 0, reason]),
                );
            }
            frames
        });
        let streams = streams.collect();
        self.interleave(streams)
    }
}

fn text(request: &Request, fields: &str) -> String {
    let Request {
        path,
        behaviour,
        body,
        ..
    } = request;
    let method = body.map_or("GET", |_| "POST");
    format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-behave: {behaviour}\r\n{fields}\r\n")
}

fn http1(request: &Request) -> Vec<u8> {
    let body = vec![b'x'; request.body.unwrap_or(0)];
    match request.body {
        None => text(request, "").into_bytes(),
        Some(_) if request.chunked => {
            let mut out = text(request, "transfer-encoding: chunked\r\n").into_bytes();
            for chunk in body.chunks(5000) {
                out.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                out.extend(chunk);
                out.extend(b"\r\n");
            }
            out.extend(b"0\r\n\r\n");
            out
        }
        Some(length) => {
            let mut out = text(request, &format!("content-length: {length}\r\n")).into_bytes();
            out.extend(body);
            out
        }
    }
}

fn frame2(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn member(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes fields without compression (RFC 7541, 6.1 and 6.2.2).
fn hpack(request: &Request) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let method = request.body.map_or(0x82, |_| 0x83);
    let mut out = vec![method, 0x86, 4];
    out.extend(text(&request.path));
    out.push(1);
    out.extend(text("a"));
    out.push(0);
    out.extend(text("x-behave"));
    out.extend(text(request.behaviour));
    out
}
