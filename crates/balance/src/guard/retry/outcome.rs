//! The outcome of an attempt, and the retry conditions that it meets.

use std::time::Duration;

use super::condition::{Condition, Conditions};
use crate::guard::GrpcStatus;

/// The outcome of an attempt, evaluated before any part of it is sent to the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The head of a response arrived.
    Answer(Answer),
    /// There was no response.
    Failure(Failure),
}

/// The head of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `grpc-status` in the head (of a response without body); `None` = the head has none. Trailers arrive too
    /// late: by then the body has been sent to the client.
    pub grpc: Option<GrpcStatus>,
    /// Whether the head has one of the route's retriable headers.
    pub retriable_header: bool,
    /// Whether the endpoint indicates that it sheds load (`x-envoy-overloaded`), which a retry would increase.
    pub overloaded: bool,
    /// The value of `Retry-After`; `None` = absent.
    pub retry_after: Option<Duration>,
    /// The value of `grpc-retry-pushback-ms`; `None` = absent.
    pub pushback: Option<Pushback>,
}

impl Answer {
    /// Creates a response with only a status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self {
            status,
            grpc: None,
            retriable_header: false,
            overloaded: false,
            retry_after: None,
            pushback: None,
        }
    }

    /// Creates a gRPC response that consists of its status.
    #[must_use]
    pub const fn grpc(status: GrpcStatus) -> Self {
        Self {
            grpc: Some(status),
            ..Self::status(200)
        }
    }

    /// Returns the conditions that the response meets, except for those on listed statuses.
    #[inline]
    fn met(&self) -> Conditions {
        if self.status < 400 && !self.retriable_header {
            return self.grpc.map_or(Conditions::NONE, met_by_grpc);
        }
        let mut met = self.grpc.map_or(Conditions::NONE, met_by_grpc);
        match self.status {
            409 => met.insert(Condition::Retriable4xx),
            500..600 => met.insert(Condition::FiveXx),
            _ => {}
        }
        if matches!(self.status, 502..=504) {
            met.insert(Condition::GatewayError);
        }
        if self.retriable_header {
            met.insert(Condition::RetriableHeaders);
        }
        met
    }
}

fn met_by_grpc(status: GrpcStatus) -> Conditions {
    let condition = match status {
        GrpcStatus::CANCELLED => Condition::Cancelled,
        GrpcStatus::DEADLINE_EXCEEDED => Condition::DeadlineExceeded,
        GrpcStatus::INTERNAL => Condition::Internal,
        GrpcStatus::RESOURCE_EXHAUSTED => Condition::ResourceExhausted,
        GrpcStatus::UNAVAILABLE => Condition::Unavailable,
        _ => return Conditions::NONE,
    };
    Conditions::of(&[condition])
}

/// The reason why there was no response.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Failure {
    /// The endpoint is at one of its limits: nothing was sent, and another endpoint may accept the request.
    Busy,
    /// No connection was established in time (TCP, TLS or the HTTP/2 preface).
    Connect,
    /// The per-try timeout expired.
    PerTryTimeout,
    /// The endpoint rejected the HTTP/2 stream: REFUSED_STREAM, or GOAWAY with a lower stream id.
    Refused,
    /// The connection was closed, or the stream was reset, after at least a part of the request was sent.
    Reset,
    /// A reused connection was closed without a byte of response: most likely while the request was in transit.
    Stale,
    /// The connection was closed before a byte of the request was sent.
    Unsent,
}

impl Failure {
    /// Returns whether the application cannot have received the request. Such a request is retried regardless of its
    /// method, and the retry does not count against the budget.
    #[must_use]
    pub const fn is_unseen(self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Connect | Self::Refused | Self::Unsent
        )
    }

    /// Returns whether a retry adds no load to applications: after a failure for which [`Self::is_unseen`] holds, or
    /// after a stale connection.
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.is_unseen() || matches!(self, Self::Stale)
    }

    const fn met(self) -> Conditions {
        use Condition as C;
        // `5xx`, `gateway-error` and `reset` include every kind of missing response, as in Envoy.
        match self {
            Self::Busy => Conditions::ALL,
            Self::Connect => Conditions::of(&[
                C::ConnectFailure,
                C::FiveXx,
                C::GatewayError,
                C::Reset,
                C::ResetBeforeRequest,
            ]),
            Self::PerTryTimeout | Self::Reset => {
                Conditions::of(&[C::FiveXx, C::GatewayError, C::Reset])
            }
            Self::Refused => {
                Conditions::of(&[C::FiveXx, C::GatewayError, C::RefusedStream, C::Reset])
            }
            Self::Stale | Self::Unsent => {
                Conditions::of(&[C::FiveXx, C::GatewayError, C::Reset, C::ResetBeforeRequest])
            }
        }
    }
}

impl Outcome {
    /// Returns whether the outcome meets one of the `wanted` conditions; `codes` are the listed statuses.
    #[inline]
    pub(super) fn meets(&self, wanted: Conditions, codes: &[u16]) -> bool {
        match self {
            Self::Answer(answer) => {
                wanted.meets(answer.met())
                    || (wanted.contains(Condition::RetriableStatusCodes)
                        && codes.contains(&answer.status))
            }
            Self::Failure(failure) => wanted.meets(failure.met()),
        }
    }

    pub(super) fn is_unseen(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_unseen())
    }

    pub(super) fn is_free(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_free())
    }
}

/// The value of `grpc-retry-pushback-ms` (gRFC A6, "Server pushback").
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pushback {
    /// Retry after exactly this time.
    After(Duration),
    /// Do not retry.
    Never,
}

impl Pushback {
    /// Parses the value of the field; negative and invalid numbers mean [`Never`](Self::Never).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        match text.trim().parse::<u32>() {
            Ok(millis) => Self::After(Duration::from_millis(u64::from(millis))),
            Err(_) => Self::Never,
        }
    }
}

/// Parses a `Retry-After` in seconds (RFC 9110 §10.2.3). The form with a date needs a calendar, which only the caller
/// has.
#[must_use]
pub fn retry_after_seconds(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Larger numbers are longer than any client waits.
    digits.then(|| Duration::from_secs(text.parse::<u32>().map_or(u64::from(u32::MAX), u64::from)))
}

/// Returns whether a method is idempotent (RFC 9110 §9.2.2): repeating it has no further effect.
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "QUERY" | "PROPFIND" | "SEARCH"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(outcome: Outcome) -> Vec<&'static str> {
        Condition::ALL
            .into_iter()
            .filter(|c| outcome.meets(Conditions::of(&[*c]), &[429]))
            .map(Condition::name)
            .collect()
    }

    fn status(status: u16) -> Vec<&'static str> {
        met(Outcome::Answer(Answer::status(status)))
    }

    #[test]
    fn answers_meet_their_conditions() {
        assert!(status(200).is_empty() && status(404).is_empty() && status(101).is_empty());
        assert_eq!(status(500), ["5xx"]);
        assert_eq!(status(501), ["5xx"]);
        assert_eq!(status(503), ["5xx", "gateway-error"]);
        assert_eq!(status(505), ["5xx"]);
        assert_eq!(status(409), ["retriable-4xx"]);
        assert_eq!(status(429), ["retriable-status-codes"]);
        let header = Answer {
            retriable_header: true,
            ..Answer::status(200)
        };
        assert_eq!(met(Outcome::Answer(header)), ["retriable-headers"]);
        for (code, expected) in [
            (1, "cancelled"),
            (4, "deadline-exceeded"),
            (8, "resource-exhausted"),
            (13, "internal"),
            (14, "unavailable"),
        ] {
            let answer = Answer::grpc(GrpcStatus::new(code));
            assert_eq!(met(Outcome::Answer(answer)), [expected]);
        }
        assert!(met(Outcome::Answer(Answer::grpc(GrpcStatus::OK))).is_empty());
    }

    #[test]
    fn failures_meet_their_conditions() {
        let met = |failure| met(Outcome::Failure(failure));
        let silence = ["5xx", "gateway-error", "reset"];
        assert_eq!(met(Failure::Reset), silence);
        assert_eq!(met(Failure::PerTryTimeout), silence);
        assert!(met(Failure::Connect).contains(&"connect-failure"));
        assert!(met(Failure::Refused).contains(&"refused-stream"));
        assert!(met(Failure::Stale).contains(&"reset-before-request"));
        assert!(met(Failure::Unsent).contains(&"reset-before-request"));
        assert!(!met(Failure::Refused).contains(&"reset-before-request"));
    }

    #[test]
    fn fields_are_read() {
        assert_eq!(
            Pushback::parse(b"250"),
            Pushback::After(Duration::from_millis(250))
        );
        for never in [&b"-1"[..], b"x", b"", b"99999999999"] {
            assert_eq!(Pushback::parse(never), Pushback::Never);
        }
        assert_eq!(retry_after_seconds(b" 2 "), Some(Duration::from_secs(2)));
        assert!(
            retry_after_seconds(b"99999999999999999999").unwrap() > Duration::from_secs(1 << 31)
        );
        assert_eq!(retry_after_seconds(b"Wed, 21 Oct 2015 07:28:00 GMT"), None);
        assert_eq!(retry_after_seconds(b""), None);
    }
}
