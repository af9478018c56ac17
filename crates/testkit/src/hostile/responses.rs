//! Responses of an HTTP/1.1 origin, byte by byte.
//!
//! A good client requests `/case`, and the origin responds with the bytes of the case. Then the
//! client requests `/after`, on the same connection if it is still open, and on another one: bytes
//! left by a proxy on its connection to the origin would be treated as the response to one of
//! these.
//!
//! Words of a group's name change how the case is run: `HEAD` and `POST` are the method instead of
//! `GET`; with `closes` the origin closes its connection after the bytes.
//!
//! Expected outcomes:
//!
//! | words | meaning |
//! | --- | --- |
//! | `ok: 200 5` | this status and a whole body of this number of bytes |
//! | `502` or `502 504` | a response of the proxy with one of these |
//! | `cut` | a response that visibly ends early: the client's connection is closed inside of it |

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Arrival, Case, Class, Outcome, Recorder};
use crate::TIMEOUT;
use crate::raw::{Framing, RawConnection, RawHttp1, RawResponse};

const AFTER: &str = "GET /after HTTP/1.1\r\nhost: after\r\nconnection: close\r\n\r\n";

/// The observations of a case.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status and the length of the body, if a whole response was received.
    pub whole: Option<(u16, usize)>,
    /// Whether a response was received in part.
    pub cut: bool,
    /// The reason, if the data were no HTTP.
    pub garbage: Option<String>,
    /// How often the request reached the origin.
    pub requests: usize,
    /// Whether each later request got its own response.
    pub serves: bool,
}

impl Response {
    /// Runs a case through `proxy`.
    ///
    /// # Panics
    ///
    /// If there is no connection to the proxy.
    #[must_use]
    pub fn run(case: &Case, proxy: SocketAddr, origin: &Recorder, patience: Duration) -> Self {
        let has = |word: &str| {
            let group = case.name.split('/').next().unwrap_or_default();
            group.split(' ').any(|one| one == word)
        };
        let method = ["HEAD", "POST"].into_iter().find(|method| has(method));
        let method = method.unwrap_or("GET");
        origin.answer_with(case.bytes(), has("closes"));
        let socket = TcpStream::connect_timeout(&proxy, TIMEOUT).expect("the proxy listens");
        let client = RawHttp1::try_over(socket).expect("a fresh socket");
        let mut client = client.into_connection();
        let length = match method {
            "POST" => "content-length: 0\r\n",
            _ => "",
        };
        let request = format!("{method} /case HTTP/1.1\r\nhost: case\r\n{length}\r\n");
        let _ = client.send(request);
        let mut seen = Self {
            whole: None,
            cut: false,
            garbage: None,
            requests: 0,
            serves: true,
        };
        let stays = seen.read(&mut client, method, patience);
        if stays && client.send(AFTER).is_ok() {
            seen.serves = is_answered(&mut client, patience);
        }
        drop(client);
        seen.serves &= TcpStream::connect_timeout(&proxy, TIMEOUT)
            .ok()
            .and_then(RawHttp1::try_over)
            .is_some_and(|other| {
                let mut other = other.into_connection();
                other.send(AFTER).is_ok() && is_answered(&mut other, TIMEOUT)
            });
        let of_case =
            |one: &&Arrival| matches!(one, Arrival::Whole(text) if text.contains("/case"));
        seen.requests = origin.take().iter().filter(of_case).count();
        seen
    }

    /// Reads the response; returns whether the connection may be reused.
    fn read(&mut self, client: &mut RawConnection, method: &str, patience: Duration) -> bool {
        loop {
            if !matches!(client.is_silent_for(patience), Ok(false)) {
                return false;
            }
            match RawResponse::read(client, method) {
                Ok(interim) if interim.status < 200 && interim.status != 101 => {}
                Ok(response) => {
                    self.whole = Some((response.status, response.body.len()));
                    let closes = response.header_all("connection").contains(&"close");
                    return !closes && response.framing != Framing::Close;
                }
                Err(error) => {
                    self.fail(&error);
                    return false;
                }
            }
        }
    }

    /// Records why no whole response was read.
    fn fail(&mut self, error: &io::Error) {
        let message = error.to_string();
        let nothing = message.ends_with("after \"\"");
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut = !nothing,
            io::ErrorKind::ConnectionReset => self.cut = true,
            _ => self.garbage = Some(message),
        }
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let class = match self.whole {
            _ if !self.serves => Class::Dead,
            Some((502..=504, _)) => Class::Refused,
            Some(_) => Class::Accepted,
            None if self.cut || self.garbage.is_some() => Class::Refused,
            None => Class::Waits,
        };
        let answer = match (self.whole, self.cut, &self.garbage) {
            (Some((status, length)), ..) => format!("{status} {length}"),
            (None, _, Some(garbage)) => format!("garbage: {garbage:.80}"),
            (None, true, None) => "cut".into(),
            (None, false, None) => "nothing".into(),
        };
        let serves = match self.serves {
            true => "serves",
            false => "a request afterwards got no answer to itself",
        };
        let requests = self.requests;
        Outcome {
            class,
            detail: format!("{answer}, {requests} requests arrived, {serves}"),
        }
    }
}

/// Compares with the expected outcome.
///
/// # Errors
///
/// The difference.
pub fn check(case: &Case, seen: &Response) -> Result<(), String> {
    let expected = case.expected.as_str();
    let good = match expected.strip_prefix("ok: ") {
        _ if !seen.serves || seen.garbage.is_some() || seen.requests == 0 => false,
        Some(answer) => {
            let whole = seen
                .whole
                .map(|(status, length)| format!("{status} {length}"));
            whole.as_deref() == Some(answer)
        }
        None if expected == "cut" => seen.whole.is_none() && seen.cut,
        None => seen
            .whole
            .is_some_and(|(status, _)| expected.split(' ').any(|word| word == status.to_string())),
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

/// Returns whether the origin's response to this request is received.
fn is_answered(client: &mut RawConnection, patience: Duration) -> bool {
    matches!(client.is_silent_for(patience), Ok(false))
        && RawResponse::read(client, "GET").is_ok_and(|response| {
            let number = response.header_all("x-arrived");
            response.status == 200 && number == [String::from_utf8_lossy(&response.body)]
        })
}
