//! Requests in HTTP/1.1, byte by byte.
//!
//! After each case, in the same write, follows a good request, `GET /after`: whether, and as what,
//! it reaches the origin shows where the proxy sees the end of the case's last request.
//!
//! Expected outcomes:
//!
//! | words | meaning |
//! | --- | --- |
//! | `400` or `400 501` | error response of the proxy, which then closes; no whole request reaches the origin |
//! | `cut` | the connection is closed without a response; no whole request reaches the origin |
//! | `keeps 405` | a response of the proxy with one of these; the connection stays, and `/after` is served |
//! | `waits` | no response; when the client stops sending, the proxy closes; no whole request reached the origin |
//! | `ok: A + B` | these reach the origin (`METHOD host target bytes-of-body`) and are served, then `/after` is |
//! | `then 400: A` | these are served by the origin; the next one gets an error response, and the proxy closes |
//! | `last: A` | the same as `ok`, but the connection is closed instead of `/after` |

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Arrival, Case, Class, Outcome, Recorder};
use crate::TIMEOUT;
use crate::raw::{RawConnection, RawHttp1, RawResponse};

const AFTER: &str = "GET /after HTTP/1.1\r\nhost: after\r\nconnection: close\r\n\r\n";
const AFTER_ARRIVES: &str = "GET after /after 0";

/// The observations of a case.
#[derive(Clone, Debug)]
pub struct Http1 {
    /// The status of each final response, and whether it is the origin's.
    pub answers: Vec<(u16, bool)>,
    /// The numbers of the origin's responses.
    pub numbers: Vec<u64>,
    /// Whether the proxy closed the connection, before the client did.
    pub closed: bool,
    /// The reason, if a response was no HTTP.
    pub garbage: Option<String>,
    /// The requests that reached the origin.
    pub arrived: Vec<Arrival>,
    /// Whether a request on another connection is served afterwards.
    pub alive: bool,
}

impl Http1 {
    /// Sends a case to `proxy`. Without anything from the proxy for `patience`, the client stops sending.
    ///
    /// # Panics
    ///
    /// If there is no connection to the proxy.
    #[must_use]
    pub fn run(case: &Case, proxy: SocketAddr, origin: &Recorder, patience: Duration) -> Self {
        let bytes = case.bytes();
        let socket = TcpStream::connect_timeout(&proxy, TIMEOUT).expect("the proxy listens");
        let mut client = RawHttp1::try_over(socket)
            .expect("a fresh socket")
            .into_connection();
        let sent = [&bytes[..], AFTER.as_bytes()].concat();
        // A proxy that rejects early may have closed before all is written.
        let _ = client.send(sent);
        let mut seen = Self {
            answers: Vec::new(),
            numbers: Vec::new(),
            closed: false,
            garbage: None,
            arrived: Vec::new(),
            alive: false,
        };
        seen.read(&mut client, &bytes, patience);
        drop(client);
        seen.alive = is_alive(proxy);
        seen.arrived = origin.take();
        let fence = |one: &Arrival| *one == Arrival::Whole("GET fence /fence 0".into());
        seen.arrived.retain(|one| !fence(one));
        seen
    }

    /// Reads responses up to the end of the connection.
    fn read(&mut self, client: &mut RawConnection, bytes: &[u8], patience: Duration) {
        let mut method = method(bytes);
        let mut open = true;
        loop {
            match client.is_silent_for(patience) {
                Ok(false) => {}
                Ok(true) if open => {
                    open = false;
                    if client.finish_sending().is_err() {
                        return;
                    }
                    continue;
                }
                Ok(true) => return,
                Err(_) => {
                    self.closed = open;
                    return;
                }
            }
            match RawResponse::read(client, &method) {
                Ok(response) if response.status < 200 && response.status != 101 => {}
                Ok(response) => {
                    let number = response
                        .header_all("x-arrived")
                        .first()
                        .and_then(|n| n.parse::<u64>().ok());
                    self.answers.push((response.status, number.is_some()));
                    self.numbers.extend(number);
                    method = "GET".into();
                }
                Err(error) => {
                    let ends = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
                    let message = error.to_string();
                    let nothing = message.ends_with("after \"\"") || !ends.contains(&error.kind());
                    if ends.contains(&error.kind()) && (nothing || error.kind() == ends[1]) {
                        self.closed = open;
                    } else {
                        self.garbage = Some(message);
                    }
                    return;
                }
            }
        }
    }

    fn whole(&self) -> Vec<&str> {
        let arrived = self.arrived.iter();
        let whole = arrived.filter_map(|one| match one {
            Arrival::Whole(text) => Some(text.as_str()),
            Arrival::Cut(_) | Arrival::Malformed(_) => None,
        });
        whole.collect()
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let class = match self.answers.first() {
            _ if !self.alive => Class::Dead,
            Some(&(status, from_origin)) if from_origin || status < 400 => Class::Accepted,
            Some(_) => Class::Refused,
            None if self.closed || self.garbage.is_some() => Class::Refused,
            None => Class::Waits,
        };
        let statuses = self.answers.iter().map(|(status, origin)| match origin {
            true => format!("{status} of the origin"),
            false => status.to_string(),
        });
        let statuses: Vec<_> = statuses.collect();
        let end = match (self.closed, &self.garbage) {
            (_, Some(_)) => "garbage",
            (true, None) => "closed",
            (false, None) => "open",
        };
        let arrived = self.arrived.iter().map(|one| match one {
            Arrival::Whole(text) => text.clone(),
            Arrival::Cut(_) => "cut off".into(),
            Arrival::Malformed(text) => format!("malformed {text:.80}"),
        });
        let arrived: Vec<_> = arrived.collect();
        let detail = format!(
            "answers [{}], {end}; arrived [{}]",
            statuses.join(", "),
            arrived.join(", ")
        );
        Outcome { class, detail }
    }
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
pub fn check(case: &Case, seen: &Http1) -> Result<(), String> {
    let expected = case.expected.as_str();
    let whole = seen.whole();
    let statuses: Vec<_> = seen.answers.iter().map(|(status, _)| *status).collect();
    let is_one_of =
        |words: &str, status: u16| words.split(' ').any(|word| word == status.to_string());
    let good = match expected.split_once(' ') {
        _ if !seen.alive || seen.garbage.is_some() => false,
        // The requests that got responses arrived, in this order.
        _ if seen.numbers.len() != whole.len() || !seen.numbers.is_sorted() => false,
        _ if seen
            .arrived
            .iter()
            .any(|one| matches!(one, Arrival::Malformed(_))) =>
        {
            false
        }
        Some(("ok:", requests)) => {
            let mut wanted: Vec<_> = requests.split(" + ").collect();
            wanted.push(AFTER_ARRIVES);
            whole == wanted && statuses.iter().all(|&status| status == 200)
        }
        Some(("last:", requests)) => {
            let wanted: Vec<_> = requests.split(" + ").collect();
            whole == wanted && statuses.iter().all(|&status| status == 200) && seen.closed
        }
        Some(("then", words)) => {
            let (words, requests) = words.split_once(": ").unwrap_or_default();
            let refused = statuses
                .last()
                .is_some_and(|&status| is_one_of(words, status));
            whole == requests.split(" + ").collect::<Vec<_>>() && refused && seen.closed
        }
        Some(("keeps", words)) => match statuses[..] {
            [refused, 200] => is_one_of(words, refused) && whole == [AFTER_ARRIVES],
            _ => false,
        },
        _ if !whole.is_empty() => false,
        None if expected == "cut" => statuses.is_empty() && seen.closed,
        None if expected == "waits" => statuses.len() < 2 && !seen.closed,
        _ => matches!(statuses[..], [status] if is_one_of(expected, status)) && seen.closed,
    };
    match good {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {expected}, got {}{}",
            case.name,
            seen.outcome().detail,
            seen.garbage.as_deref().unwrap_or_default()
        )),
    }
}

/// Returns the patience with our proxy, depending on whether `case` is expected to leave it
/// waiting.
#[must_use]
pub fn patience(case: &Case) -> Duration {
    match case.expected == "waits" {
        true => Duration::from_millis(100),
        false => TIMEOUT,
    }
}

fn method(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(0);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns whether a good request on a separate connection is served.
fn is_alive(proxy: SocketAddr) -> bool {
    let Ok(socket) = TcpStream::connect_timeout(&proxy, TIMEOUT) else {
        return false;
    };
    let Some(mut client) = RawHttp1::try_over(socket) else {
        return false;
    };
    let request = "GET /fence HTTP/1.1\r\nhost: fence\r\nconnection: close\r\n\r\n";
    client.connection().send(request).is_ok()
        && client
            .try_response("GET")
            .is_ok_and(|response| response.status == 200)
}
