//! The gRPC status of a finished call.

use std::fmt;

use http::{HeaderMap, HeaderValue};

/// The gRPC codes used here (`grpc/status.h`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Code {
    /// 3: the request is invalid.
    InvalidArgument = 3,
    /// 7: the peer is known but not permitted.
    PermissionDenied = 7,
    /// 8: a limit is exceeded.
    ResourceExhausted = 8,
    /// 9: the server's surroundings have to be changed by an operator before the call can succeed.
    FailedPrecondition = 9,
    /// 12: there is no such method.
    Unimplemented = 12,
    /// 13: an internal error of the server.
    Internal = 13,
    /// 14: retry, here or elsewhere.
    Unavailable = 14,
    /// 16: the peer is not authenticated.
    Unauthenticated = 16,
}

/// The error of a failed call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// The kind of failure.
    pub code: Code,
    /// A human-readable message.
    pub message: String,
}

impl Status {
    /// Creates a status.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Status {}

/// Returns the trailers that carry the outcome of a call.
pub(crate) fn trailers(outcome: &Result<(), Status>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    let code = outcome
        .as_ref()
        .err()
        .map_or(0, |status| status.code as i32);
    trailers.insert("grpc-status", HeaderValue::from(code));
    if let Err(status) = outcome
        && let Ok(message) = HeaderValue::from_str(&percent_encoded(&status.message))
    {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// Percent-encodes a text: printable ASCII stays, the rest becomes `%XX` (`PROTOCOL-HTTP2.md`,
/// "Status-Message").
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_fit_for_a_header() {
        let status = Status::new(Code::Internal, "50 % größer\n");
        let trailers = trailers(&Err(status));
        assert_eq!(trailers["grpc-status"], "13");
        assert_eq!(trailers["grpc-message"], "50 %25 gr%C3%B6%C3%9Fer%0A");
    }
}
