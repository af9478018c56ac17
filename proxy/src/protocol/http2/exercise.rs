//! A connection without a socket, for fuzzing: takes the bytes of a client and returns their effects.

use std::rc::Rc;

use super::connection::{Accepted, Accepting, Admission, Channel, Closed, Limits, Role};
use super::inbox::Inbox;
use crate::protocol::http1;

/// A connection without a socket.
#[derive(Debug)]
pub struct Exercise {
    channel: Rc<Channel>,
    inbox: Inbox,
    accepted: Vec<Accepted>,
}

/// Effects of a client's bytes.
#[derive(Debug, Eq, PartialEq)]
pub struct Seen {
    /// For each request, its stream number and either its method, authority, path and fields, or its error.
    pub requests: Vec<(u32, String)>,
    /// Reason why the connection has ended; `None` if it has not.
    pub closed: Option<String>,
    /// Number of body bytes that were not read yet.
    pub buffered: usize,
    /// Number of open streams.
    pub streams: usize,
}

impl Default for Exercise {
    fn default() -> Self {
        let limits = Limits {
            head: http1::Limits {
                bytes: 2048,
                headers: 32,
            },
            streams: 8,
        };
        let accepting = Accepting::within(Admission::new(limits, || false));
        Self {
            channel: Channel::new(Role::Server(accepting)),
            inbox: Inbox::new(limits.block()),
            accepted: Vec::new(),
        }
    }
}

impl Exercise {
    /// Handles pieces of a client's data in order. No stream is read or answered.
    pub fn run(&mut self, pieces: &[&[u8]]) -> Seen {
        let mut closed = None;
        for piece in pieces {
            let taken = feed(&mut self.inbox, &self.channel, piece);
            // This includes requests that were reset in the same piece, so that the result does not depend on how
            // bytes are split.
            let accepted = self.channel.core.borrow_mut().take_accepted();
            self.accepted.extend(accepted);
            if let Err(error) = taken {
                closed = Some(error.to_string());
                break;
            }
        }
        let core = self.channel.core.borrow();
        let received = |accepted: &Accepted| accepted.owner.stream().state.borrow().received.len();
        Seen {
            requests: self.accepted.iter().map(describe).collect(),
            closed,
            buffered: self.accepted.iter().map(received).sum(),
            streams: core.streams.len(),
        }
    }
}

/// Handles a whole piece of a peer's data.
pub(super) fn feed(inbox: &mut Inbox, channel: &Rc<Channel>, piece: &[u8]) -> Result<(), Closed> {
    let mut rest = piece;
    while !rest.is_empty() {
        inbox.take(channel, &mut rest, 1 + piece.len())?;
    }
    Ok(())
}

fn describe(accepted: &Accepted) -> (u32, String) {
    let text = match &accepted.request {
        Err(error) => error.to_string(),
        Ok(message) => {
            let request = &message.request;
            let mut lines = bytes::BytesMut::new();
            request.fields.encode(&mut lines);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let host = request.host().map(text);
            let path = text(request.path_and_query());
            format!("{} {host:?} {path} {}", request.method, text(&lines))
        }
    };
    (accepted.owner.stream().id, text)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use maglor_balance::Rng;

    use super::*;
    use crate::protocol::http2::frame::{self, PREFACE};

    const GOOD: [&[u8]; 3] = [
        &[0x82, 0x86, 0x84, 0x41, 1, b'a'],
        &[0x83, 0x86, 0x84, 0x41, 1, b'a', 0x40, 1, b'x', 1, b'y'],
        &[0x82, 0x87, 0x44, 0x82, 0x60, 0x3f, 0x41, 1, b'a'],
    ];
    const BAD: [&[u8]; 6] = [
        &[0x82, 0x86, 0x84, 0xbe],
        &[0x82, 0x86, 0x84, 0x41, 1, b'a', 0, 1, b'X', 1, b'y'],
        &[0x20, 0x3f, 0xe1, 0x1f, 0x82],
        b"\0\x05:path\x01/",
        b"\0\x01x\x01y",
        &[],
    ];

    /// Generates frames that are nearly valid, in any order.
    fn frames(rng: &mut Rng) -> Vec<u8> {
        let mut all = [&PREFACE[..], &frame::header(0, 4, 0, 0)].concat();
        let mut push = |kind, flags, stream, payload: &[u8]| {
            all.extend_from_slice(&frame::header(payload.len(), kind, flags, stream));
            all.extend_from_slice(payload);
        };
        let mut next = 1;
        for _ in 0..rng.next_u64() % 40 {
            let mut any = |most: usize| (rng.next_u64() % most as u64) as usize;
            let begun = 2 * any(next as usize / 2 + 1) as u32 + 1;
            let number = [0, 0, any(3) as u8, any(256) as u8];
            match any(16) {
                0..=4 => {
                    push(1, [4, 5][any(2)], next, GOOD[any(3)]);
                    next += 2;
                }
                5 => {
                    let (first, rest) = GOOD[any(3)].split_at(any(5));
                    push(1, any(2) as u8, next, first);
                    push(9, 0, next, &[]);
                    push(9, 4, next, rest);
                    next += 2;
                }
                6 => {
                    push(1, 5, next, BAD[any(6)]);
                    next += 2;
                }
                7 => push(1, 5, begun, BAD[any(6)]),
                8..=10 => push(
                    0,
                    [0, 0, 1, 8][any(4)],
                    begun,
                    &vec![any(4) as u8; any(300)],
                ),
                11 => push(8, 0, [0, begun][any(2)], &number),
                12 => push(3, 0, begun, &number),
                13 => push(4, 0, 0, &[&[0, [1, 4][any(2)]], &number[..]].concat()),
                14 => push([6, 99, 2][any(3)], 0, 0, &[0; 8]),
                _ => push(
                    any(11) as u8,
                    any(64) as u8,
                    begun,
                    &vec![any(256) as u8; any(12)],
                ),
            }
        }
        all
    }

    /// Runs generated data, with an occasional random byte, in one piece and in others: `run` must return the same.
    /// `check` gets what it returned.
    pub(in crate::protocol::http2) fn each_cut<T: Debug + PartialEq>(
        seed: u64,
        generate: impl Fn(&mut Rng) -> Vec<u8>,
        run: impl Fn(&[&[u8]]) -> T,
        mut check: impl FnMut(&T),
    ) {
        let given = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or(seed);
        println!("SEED={seed}");
        let mut rng = Rng::seed(seed);
        for _ in 0..3000 {
            let mut bytes = generate(&mut rng);
            if rng.next_u64().is_multiple_of(4) {
                let at = (rng.next_u64() as usize) % bytes.len();
                bytes[at] = rng.next_u64() as u8;
            }
            let whole = run(&[&bytes]);
            check(&whole);
            let step = 1 + (rng.next_u64() % 20) as usize;
            let pieces: Vec<_> = bytes.chunks(step).collect();
            assert_eq!(run(&pieces), whole, "{step} {bytes:x?}");
        }
    }

    #[test]
    fn bytes_come_to_the_same_however_they_are_cut() {
        let mut served = 0;
        let run = |pieces: &[&[u8]]| Exercise::default().run(pieces);
        each_cut(9113, frames, run, |seen| {
            served += seen.requests.len();
            assert!(seen.streams <= 8 && seen.buffered <= 8 * 64 * 1024);
        });
        assert!(served > 1000, "{served}");
    }
}
