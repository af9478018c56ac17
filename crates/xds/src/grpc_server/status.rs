//! The gRPC status of a finished call.

use std::fmt;

use http::{HeaderMap, HeaderValue};

/// The gRPC status codes used by the server (`grpc/status.h`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Code {
    /// Code 3: the request is invalid.
    InvalidArgument = 3,
    /// Code 7: the peer is authenticated but not permitted.
    PermissionDenied = 7,
    /// Code 8: a limit is exceeded.
    ResourceExhausted = 8,
    /// Code 9: an operator must change the environment of the server before the call can succeed.
    FailedPrecondition = 9,
    /// Code 12: there is no such method.
    Unimplemented = 12,
    /// Code 13: an internal error of the server.
    Internal = 13,
    /// Code 14: the client should retry, with this server or another one.
    Unavailable = 14,
    /// Code 16: the peer is not authenticated.
    Unauthenticated = 16,
}

/// The error of a failed call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// The status code.
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

/// Returns the trailers that contain the outcome of a call.
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

/// Percent-encodes a text: printable ASCII is unchanged, all other bytes become `%XX` (`PROTOCOL-HTTP2.md`,
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
