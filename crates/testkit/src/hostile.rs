//! Hostile input as data: tables of cases with the expected outcome of each, and what runs them.
//!
//! The tables are `hostile/*.txt` beside this crate's sources; [`table`] describes their format. A runner of an area
//! sends a case to a proxy and gives what was observed: what the client got, and what reached the origin. The same
//! runners serve the test of the proxy (`proxy/tests/hostile.rs`), which compares with the expected outcome, and
//! `cargo xtask hostile`, which compares with other proxies. See docs/hostile.md.

mod http1;
mod http2;
mod recorder;
mod responses;
pub mod table;

pub use http1::{Http1, check as check_http1, patience};
pub use http2::{Http2, check as check_http2};
pub use recorder::{Arrival, Recorder};
pub use responses::{Response, check as check_response};
pub use table::Case;

/// What a proxy did with a case.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// It was forwarded, or answered with success.
    Accepted,
    /// An error answer, a reset, or the end of the connection.
    Refused,
    /// Nothing: the proxy waits for more bytes.
    Waits,
    /// The proxy does not serve any more.
    Dead,
}

impl Class {
    /// The name in results.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Waits => "waits",
            Self::Dead => "dead",
        }
    }
}

/// The outcome of a case at one proxy.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In short.
    pub class: Class,
    /// What was observed, in one line.
    pub detail: String,
}

/// Requests in HTTP/1.1.
#[must_use]
pub fn http1_requests() -> Vec<Case> {
    table::parse(include_str!("../hostile/http1-requests.txt"))
}

/// Responses of an HTTP/1.1 origin.
#[must_use]
pub fn http1_responses() -> Vec<Case> {
    table::parse(include_str!("../hostile/http1-responses.txt"))
}

/// Frames of HTTP/2.
#[must_use]
pub fn http2() -> Vec<Case> {
    table::parse(include_str!("../hostile/http2.txt"))
}
