//! The observations of a case of frames, of HTTP/2 or of the mesh transport.

use std::time::{Duration, Instant};

use super::{Arrival, Case, Class, Outcome, Recorder};
use crate::TIMEOUT;
use crate::raw::RawConnection;

/// The good request after each case, at the origin.
const FENCE: &str = "GET after /after 0";

/// The observations of a case.
#[derive(Clone, Debug, Default)]
pub struct Framed {
    /// The status of the response on stream 1.
    pub status: Option<u16>,
    /// The code of the reset of stream 1, if no response came before.
    pub reset: Option<u32>,
    /// The code of the last GOAWAY.
    pub goaway: Option<u32>,
    /// Whether the proxy closed the connection.
    pub closed: bool,
    /// Whether the good request after the case was served.
    pub serves: bool,
    /// The requests that reached the origin, without the good request.
    pub arrived: Vec<Arrival>,
}

impl Framed {
    /// Reads frames until nothing is received for `patience`, or further ones cannot change the
    /// verdict. `read` returns `None` at the end of the connection.
    pub(super) fn observe(
        case: &Case,
        mut client: RawConnection,
        origin: &Recorder,
        patience: Duration,
        expects_end: bool,
        read: impl Fn(&mut Self, &mut RawConnection) -> Option<()>,
    ) -> Self {
        let mut seen = Self::default();
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until && (expects_end || !seen.is_complete(case)) {
            match client.is_silent_for(patience) {
                Ok(true) => break,
                Ok(false) if read(&mut seen, &mut client).is_some() => {}
                Ok(false) | Err(_) => {
                    seen.closed = true;
                    break;
                }
            }
        }
        drop(client);
        seen.arrived = origin.take();
        let fence = |one: &Arrival| matches!(one, Arrival::Whole(text) if text == FENCE);
        seen.arrived.retain(|one| !fence(one));
        seen
    }

    fn is_complete(&self, case: &Case) -> bool {
        let answered = self.status.is_some() || self.reset.is_some();
        self.serves && (case.expected == "ignored" || answered)
    }

    /// Returns whether no whole request reached the origin.
    pub(super) fn none_arrived(&self) -> bool {
        let whole = |one: &Arrival| matches!(one, Arrival::Whole(_));
        !self.arrived.iter().any(whole)
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let ended = self.closed || self.goaway.is_some_and(|code| code != 0);
        let class = match (self.status, self.reset) {
            (Some(status), _) if status < 400 => Class::Accepted,
            (Some(_), _) | (None, Some(_)) => Class::Refused,
            (None, None) if ended => Class::Refused,
            (None, None) if self.serves => Class::Accepted,
            (None, None) => Class::Waits,
        };
        let mut facts = Vec::new();
        facts.extend(self.status.map(|status| format!("answered {status}")));
        facts.extend(self.reset.map(|code| format!("reset {code}")));
        facts.extend(self.goaway.map(|code| format!("goaway {code}")));
        facts.extend(self.closed.then(|| "closed".to_owned()));
        facts.push(match self.serves {
            true => "serves on".into(),
            false => "serves no more".into(),
        });
        facts.extend(self.arrived.iter().map(|one| match one {
            Arrival::Whole(text) => format!("arrived {text}"),
            Arrival::Cut(_) => "arrived cut off".into(),
            Arrival::Malformed(text) => format!("arrived malformed {text:.80}"),
        }));
        let detail = facts.join(", ");
        Outcome { class, detail }
    }

    /// Compares with the expected outcome; `ended` is what has to be true besides a GOAWAY.
    pub(super) fn check(&self, case: &Case, ended: bool) -> Result<(), String> {
        let expected = case.expected.as_str();
        let (word, rest) = expected.split_once(' ').unwrap_or((expected, ""));
        let one_of = |words: &str, code: Option<u32>| {
            code.is_some_and(|code| words.split(' ').any(|word| word == code.to_string()))
        };
        let malformed = |one: &Arrival| matches!(one, Arrival::Malformed(_));
        let status = self.status.map(u32::from);
        let serves_none = self.serves && self.none_arrived();
        let good = match word {
            _ if self.arrived.iter().any(malformed) => false,
            "ok:" => {
                let whole = [Arrival::Whole(rest.into())];
                self.serves && status == Some(200) && self.arrived == whole
            }
            "reset" => serves_none && one_of(rest, self.reset) && status.is_none(),
            "goaway" => one_of(rest, self.goaway) && ended,
            "closed" => self.none_arrived() && (self.closed || self.goaway.is_some()),
            "ignored" => serves_none && status.is_none() && self.reset.is_none(),
            _ => serves_none && one_of(expected, status),
        };
        match good {
            true => Ok(()),
            false => Err(format!(
                "{}: expected {expected}, got {}",
                case.name,
                self.outcome().detail
            )),
        }
    }
}

/// Returns four bytes of a payload as a number.
pub(super) fn word(payload: &[u8], at: usize) -> Option<u32> {
    let bytes = payload.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
