//! The bytes of TLS, sent to a server: ClientHellos written by hand, and records after a handshake.
//!
//! Each line of a case is a command. They change a good ClientHello:
//!
//! | command | meaning |
//! | --- | --- |
//! | `ext TYPE TEXT` | an extension with this content, in place of the one of its type (hexadecimal) or in addition |
//! | `drop TYPE`, `again TYPE TEXT` | without an extension; with another one of the type |
//! | `sni TEXT` | the server name |
//! | `version V`, `suites TEXT`, `compression TEXT`, `session TEXT` | the values of the fields before the extensions |
//! | `tail TEXT` | bytes after the extensions |
//! | `short N`, `long N` | the length field of the message is N bytes too small or too large |
//! | `record V`, `split N` | the version of records; the message in records of N bytes |
//! | `times N COMMAND` | the command N times |
//! | `before TEXT`, `behind TEXT`, `only TEXT` | bytes before the ClientHello, after it, in its place |
//! | `keys 1.3`, `keys 1.2` | a whole handshake; the other lines are those of [`records`] |
//!
//! Expected outcomes:
//!
//! | words | meaning |
//! | --- | --- |
//! | `hello`, `hello 1.2`, `hello 1.3`, `retry` | a ServerHello, or the request for another ClientHello |
//! | `served` | after a handshake: a good request after the case is served |
//! | `refused` | an alert, or the end of the connection |
//! | `alert N` or `alert N M` | one of these alerts |
//! | `waits` | nothing |

mod hello;
mod records;

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Case, Class, Outcome};
use crate::TIMEOUT;
use crate::raw::{RawConnection, RawHttp1};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION: u8 = 23;
/// The size of an encrypted alert: two bytes, its type and a tag.
const ENCRYPTED_ALERT: usize = 2 + 1 + 16;
const NO_RENEGOTIATION: u8 = 100;
const UNRECOGNIZED_NAME: u8 = 112;

/// The observations of a case.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tls {
    /// `hello 1.2`, `hello 1.3`, `retry`, `served`.
    pub answer: Option<&'static str>,
    /// The description of an alert other than the close warning.
    pub alert: Option<u8>,
    /// Whether the connection was closed.
    pub closed: bool,
    /// Set if a ServerHello was received, and the following data have not yet shown whether the
    /// handshake continues: servers choose some parameters afterwards.
    pending: Option<&'static str>,
}

impl Tls {
    /// Sends a case to a TLS server and reads its reaction. Without data for `patience`, it counts
    /// as waiting.
    ///
    /// # Panics
    ///
    /// If there is no connection, or the case is malformed.
    #[must_use]
    pub fn run(case: &Case, server: SocketAddr, patience: Duration) -> Self {
        let socket = TcpStream::connect_timeout(&server, TIMEOUT).expect("the server listens");
        let commands: Vec<_> = case.commands().filter(|line| !line.is_empty()).collect();
        if let Some(version) = commands.first().and_then(|line| line.strip_prefix("keys ")) {
            return records::run(version, &commands[1..], socket, patience);
        }
        let client = RawHttp1::try_over(socket).expect("a fresh socket");
        let mut client = client.into_connection();
        // A server that rejects early may have closed before all is written.
        let _ = client.send(hello::bytes(&commands));
        let mut seen = Self::default();
        while seen.answer.is_none() && seen.alert.is_none() && !seen.closed {
            match client.is_silent_for(patience) {
                Ok(true) => break,
                Ok(false) if seen.read(&mut client).is_some() => {}
                Ok(false) | Err(_) => seen.closed = true,
            }
        }
        seen
    }

    /// Reads a record that is not encrypted; `None` at the end of the connection.
    fn read(&mut self, client: &mut RawConnection) -> Option<()> {
        let head = client.read_exact(5).ok()?;
        let length = u16::from_be_bytes([head[3], head[4]]);
        let payload = client.read_exact(length.into()).ok()?;
        match (head[0], &payload[..]) {
            (ALERT, &[level, alert, ..]) => self.hear(level, alert),
            (HANDSHAKE, [2, l0, l1, l2, ..]) if self.pending.is_none() => {
                let answer = hello::answer(&payload);
                let message = 4 + u32::from_be_bytes([0, *l0, *l1, *l2]) as usize;
                match answer == "retry" || payload.len() > message {
                    true => self.answer = Some(answer),
                    false => self.pending = Some(answer),
                }
            }
            // An encrypted alert, whose description cannot be read.
            (APPLICATION, payload) if payload.len() == ENCRYPTED_ALERT => self.closed = true,
            (APPLICATION | HANDSHAKE, _) => self.answer = self.pending,
            _ => {}
        }
        Some(())
    }

    /// Records an alert; close_notify is the end, and some are warnings.
    fn hear(&mut self, level: u8, alert: u8) {
        match alert {
            0 => self.closed = true,
            NO_RENEGOTIATION | UNRECOGNIZED_NAME if level == 1 => {}
            _ => self.alert = Some(alert),
        }
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let class = match (self.answer, self.alert) {
            (_, Some(_)) => Class::Refused,
            (Some(_), None) => Class::Accepted,
            (None, None) if self.closed => Class::Refused,
            (None, None) => Class::Waits,
        };
        let mut facts: Vec<_> = self
            .answer
            .iter()
            .map(|&answer| answer.to_owned())
            .collect();
        facts.extend(self.alert.map(|alert| format!("alert {alert}")));
        facts.extend(self.closed.then(|| "closed".to_owned()));
        if facts.is_empty() {
            facts.push("nothing".into());
        }
        let detail = facts.join(", ");
        Outcome { class, detail }
    }
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
pub fn check(case: &Case, seen: &Tls) -> Result<(), String> {
    let expected = case.expected.as_str();
    let class = seen.outcome().class;
    let good = match expected.split_once(' ') {
        Some(("alert", alerts)) => seen
            .alert
            .is_some_and(|alert| alerts.split(' ').any(|word| word == alert.to_string())),
        _ => match expected {
            "hello" => seen
                .answer
                .is_some_and(|answer| answer.starts_with("hello")),
            "refused" => class == Class::Refused,
            "waits" => class == Class::Waits,
            answer => seen.answer == Some(answer) && class == Class::Accepted,
        },
    };
    match good {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {expected}, got {}",
            case.name,
            seen.outcome().detail
        )),
    }
}

/// Encodes a record.
fn record(kind: u8, version: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a length of two bytes");
    let head = [&[kind], &version.to_be_bytes()[..], &length.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Reads exactly one record, so that none of the next is lost.
fn read_record(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut record = vec![0; 5];
    socket.read_exact(&mut record)?;
    let length = u16::from_be_bytes([record[3], record[4]]);
    record.resize(5 + usize::from(length), 0);
    socket.read_exact(&mut record[5..])?;
    Ok(record)
}
