//! Frames of a channel: 32 bytes each, integers in network byte order.
//!
//! ```text
//!  0      1        4        8                16               24               32
//! ┌──────┬────────┬────────┬────────────────┬────────────────┬────────────────┐
//! │ kind │  age   │ number │      name      │       a        │       b        │
//! └──────┴────────┴────────┴────────────────┴────────────────┴────────────────┘
//! ```
//!
//! `age` is the server's age in reports, otherwise 0; `number` pairs an answer with its query; `name` identifies a
//! server ([`Name`]); `a` and `b` depend on the kind. A receiver ignores unknown kinds, so that the protocol can be
//! extended.

use std::time::Duration;

use maglor_balance::queue_protocol::{Among, Load, Name, Referral, Report, Ticket};

use crate::telemetry::record::nanos;

/// Size of a frame in bytes.
pub const LENGTH: usize = 32;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frame {
    /// To a server's inbound proxy: requests its load.
    AskLoad {
        /// Number of the query.
        number: u32,
    },
    /// Answer to [`Frame::AskLoad`].
    Load {
        /// Number of the query; 0 for an unsolicited report.
        number: u32,
        /// The load of the server.
        load: Load,
    },
    /// To the host of a ledger: requests a server for a request.
    AskReferral {
        /// Number of the query.
        number: u32,
        /// The eligible servers of the group; `None` if all are eligible.
        among: Option<Among>,
    },
    /// Answer to [`Frame::AskReferral`].
    Referral {
        /// Number of the query.
        number: u32,
        /// The chosen server; `None` if the ledger has none.
        referral: Option<Referral>,
    },
    /// To a server's inbound proxy: subscribes to load reports.
    Subscribe {
        /// Average number of messages per request that the server should send to all its balancers together; finite
        /// and not negative.
        overhead: f32,
    },
    /// To the host of a ledger, from a server's inbound proxy: a report.
    Report {
        /// Name of the server.
        from: Name,
        /// The report.
        report: Report,
    },
    /// From the host of a ledger: requests a report.
    Audit {
        /// Name of the server.
        of: Name,
    },
}

mod kind {
    pub(super) const ASK_LOAD: u8 = 1;
    pub(super) const LOAD: u8 = 2;
    pub(super) const ASK_REFERRAL: u8 = 3;
    pub(super) const REFERRAL: u8 = 4;
    pub(super) const SUBSCRIBE: u8 = 5;
    pub(super) const REPORT: u8 = 6;
    pub(super) const AUDIT: u8 = 7;
}

/// The fields in their order on the wire.
#[derive(Clone, Copy, Default)]
struct Raw {
    kind: u8,
    /// Only three bytes are encoded.
    age: u32,
    number: u32,
    name: u64,
    a: u64,
    b: u64,
}

impl Frame {
    /// Encodes the frame.
    pub fn encode(&self) -> [u8; LENGTH] {
        let raw = self.raw();
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&raw.age.to_be_bytes());
        bytes[0] = raw.kind;
        bytes[4..8].copy_from_slice(&raw.number.to_be_bytes());
        bytes[8..16].copy_from_slice(&raw.name.to_be_bytes());
        bytes[16..24].copy_from_slice(&raw.a.to_be_bytes());
        bytes[24..32].copy_from_slice(&raw.b.to_be_bytes());
        bytes
    }

    /// Decodes a frame; `None` for an unknown kind or invalid values.
    pub fn decode(bytes: &[u8; LENGTH]) -> Option<Self> {
        let [kind, a0, a1, a2, n0, n1, n2, n3, rest @ ..] = *bytes;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&rest[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Self::of(Raw {
            kind,
            age: u32::from_be_bytes([0, a0, a1, a2]),
            number: u32::from_be_bytes([n0, n1, n2, n3]),
            name: word(0),
            a: word(8),
            b: word(16),
        })
    }

    fn raw(&self) -> Raw {
        let raw = Raw::default();
        match *self {
            Self::AskLoad { number } => Raw {
                kind: kind::ASK_LOAD,
                number,
                ..raw
            },
            Self::Load { number, load } => Raw {
                kind: kind::LOAD,
                number,
                a: load.in_flight.into(),
                b: nanos(load.latency),
                ..raw
            },
            Self::AskReferral { number, among } => Raw {
                kind: kind::ASK_REFERRAL,
                number,
                name: among.map_or(0, |among| among.membership | u64::from(among.equal)),
                a: among.map_or(0, |among| (among.servers >> 64) as u64),
                b: among.map_or(0, |among| among.servers as u64),
                ..raw
            },
            Self::Referral { number, referral } => Raw {
                kind: kind::REFERRAL,
                number,
                name: referral.map_or(0, |referral| referral.server.to_bits()),
                a: referral
                    .and_then(|referral| referral.ticket)
                    .map_or(0, pack),
                b: referral
                    .and_then(|referral| referral.second)
                    .map_or(0, Name::to_bits),
                ..raw
            },
            Self::Subscribe { overhead } => Raw {
                kind: kind::SUBSCRIBE,
                a: overhead.to_bits().into(),
                ..raw
            },
            Self::Report { from, report } => Raw {
                kind: kind::REPORT,
                age: report.age.map_or(0, hundredths),
                number: report.in_flight,
                name: from.to_bits(),
                a: report.latest.map_or(0, pack),
                b: nanos(report.pace),
            },
            Self::Audit { of } => Raw {
                kind: kind::AUDIT,
                name: of.to_bits(),
                ..raw
            },
        }
    }

    fn of(raw: Raw) -> Option<Self> {
        let Raw {
            age,
            number,
            name,
            a,
            b,
            ..
        } = raw;
        Some(match raw.kind {
            kind::ASK_LOAD => Self::AskLoad { number },
            kind::LOAD => Self::Load {
                number,
                load: Load {
                    in_flight: u32::try_from(a).ok()?,
                    latency: Duration::from_nanos(b),
                },
            },
            kind::ASK_REFERRAL => Self::AskReferral {
                number,
                among: (name != 0).then_some(Among {
                    membership: name & !1,
                    equal: name & 1 == 1,
                    servers: u128::from(a) << 64 | u128::from(b),
                }),
            },
            kind::REFERRAL => Self::Referral {
                number,
                referral: match (name, unpack(a)) {
                    (0, None) => None,
                    (_, None) if a != 0 => None,
                    (name, ticket) => Some(Referral {
                        server: Name::from_bits(name),
                        ticket,
                        second: (b != 0 && ticket.is_none()).then(|| Name::from_bits(b)),
                    }),
                },
            },
            kind::SUBSCRIBE => Self::Subscribe {
                overhead: u32::try_from(a)
                    .ok()
                    .map(f32::from_bits)
                    .filter(|overhead| overhead.is_finite() && *overhead >= 0.0)?,
            },
            kind::REPORT => Self::Report {
                from: Name::from_bits(name),
                report: Report {
                    in_flight: number,
                    latest: unpack(a),
                    pace: Duration::from_nanos(b),
                    age: age
                        .checked_sub(1)
                        .map(|hundredths| Duration::from_millis(10 * u64::from(hundredths))),
                },
            },
            kind::AUDIT => Self::Audit {
                of: Name::from_bits(name),
            },
            _ => return None,
        })
    }
}

/// Converts an age to hundredths of a second plus one, because 0 means no age. The maximum is about two days.
fn hundredths(age: Duration) -> u32 {
    let most = (1 << 24) - 1;
    u32::try_from(age.as_millis() / 10 + 1).map_or(most, |age| age.min(most))
}

fn pack(ticket: Ticket) -> u64 {
    u64::from(ticket.epoch) << 32 | u64::from(ticket.number)
}

/// Decodes a ticket. An epoch is never 0, so 0 means no ticket.
fn unpack(word: u64) -> Option<Ticket> {
    let ticket = Ticket {
        epoch: (word >> 32) as u32,
        number: word as u32,
    };
    (ticket.epoch != 0).then_some(ticket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            epoch: 0xdead_beef,
            number: 7,
        }
    }

    fn examples() -> Vec<Frame> {
        let server = Name::of("10.0.0.1:80");
        let load = Load {
            in_flight: 9,
            latency: Duration::from_micros(1234),
        };
        let report = |latest| Frame::Report {
            from: server,
            report: Report {
                in_flight: u32::MAX,
                latest,
                pace: Duration::from_millis(20),
                age: latest.map(|_| Duration::from_secs(3600)),
            },
        };
        let referral = Referral {
            server,
            ticket: Some(ticket()),
            second: None,
        };
        vec![
            Frame::AskLoad { number: 1 },
            Frame::Load { number: 1, load },
            Frame::AskReferral {
                number: u32::MAX,
                among: None,
            },
            Frame::AskReferral {
                number: 2,
                among: Some(Among {
                    membership: Among::membership([server]),
                    equal: true,
                    servers: 1 << 127 | 5,
                }),
            },
            Frame::Referral {
                number: 3,
                referral: Some(referral),
            },
            Frame::Referral {
                number: 4,
                referral: None,
            },
            Frame::Referral {
                number: 5,
                referral: Some(Referral {
                    server,
                    ticket: None,
                    second: None,
                }),
            },
            Frame::Referral {
                number: 6,
                referral: Some(Referral {
                    server,
                    ticket: None,
                    second: Some(Name::of("10.0.0.2:80")),
                }),
            },
            Frame::Subscribe { overhead: 10.0 },
            report(Some(ticket())),
            report(None),
            Frame::Audit { of: server },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for frame in examples() {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        let report = Frame::Report {
            from: Name::from_bits(0x0102_0304_0506_0708),
            report: Report {
                in_flight: 5,
                latest: Some(ticket()),
                pace: Duration::from_nanos(258),
                age: Some(Duration::from_millis(2580)),
            },
        };
        let bytes = report.encode();
        assert_eq!(&bytes[..8], [6, 0, 1, 3, 0, 0, 0, 5]);
        assert_eq!(&bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(
            &bytes[16..24],
            [0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 7],
            "epoch, then number"
        );
        assert_eq!(&bytes[24..], [0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn ages_that_do_not_fit_are_the_greatest_that_does() {
        let age = |age| {
            let report = Report {
                age,
                ..Report::default()
            };
            let from = Name::from_bits(1);
            match Frame::decode(&Frame::Report { from, report }.encode()) {
                Some(Frame::Report { report, .. }) => report.age,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(age(None), None);
        assert_eq!(age(Some(Duration::ZERO)), Some(Duration::ZERO));
        let most = age(Some(Duration::MAX)).unwrap();
        assert!(most > Duration::from_hours(46) && most < Duration::from_hours(47));
    }

    #[test]
    fn nonsense_is_passed_over() {
        let mut bytes = Frame::Subscribe { overhead: 1.0 }.encode();
        bytes[20..24].copy_from_slice(&f32::NAN.to_bits().to_be_bytes());
        assert_eq!(Frame::decode(&bytes), None);
        bytes[0] = 200;
        assert_eq!(Frame::decode(&bytes), None, "a kind of a later version");
        let mut load = Frame::AskLoad { number: 1 }.encode();
        load[0] = 2;
        load[16] = 1;
        assert_eq!(Frame::decode(&load), None, "more in flight than can be");
    }
}
