//! Requests to a port with its own responses: an admin port, a webhook, an API.
//!
//! A case is the bytes of one request or several. Expected outcomes: one or several words for each
//! expected response, the responses separated by commas.
//!
//! | words | meaning |
//! | --- | --- |
//! | `200` or `400 403` | a response with one of these statuses |
//! | `200: TEXT` | the last response, with this status and this text in its body |
//! | `cut` | the connection is closed, or reset |
//! | `waits` | nothing is received |

use std::io::ErrorKind;
use std::time::Duration;

use super::{Case, Class, Outcome};
use crate::raw::{RawConnection, RawResponse};

/// The time without data after which a port counts as waiting for more.
const SILENCE: Duration = Duration::from_millis(300);
/// The maximum size in bytes of bodies of error responses: they are a line of text.
const LINE: usize = 1000;

/// The observations of a case.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// The statuses of the final responses.
    pub statuses: Vec<u16>,
    /// The body of the last response.
    pub body: Vec<u8>,
    /// Whether the port closed the connection.
    pub closed: bool,
    /// The reason, if a response was no HTTP, or an error with a page of text.
    pub garbage: Option<String>,
}

impl Port {
    /// Sends a case and reads as many responses as are expected.
    #[must_use]
    pub fn run(case: &Case, client: RawConnection) -> Self {
        Self::send(&case.bytes(), &case.expected, client)
    }

    /// Sends other bytes and reads as many responses as are expected.
    #[must_use]
    pub fn send(bytes: &[u8], expected: &str, mut client: RawConnection) -> Self {
        let mut seen = Self::default();
        // A port that rejects early may have closed before all is written.
        let _ = client.send(bytes);
        let end = bytes.iter().position(|&byte| byte == b' ').unwrap_or(0);
        let method = String::from_utf8_lossy(&bytes[..end]).into_owned();
        for word in expected.split(", ") {
            if word == "waits" {
                seen.closed = !matches!(client.is_silent_for(SILENCE), Ok(true));
                return seen;
            }
            if !seen.read(&mut client, &method) {
                return seen;
            }
        }
        seen
    }

    /// Reads a final response; returns whether there was one.
    fn read(&mut self, client: &mut RawConnection, method: &str) -> bool {
        loop {
            match RawResponse::read(client, method) {
                Ok(interim) if interim.status < 200 => {}
                Ok(response) => {
                    self.statuses.push(response.status);
                    if response.status >= 400 && response.body.len() > LINE {
                        let length = response.body.len();
                        self.garbage = Some(format!("an error with a body of {length} bytes"));
                    }
                    self.body = response.body;
                    return true;
                }
                Err(error) => {
                    let ends = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                    match ends.contains(&error.kind()) {
                        true => self.closed = true,
                        false => self.garbage = Some(error.to_string()),
                    }
                    return false;
                }
            }
        }
    }

    /// Returns the outcome in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let class = match self.statuses.last() {
            Some(..400) => Class::Accepted,
            Some(_) => Class::Refused,
            None if self.closed || self.garbage.is_some() => Class::Refused,
            None => Class::Waits,
        };
        let mut facts: Vec<_> = self.statuses.iter().map(u16::to_string).collect();
        facts.extend(self.closed.then(|| "closed".to_owned()));
        facts.extend(self.garbage.clone());
        if !self.body.is_empty() {
            facts.push(format!("{:.300}", self.body.escape_ascii().to_string()));
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
pub fn check(case: &Case, seen: &Port) -> Result<(), String> {
    let (statuses, text) = match case.expected.split_once(": ") {
        Some((statuses, text)) => (statuses, text),
        None => (case.expected.as_str(), ""),
    };
    let mut answers = seen.statuses.iter();
    let as_expected = statuses.split(", ").all(|words| match words {
        "cut" => seen.closed && answers.next().is_none(),
        "waits" => !seen.closed && answers.next().is_none(),
        words => answers
            .next()
            .is_some_and(|status| words.split(' ').any(|word| word == status.to_string())),
    });
    let body = String::from_utf8_lossy(&seen.body);
    match as_expected && seen.garbage.is_none() && body.contains(text) {
        true => Ok(()),
        false => Err(format!(
            "{}: expected {}, got {}",
            case.name,
            case.expected,
            seen.outcome().detail
        )),
    }
}
