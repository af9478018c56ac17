//! The client side of a connection without a socket, for fuzzing: takes the bytes of a server and returns their effects.

use std::rc::Rc;

use http::{Method, Version};

use super::client::{Client, Outgoing, REQUESTS};
use super::connection::{Channel, Opening, Owner, Role};
use super::exercise::feed;
use super::inbox::Inbox;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::http1::Target;
use crate::protocol::message::{Body, Request};

/// Methods of the requests that wait for a response.
const METHODS: [Method; 4] = [Method::GET, Method::HEAD, Method::GET, Method::POST];
/// Limit of a response's field block in bytes.
const BLOCK: usize = 4096;

/// A connection without a socket, on which four requests wait for their responses: streams 1, 3, 5 and 7, the second of
/// which is a HEAD request.
#[derive(Debug)]
pub struct ClientExercise {
    channel: Rc<Channel>,
    client: Client,
    inbox: Inbox,
    streams: Vec<Owner>,
}

/// Effects of a server's bytes.
#[derive(Debug, Eq, PartialEq)]
pub struct Answers {
    /// The state of each response: its head or error, and whether it has ended.
    pub streams: Vec<String>,
    /// Reason why the connection has ended; `None` if it has not.
    pub closed: Option<String>,
    /// Number of body bytes that were not read yet, of responses that have not failed: how much of a wrong body is kept
    /// depends on how it is cut.
    pub buffered: usize,
}

impl Default for ClientExercise {
    fn default() -> Self {
        let channel = Channel::new(Role::Client(Opening::new(REQUESTS.window)));
        let client = Client::on(&channel);
        let open = |method| {
            let request = request(method);
            let outgoing = Outgoing {
                request: &request,
                https: false,
                marks_http1: false,
            };
            client
                .open(outgoing, &Body::empty())
                .map(|(owner, _)| owner)
        };
        Self {
            streams: METHODS.into_iter().filter_map(open).collect(),
            channel,
            client,
            inbox: Inbox::of_server(BLOCK),
        }
    }
}

impl ClientExercise {
    /// Handles pieces of a server's data in order. No response is read.
    pub fn run(&mut self, pieces: &[&[u8]]) -> Answers {
        let mut closed = None;
        for piece in pieces {
            let taken = feed(&mut self.inbox, &self.channel, piece);
            if let Err(error) = taken {
                closed = Some(error.to_string());
                break;
            }
        }
        Answers {
            streams: self.streams.iter().map(describe).collect(),
            closed,
            buffered: self.streams.iter().map(buffered).sum(),
        }
    }

    /// Returns whether further requests could be sent.
    pub fn is_usable(&self) -> bool {
        !self.client.is_gone()
    }
}

fn request(method: Method) -> Request {
    let mut fields = Fields::default();
    let target = fields.add_text(b"/");
    fields.push(Known::Host, b"a");
    Request {
        method,
        target: Target::origin(b"/", target.start as usize),
        version: Version::HTTP_2,
        fields,
    }
}

fn buffered(owner: &Owner) -> usize {
    let state = owner.stream().state.borrow();
    match state.failed {
        None => state.received.len(),
        Some(_) => 0,
    }
}

fn describe(owner: &Owner) -> String {
    let state = owner.stream().state.borrow();
    let head = state
        .answer
        .as_ref()
        .and_then(|answer| answer.head.as_ref());
    let head = head.map(|head| {
        let mut lines = bytes::BytesMut::new();
        head.fields.encode(&mut lines);
        let text = String::from_utf8_lossy(&lines).into_owned();
        format!("{} {:?} {text}", head.status, head.length)
    });
    let interim = state.answer.as_ref().map(|answer| answer.interim.len());
    format!(
        "{head:?} {interim:?} {:?} {:?} {} {}",
        state.failed, state.trailers, state.remote_ended, state.closed
    )
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;
    use crate::protocol::http2::exercise::tests::each_cut;
    use crate::protocol::http2::frame::{self, flag, kind};
    use crate::protocol::streams::STREAM_WINDOW;

    const HEADS: [&[u8]; 7] = [
        &[0x88],
        &[0x8d],
        // content-length: 3, a 103 response, and a field that is added to the table.
        &[0x88, 0x5c, 1, b'3'],
        &[0x08, 3, b'1', b'0', b'3'],
        &[0x88, 0x40, 1, b'x', 1, b'y'],
        // No status, and a name that is not in the table.
        &[0x40, 1, b'x', 1, b'y'],
        &[0x88, 0xff, 0x7f],
    ];

    /// Generates frames that are nearly valid, in any order.
    fn frames(rng: &mut Rng) -> Vec<u8> {
        let mut all = frame::header(0, kind::SETTINGS, 0, 0).to_vec();
        let mut push = |kind, flags, stream, payload: &[u8]| {
            all.extend_from_slice(&frame::header(payload.len(), kind, flags, stream));
            all.extend_from_slice(payload);
        };
        for _ in 0..rng.next_u64() % 24 {
            let mut any = |most: usize| (rng.next_u64() % most as u64) as usize;
            let stream = match any(24) {
                0 => [0, 2, 9][any(3)],
                _ => [1, 3, 5, 7][any(4)],
            };
            let number = [0, 0, any(3) as u8, any(256) as u8];
            match any(14) {
                0..=4 => {
                    let flags = [flag::END_HEADERS, flag::END_HEADERS | flag::END_STREAM];
                    push(
                        kind::HEADERS,
                        flags[any(2)],
                        stream,
                        HEADS[any(HEADS.len())],
                    );
                }
                5 => {
                    let (first, rest) = HEADS[any(HEADS.len())].split_at(any(2));
                    push(kind::HEADERS, any(2) as u8, stream, first);
                    push(kind::CONTINUATION, flag::END_HEADERS, stream, rest);
                }
                6..=8 => push(kind::DATA, [0, 1, 8][any(3)], stream, &vec![0; any(300)]),
                9 => push(kind::RST_STREAM, 0, stream, &number),
                10 => push(kind::WINDOW_UPDATE, 0, [0, stream][any(2)], &number),
                11 => push(kind::GOAWAY, 0, 0, &[&number[..], &number].concat()),
                12 => push(
                    kind::SETTINGS,
                    0,
                    0,
                    &[&[0, [1, 3, 4][any(3)]], &number[..]].concat(),
                ),
                _ => push(
                    any(11) as u8,
                    any(64) as u8,
                    stream,
                    &vec![any(256) as u8; any(12)],
                ),
            }
        }
        all
    }

    #[test]
    fn bytes_of_a_server_come_to_the_same_however_they_are_cut() {
        let mut answered = 0;
        let run = |pieces: &[&[u8]]| ClientExercise::default().run(pieces);
        each_cut(9114, frames, run, |seen| {
            let heads = seen.streams.iter().filter(|text| text.starts_with("Some"));
            answered += heads.count();
            assert!(seen.buffered <= METHODS.len() * STREAM_WINDOW as usize);
        });
        assert!(answered > 1000, "{answered}");
    }
}
