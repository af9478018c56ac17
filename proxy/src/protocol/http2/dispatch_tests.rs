use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use maglor_balance::Rng;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::io::Io;
use crate::protocol::fields::Fields;
use crate::protocol::http1;
use crate::protocol::http2::CONNECTION_WINDOW;
use crate::protocol::http2::connection::{Accepted, Accepting, Admission, Limits};
use crate::protocol::http2::frame::{HEADER, PREFACE, flag};
use crate::protocol::http2::inbox::Inbox;
use crate::protocol::message::Body;
use crate::protocol::streams::{STREAM_WINDOW, Sending};

/// A connection without a socket, after its preface.
struct Connection {
    channel: Rc<Channel>,
    inbox: Inbox,
    accepted: HashMap<u32, Accepted>,
}

/// A frame that was sent: type, flags, stream and payload.
type Sent = (u8, u8, u32, Vec<u8>);

const GET: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::header(payload.len(), kind, flags, stream), payload].concat()
}

fn word(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

impl Connection {
    fn new() -> Self {
        let limits = Limits {
            head: http1::Limits {
                bytes: 4096,
                headers: 16,
            },
            streams: 4,
        };
        let accepting = Accepting::within(Admission::new(limits, || false));
        let mut connection = Self {
            channel: Channel::new(Role::Server(accepting)),
            inbox: Inbox::new(limits.block()),
            accepted: HashMap::new(),
        };
        let settings = frame(kind::SETTINGS, 0, 0, &[]);
        connection
            .send(&[&PREFACE[..], &settings].concat())
            .unwrap();
        let sent = connection.sent();
        assert_eq!(
            sent.iter().map(|sent| sent.0).collect::<Vec<_>>(),
            [4, 8, 4]
        );
        connection
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Closed> {
        self.inbox.take(&self.channel, &mut bytes, usize::MAX)?;
        let accepted = self.channel.core.borrow_mut().take_accepted();
        for accepted in accepted {
            self.accepted.insert(accepted.owner.stream().id, accepted);
        }
        Ok(())
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Closed> {
        self.send(&frame(kind, flags, stream, payload))
    }

    /// Begins a request with a body.
    fn begin(&mut self, stream: u32) {
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, &GET)
            .unwrap();
    }

    /// Returns the frames that were sent since the last call.
    fn sent(&self) -> Vec<Sent> {
        let bytes = self.channel.core.borrow_mut().output.drain();
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some((head, after)) = rest.split_at_checked(HEADER) {
            let length = word(&[&[0], &head[..3]].concat()) as usize;
            let (payload, after) = after.split_at(length);
            frames.push((head[3], head[4], word(&head[5..]), payload.to_vec()));
            rest = after;
        }
        frames
    }

    /// Checks that one frame was sent: a reset of this stream with this code.
    #[track_caller]
    fn was_reset(&self, stream: u32, reason: Reason) {
        let payload = (reason as u32).to_be_bytes().to_vec();
        assert_eq!(self.sent(), [(kind::RST_STREAM, 0, stream, payload)]);
    }

    fn body(&mut self, stream: u32) -> &mut Body {
        let accepted = self.accepted.get_mut(&stream).unwrap();
        &mut accepted.request.as_mut().unwrap().body
    }

    /// Reads a piece of a body, if there is one.
    fn read(&mut self, stream: u32) -> Option<usize> {
        let cx = &mut Context::from_waker(Waker::noop());
        match Pin::new(self.body(stream)).poll_frame(cx) {
            std::task::Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|d| d.len()),
            _ => None,
        }
    }

    /// Sends a response with a body of this many bytes, as far as the windows allow.
    fn answer(&self, stream: u32, bytes: usize) -> Sending {
        let owner = &self.accepted[&stream].owner;
        owner
            .stream()
            .send_head(StatusCode::OK, &Fields::default(), false);
        let mut sending = Sending::new(Body::full(vec![7; bytes]));
        self.go_on(stream, &mut sending);
        sending
    }

    fn go_on(&self, stream: u32, sending: &mut Sending) {
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = sending.poll(self.accepted[&stream].owner.stream(), cx);
    }
}

fn malformed(result: Result<(), Closed>) -> Option<Reason> {
    match result {
        Err(Closed::Malformed(malformed)) => Some(malformed.reason),
        _ => None,
    }
}

#[test]
fn what_is_wrong_with_a_stream_costs_no_other_one() {
    let mut one = Connection::new();
    one.begin(1);
    one.begin(3);
    one.frame(kind::WINDOW_UPDATE, 0, 3, &[0; 4]).unwrap();
    one.was_reset(3, Reason::Protocol);
    one.begin(5);
    one.frame(kind::WINDOW_UPDATE, 0, 5, &[0x7f, 0xff, 0xff, 0xff])
        .unwrap();
    one.was_reset(5, Reason::FlowControl);
    one.frame(kind::HEADERS, 0x5, 7, &[&GET[..], b"\0\x01X\x01y"].concat())
        .unwrap();
    one.was_reset(7, Reason::Protocol);
    one.frame(
        kind::HEADERS,
        0x25,
        9,
        &[&[0, 0, 0, 9, 1][..], &GET].concat(),
    )
    .unwrap();
    one.was_reset(9, Reason::Protocol);
    one.frame(kind::HEADERS, 0x5, 11, &GET).unwrap();
    one.frame(kind::DATA, 0, 11, b"x").unwrap();
    one.was_reset(11, Reason::StreamClosed);
    one.frame(kind::DATA, 1, 1, b"hello").unwrap();
    assert_eq!(one.read(1), Some(5));
    assert!(one.accepted[&3].owner.stream().is_closed());
    assert!(!one.accepted[&1].owner.stream().is_closed());
}

#[test]
fn what_comes_for_a_stream_that_has_ended_depends_on_how_it_did() {
    let mut one = Connection::new();
    // Reset by the proxy: frames in transit are ignored, but still count for the connection.
    one.begin(1);
    one.accepted.remove(&1);
    one.was_reset(1, Reason::Internal);
    let block = b"\x40\x01x\x01y";
    one.frame(kind::DATA, 0, 1, b"late").unwrap();
    one.frame(kind::HEADERS, 0x5, 1, block).unwrap();
    one.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]).unwrap();
    one.frame(kind::RST_STREAM, 0, 1, &[0; 4]).unwrap();
    assert_eq!(one.sent(), []);
    // The fields of the ignored request were added to the table.
    let known = [&GET[..], &[0xbf]].concat();
    one.frame(kind::HEADERS, 0x5, 3, &known).unwrap();
    assert!(one.accepted[&3].request.is_ok());
    // Reset by the client.
    one.begin(5);
    one.frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]).unwrap();
    one.frame(kind::DATA, 0, 5, b"x").unwrap();
    one.was_reset(5, Reason::StreamClosed);
    // Both sides have ended.
    one.begin(7);
    one.frame(kind::DATA, 1, 7, b"x").unwrap();
    one.answer(7, 1);
    one.sent();
    one.frame(kind::WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1]).unwrap();
    let data = one.frame(kind::DATA, 0, 7, b"x");
    assert_eq!(malformed(data), Some(Reason::StreamClosed));
    let head = one.frame(kind::HEADERS, 0x5, 7, &GET);
    assert_eq!(malformed(head), Some(Reason::StreamClosed));
    // The stream was never begun.
    for kind in [kind::DATA, kind::RST_STREAM, kind::WINDOW_UPDATE] {
        let early = one.frame(kind, 0, 9, &[0, 0, 0, 1]);
        assert_eq!(malformed(early), Some(Reason::Protocol), "{kind}");
    }
    one.frame(kind::HEADERS, 0x5, 21, &GET).unwrap();
    let lower = one.frame(kind::HEADERS, 0x5, 19, &GET);
    assert_eq!(malformed(lower), Some(Reason::Protocol));
}

#[test]
fn streams_beyond_the_limit_are_refused_and_can_be_sent_again() {
    let mut one = Connection::new();
    for stream in [1, 3, 5, 7] {
        one.begin(stream);
    }
    one.begin(9);
    one.was_reset(9, Reason::RefusedStream);
    one.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]).unwrap();
    one.begin(11);
    assert!(one.accepted.contains_key(&11));
}

#[test]
fn a_client_cannot_have_any_number_of_streams_reset() {
    let mut one = Connection::new();
    let mut stream = 1;
    let flooded = loop {
        one.begin(stream);
        // The proxy resets the stream because the frame is malformed.
        if let Err(closed) = one.frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]) {
            break closed;
        }
        stream += 2;
        assert!(stream < 4000);
    };
    assert_eq!(flooded, Closed::Flood);
}

#[test]
fn a_request_whose_reset_was_read_with_it_does_not_begin() {
    let mut connection = Connection::new();
    let pair = |stream| {
        let head = frame(
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            stream,
            &GET,
        );
        [head, frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    };
    let bytes: Vec<u8> = (0..50).flat_map(|n| pair(2 * n + 1)).collect();
    let mut rest = &bytes[..];
    let mut turns = 0;
    while !rest.is_empty() {
        // The request alone costs more.
        let cost = connection
            .inbox
            .take(&connection.channel, &mut rest, 1)
            .unwrap();
        assert!(cost > 1);
        let core = &mut *connection.channel.core.borrow_mut();
        let accepted = core.take_accepted();
        assert!(accepted.iter().all(|one| one.owner.stream().is_closed()));
        turns += 1;
    }
    assert_eq!(turns, 50);
}

#[test]
fn a_smaller_table_is_acknowledged_by_the_next_block() {
    let mut one = Connection::new();
    for stream in [1, 3, 5] {
        one.frame(kind::HEADERS, 0x5, stream, &GET).unwrap();
    }
    one.frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])
        .unwrap();
    one.sent();
    let mut first = Vec::new();
    for stream in [1, 3] {
        let owner = &one.accepted[&stream].owner;
        owner
            .stream()
            .send_head(StatusCode::OK, &Fields::default(), true);
        first.push(one.sent().remove(0).3);
    }
    assert_eq!(first, [vec![0x20, 0x88], vec![0x88]]);
    // A larger table needs no signal.
    one.frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 1, 0, 0])
        .unwrap();
    one.sent();
    one.accepted[&5]
        .owner
        .stream()
        .send_head(StatusCode::OK, &Fields::default(), true);
    assert_eq!(one.sent().remove(0).3, [0x88]);
}

#[test]
fn a_long_head_leaves_in_parts() {
    let mut one = Connection::new();
    one.frame(kind::HEADERS, 0x5, 1, &GET).unwrap();
    let mut fields = Fields::default();
    fields.push(
        crate::protocol::fields::Key::new(b"x-long"),
        &[b'y'; 40_000],
    );
    one.accepted[&1]
        .owner
        .stream()
        .send_head(StatusCode::OK, &fields, true);
    let sent = one.sent();
    let shape: Vec<_> = sent
        .iter()
        .map(|sent| (sent.0, sent.1, sent.3.len()))
        .collect();
    assert_eq!(shape.len(), 3);
    assert_eq!(shape[..2], [(1, 1, 16_384), (9, 0, 16_384)]);
    assert_eq!((shape[2].0, shape[2].1), (9, flag::END_HEADERS));
}

#[test]
fn no_more_is_sent_than_both_windows_allow() {
    let mut one = Connection::new();
    // Windows of streams of 1000 bytes.
    one.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 3, 0xe8])
        .unwrap();
    one.frame(kind::HEADERS, 0x5, 1, &GET).unwrap();
    one.sent();
    let mut sending = one.answer(1, 5000);
    let data = |sent: Vec<Sent>| -> usize {
        sent.iter()
            .filter(|sent| sent.0 == kind::DATA)
            .map(|sent| sent.3.len())
            .sum()
    };
    assert_eq!(data(one.sent()), 1000);
    one.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 200])
        .unwrap();
    one.go_on(1, &mut sending);
    assert_eq!(data(one.sent()), 200);
    // The window goes below zero, and above it again.
    one.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100])
        .unwrap();
    one.go_on(1, &mut sending);
    assert_eq!(data(one.sent()), 0);
    one.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 3, 0x85])
        .unwrap();
    one.go_on(1, &mut sending);
    assert_eq!(data(one.sent()), 1, "1000 - 1000 + 200 - 200 - 900 + 901");
    one.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])
        .unwrap();
    one.go_on(1, &mut sending);
    let last = one.sent();
    assert_eq!(last.last().unwrap().1, flag::END_STREAM);
    assert_eq!(data(last), 5000 - 1201);
    // Credit that makes a window too large is an error of the stream; a setting that does so is an error of the
    // connection.
    one.begin(3);
    one.frame(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]).unwrap();
    one.was_reset(3, Reason::FlowControl);
    one.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
        .unwrap();
    one.begin(5);
    one.frame(kind::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]).unwrap();
    let much = one.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(malformed(much), Some(Reason::FlowControl));
}

/// Checked for any order of arrivals and reads: what a client may send is the initial window, minus the bytes that
/// wait to be read and those of the next credit.
#[test]
fn windows_are_conserved() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(9113);
    println!("SEED={seed}");
    let mut rng = Rng::seed(seed);
    for _ in 0..30 {
        let mut one = Connection::new();
        let streams = [1, 3, 5, 7];
        streams.iter().for_each(|stream| one.begin(*stream));
        one.sent();
        // The windows as the client counts them.
        let mut windows = HashMap::from([(0, CONNECTION_WINDOW)]);
        windows.extend(streams.map(|stream| (stream, STREAM_WINDOW)));
        for _ in 0..400 {
            let stream = streams[(rng.next_u64() % 4) as usize];
            if rng.next_u64().is_multiple_of(3) {
                one.read(stream);
            } else {
                let most = windows[&stream].min(windows[&0]).min(16_000);
                let length = u32::try_from(rng.next_u64()).unwrap_or(u32::MAX) % 9000;
                let length = (length + (rng.next_u64() % 8000) as u32).min(most);
                let padding = (rng.next_u64() % 256).min(u64::from(length.saturating_sub(1))) as u8;
                let mut payload = vec![1; length as usize];
                let padded = rng.next_u64().is_multiple_of(2) && length > 0;
                if padded {
                    payload[0] = padding;
                }
                let flags = if padded { flag::PADDED } else { 0 };
                if length == 0 {
                    continue;
                }
                one.frame(kind::DATA, flags, stream, &payload).unwrap();
                *windows.get_mut(&0).unwrap() -= length;
                *windows.get_mut(&stream).unwrap() -= length;
            }
            for (kind, _, stream, payload) in one.sent() {
                assert_eq!(kind, kind::WINDOW_UPDATE);
                *windows.get_mut(&stream).unwrap() += word(&payload);
            }
            let (left, arrived) = one.channel.core.borrow().receive_windows();
            assert_eq!((left, left + arrived), (windows[&0], CONNECTION_WINDOW));
            for stream in streams {
                let found = Rc::clone(one.accepted[&stream].owner.stream());
                let (_, window, taken) = found.windows();
                assert_eq!(window, windows[&stream]);
                let waiting = found.state.borrow().received.len() as u32;
                assert_eq!(window + taken + waiting, STREAM_WINDOW);
            }
        }
        // One byte more than the client may send.
        for stream in streams {
            let more = vec![0; 16_384];
            while one.frame(kind::DATA, 0, stream, &more).is_ok()
                && !one.accepted[&stream].owner.stream().is_closed()
            {}
            assert!(one.accepted[&stream].owner.stream().is_closed());
        }
    }
}

#[test]
fn a_body_of_bytes_is_whole() {
    let mut one = Connection::new();
    one.frame(
        kind::HEADERS,
        0x4,
        1,
        &[&GET[..], b"\0\x0econtent-length\x015"].concat(),
    )
    .unwrap();
    assert_eq!(one.body(1).size_hint().exact(), Some(5));
    one.frame(kind::DATA, 0, 1, b"hel").unwrap();
    one.frame(kind::DATA, 1, 1, b"lo").unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    let mut all = Vec::new();
    while let std::task::Poll::Ready(Some(Ok(frame))) = Pin::new(one.body(1)).poll_frame(cx) {
        all.extend_from_slice(&frame.into_data().unwrap_or(Bytes::new()));
    }
    assert_eq!(all, b"hello");
    for (end, bytes) in [(1, &b"hell"[..]), (0, b"hello!")] {
        let stream = 5 - 2 * end;
        let head = [&GET[..], b"\0\x0econtent-length\x015"].concat();
        one.frame(kind::HEADERS, 0x4, stream, &head).ok();
        one.sent();
        one.frame(kind::DATA, end as u8, stream, bytes).unwrap();
        one.was_reset(stream, Reason::Protocol);
    }
}

#[tokio::test]
async fn the_response_of_the_last_open_stream_is_written_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let socket = listener.accept().await.unwrap().0;
    socket.writable().await.unwrap();
    let mut one = Connection::new();
    one.channel.io.replace(Some(Io::Tcp(socket)));
    one.frame(kind::HEADERS, 5, 1, &GET).unwrap();
    one.frame(kind::HEADERS, 5, 3, &GET).unwrap();
    one.answer(1, 10);
    assert!(one.channel.woken.take(), "the driver writes it");
    assert_eq!(one.sent().len(), 2);
    one.answer(3, 10);
    assert!(!one.channel.woken.get() && one.sent().is_empty());
    client.readable().await.unwrap();
    assert_eq!(
        client.try_read(&mut [0; 100]).unwrap(),
        HEADER + 1 + HEADER + 10
    );
}
