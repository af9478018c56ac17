use std::task::{Context, Poll, Waker};

use http::{StatusCode, Version};

use super::*;
use crate::protocol::fields::{Fields, Key};
use crate::protocol::http1::{FramingError, Target};
use crate::protocol::http2::closed::Failed;
use crate::protocol::http2::frame::{self, HEADER, PREFACE, flag, kind};
use crate::protocol::message::Source as _;
use crate::protocol::streams::{Incoming, ResponseHead};

/// A client without a socket, whose server has sent its settings.
struct Connection {
    client: Client,
    inbox: Inbox,
}

/// A frame that was sent: type, flags, stream and payload.
type Sent = (u8, u8, u32, Vec<u8>);

const OK: &[u8] = &[0x88];

fn request(method: Method, path: &str, more: &[(&str, &str)]) -> Request {
    let mut fields = Fields::default();
    let target = fields.add_text(path.as_bytes());
    fields.push(Known::Host, b"a.example");
    for (name, value) in more {
        fields.push(Key::new(name.as_bytes()), value.as_bytes());
    }
    Request {
        method,
        target: Target::origin(path.as_bytes(), target.start as usize),
        version: Version::HTTP_11,
        fields,
    }
}

impl Connection {
    fn new() -> Self {
        let channel = Channel::new(Role::Client(Opening::new(STREAM_WINDOW)));
        let mut connection = Self {
            client: Client::on(&channel),
            inbox: Inbox::of_server(LIMITS.bytes),
        };
        let preface = connection.core(|core| core.output.drain());
        assert!(preface.starts_with(PREFACE));
        connection.frame(kind::SETTINGS, 0, 0, &[]).unwrap();
        connection
    }

    fn core<R>(&self, f: impl FnOnce(&mut super::super::connection::Core) -> R) -> R {
        f(&mut self.client.0.core.borrow_mut())
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Closed> {
        let bytes = [&frame::header(payload.len(), kind, flags, stream), payload].concat();
        self.inbox
            .take(&self.client.0, &mut &bytes[..], usize::MAX)
            .map(drop)
    }

    fn head(&mut self, flags: u8, stream: u32, block: &[u8]) -> Result<(), Closed> {
        self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block)
    }

    fn sent(&self) -> Vec<Sent> {
        let all = self.core(|core| core.output.drain());
        let (mut rest, mut frames) = (&all[..], Vec::new());
        while let Some((head, after)) = rest.split_at_checked(HEADER) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
            frames.push((head[3], head[4], stream, after[..length].to_vec()));
            rest = &after[length..];
        }
        frames
    }

    fn open(&self, request: &Request, body: &Body) -> Option<(Owner, bool)> {
        let outgoing = Outgoing {
            request,
            https: true,
            marks_http1: true,
        };
        self.client.open(outgoing, body)
    }

    fn get(&self) -> Owner {
        let opened = self.open(&request(Method::GET, "/", &[]), &Body::empty());
        opened.expect("the server accepts requests").0
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn answer(owner: &Owner) -> Poll<Result<ResponseHead, Failed>> {
    owner.stream().poll_answer(None, &noop())
}

fn failure(owner: &Owner) -> Option<Failed> {
    match answer(owner) {
        Poll::Ready(Err(failed)) => Some(failed),
        _ => None,
    }
}

#[test]
fn fields_of_one_hop_are_left_out_and_others_are_sent() {
    let connection = Connection::new();
    connection.sent();
    let fields = [
        ("x-a", " 1 "),
        ("te", "gzip"),
        ("connection", "close"),
        ("expect", "100-continue"),
    ];
    let request = request(Method::PUT, "/p?q", &fields);
    let _owner = connection.open(&request, &Body::full("abc")).unwrap();
    let sent = connection.sent();
    let [(kind, flags, stream, block)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((*kind, *flags, *stream), (1, flag::END_HEADERS, 1));
    let text = String::from_utf8_lossy(block);
    for part in [
        "PUT",
        "a.example",
        "/p?q",
        "x-a\u{1}1",
        "\u{1}3",
        "x-maglor-http-version",
    ] {
        assert!(text.contains(part), "{part}: {text:?}");
    }
    for part in ["gzip", "close", "100-continue", "host"] {
        assert!(!text.contains(part), "{part}: {text:?}");
    }
    assert_eq!(block[5], 0x87, "https: {block:?}");
}

#[test]
fn what_cannot_be_a_target_is_not_sent() {
    for (path, valid) in [("/", true), ("*", true), ("a", false), ("/a b", false)] {
        let request = request(Method::OPTIONS, path, &[]);
        let outgoing = Outgoing {
            request: &request,
            https: false,
            marks_http1: false,
        };
        assert_eq!(outgoing.check().is_ok(), valid, "{path}");
    }
}

#[test]
fn a_response_has_a_head_a_body_and_trailers() {
    let mut connection = Connection::new();
    let owner = connection.get();
    connection.head(0, 1, b"\x08\x03103").unwrap();
    assert!(answer(&owner).is_pending(), "it is informational");
    let head = b"\x88\x00\x01x\x03 y \x5c\x013";
    connection.head(0, 1, head).unwrap();
    let Poll::Ready(Ok(head)) = answer(&owner) else {
        panic!("no head");
    };
    assert_eq!((head.status, head.length), (StatusCode::OK, Some(3)));
    assert_eq!(head.fields.get(Known::ContentLength), Some(&b"3"[..]));
    let value = head.fields.find_named(b"x").unwrap();
    assert_eq!(head.fields.slice(value), b"y", "without its blanks");
    connection.frame(kind::DATA, 0, 1, b"abc").unwrap();
    let trailers = b"\x00\x01t\x011\x0f\x0d\x019";
    connection.head(flag::END_STREAM, 1, trailers).unwrap();
    let mut incoming = Incoming(Rc::clone(owner.stream()));
    let mut next = || match incoming.poll_frame(&mut noop()) {
        Poll::Ready(Some(Ok(frame))) => frame,
        other => panic!("{other:?}"),
    };
    assert_eq!(next().into_data().unwrap(), "abc");
    let trailers = next().into_trailers().unwrap();
    assert_eq!(trailers.len(), 1, "the length has no effect: {trailers:?}");
    assert!(incoming.is_end_stream());
    assert_eq!(connection.core(|core| core.streams.len()), 0);
}

#[test]
fn malformed_responses_end_their_stream_only() {
    for (block, failed) in [
        (&b""[..], Failed::Malformed),
        (b"\x08\x03101", Failed::Malformed),
        (b"\x08\x02ab", Failed::Malformed),
        (b"\x88\x88", Failed::Malformed),
        (b"\x00\x01x\x01y\x88", Failed::Malformed),
        (b"\x88\x00\x0aconnection\x05close", Failed::Malformed),
        (b"\x88\x84", Failed::Malformed),
        (b"\x88\x00\x01x\x01\0", Failed::Malformed),
    ] {
        let mut connection = Connection::new();
        connection.sent();
        let owner = connection.get();
        connection.head(0, 1, block).unwrap();
        assert_eq!(failure(&owner), Some(failed), "{block:?}");
        let resets = connection
            .sent()
            .iter()
            .filter(|sent| sent.0 == kind::RST_STREAM)
            .count();
        assert_eq!(resets, 1, "{block:?}");
        let other = connection.get();
        connection.head(flag::END_STREAM, 3, OK).unwrap();
        assert!(answer(&other).is_ready());
    }
}

#[test]
fn a_body_comes_after_its_head() {
    let mut connection = Connection::new();
    let owner = connection.get();
    connection.head(0, 1, b"\x08\x03103").unwrap();
    connection.frame(kind::DATA, 0, 1, b"a").unwrap();
    assert_eq!(failure(&owner), Some(Failed::Malformed));
}

#[test]
fn a_body_has_the_announced_length() {
    for (bytes, error) in [
        (&b"ab"[..], FramingError::UnexpectedEof),
        (b"abcd", FramingError::Longer),
    ] {
        let mut connection = Connection::new();
        let owner = connection.get();
        connection.head(0, 1, b"\x88\x5c\x013").unwrap();
        assert!(answer(&owner).is_ready());
        connection
            .frame(kind::DATA, flag::END_STREAM, 1, bytes)
            .unwrap();
        assert_eq!(failure(&owner), Some(Failed::Body(error)));
    }
    let mut connection = Connection::new();
    let head = request(Method::HEAD, "/", &[]);
    let (owner, _) = connection.open(&head, &Body::empty()).unwrap();
    connection
        .head(flag::END_STREAM, 1, b"\x88\x5c\x013")
        .unwrap();
    assert!(
        matches!(answer(&owner), Poll::Ready(Ok(_))),
        "a HEAD has none"
    );
}

#[test]
fn frames_that_a_server_must_not_send_end_the_connection() {
    for (kind, stream, payload) in [
        (kind::HEADERS, 2, OK),
        (kind::HEADERS, 3, OK),
        (kind::DATA, 3, b"a"),
        (kind::RST_STREAM, 3, &[0; 4]),
        (kind::PUSH_PROMISE, 1, &[0, 0, 0, 2, 0x82]),
    ] {
        let mut connection = Connection::new();
        let _owner = connection.get();
        let taken = connection.frame(kind, flag::END_HEADERS, stream, payload);
        assert!(
            matches!(taken, Err(Closed::Malformed(_))),
            "{kind} {taken:?}"
        );
    }
}

#[test]
fn what_a_server_has_not_processed_is_refused() {
    let mut connection = Connection::new();
    let owners: Vec<_> = (0..3).map(|_| connection.get()).collect();
    connection
        .frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7])
        .unwrap();
    connection
        .frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0])
        .unwrap();
    assert_eq!(failure(&owners[0]), Some(Failed::Refused));
    assert!(answer(&owners[1]).is_pending());
    assert_eq!(failure(&owners[2]), Some(Failed::Refused));
    assert!(connection.client.is_gone());
    let late = request(Method::GET, "/", &[]);
    assert!(connection.open(&late, &Body::empty()).is_none());
    connection.head(flag::END_STREAM, 3, OK).unwrap();
    assert!(matches!(answer(&owners[1]), Poll::Ready(Ok(_))));
}

#[test]
fn a_reset_after_a_complete_response_takes_nothing_away() {
    let mut connection = Connection::new();
    let post = request(Method::POST, "/", &[]);
    let (owner, end) = connection.open(&post, &Body::full("a")).unwrap();
    assert!(!end);
    connection.head(0, 1, OK).unwrap();
    connection
        .frame(kind::DATA, flag::END_STREAM, 1, b"whole")
        .unwrap();
    connection
        .frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 0])
        .unwrap();
    assert!(matches!(answer(&owner), Poll::Ready(Ok(_))));
    let mut incoming = Incoming(Rc::clone(owner.stream()));
    let Poll::Ready(Some(Ok(frame))) = incoming.poll_frame(&mut noop()) else {
        panic!("the body is lost");
    };
    assert_eq!(frame.into_data().unwrap(), "whole");
    assert!(
        owner.stream().poll_closed(&noop()).is_ready(),
        "nothing more is sent"
    );
}

#[test]
fn requests_wait_until_the_server_accepts_a_stream() {
    let mut connection = Connection::new();
    let most = |connection: &mut Connection, streams: u8| {
        let payload = [0, 3, 0, 0, 0, streams];
        connection.frame(kind::SETTINGS, 0, 0, &payload).unwrap();
    };
    let begins = |connection: &Connection| connection.client.0.poll_begin(&noop()).is_ready();
    assert_eq!(connection.client.max_streams(), u32::MAX);
    most(&mut connection, 0);
    assert!(!begins(&connection));
    assert_eq!(connection.client.max_streams(), 1);
    most(&mut connection, 1);
    assert!(begins(&connection));
    let owner = connection.get();
    assert!(!begins(&connection));
    drop(owner);
    assert!(begins(&connection), "it was cancelled");
    assert_eq!(connection.sent().last().unwrap().3, [0, 0, 0, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_unread_uploads_hold_is_noticed() {
    let mut connection = Connection::new();
    let post = request(Method::POST, "/", &[]);
    let (owner, _) = connection
        .open(&post, &Body::full(vec![0; 100_000]))
        .unwrap();
    let mut data = Bytes::from(vec![0; 100_000]);
    while owner
        .stream()
        .poll_send(&mut data, true, &noop())
        .is_ready()
    {
        connection.sent();
    }
    assert_eq!(data.len(), 100_000 - 65_535);
    let client = &connection.client;
    assert!(client.is_short() && client.has_credit(Instant::now()));
    tokio::time::advance(HELD).await;
    assert!(!client.has_credit(Instant::now()));
    connection
        .frame(kind::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0])
        .unwrap();
    assert!(!connection.client.is_short());
}
