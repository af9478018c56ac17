//! The conditions of a retry: Envoy's conditions under Envoy's names (`x-envoy-retry-on` and
//! `x-envoy-retry-grpc-on`).

use std::fmt;
use std::str::FromStr;

/// A condition for a retry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Condition {
    /// `cancelled`: gRPC status 1 in the head of the response.
    Cancelled,
    /// `connect-failure`: no connection was made in time.
    ConnectFailure,
    /// `deadline-exceeded`: gRPC status 4.
    DeadlineExceeded,
    /// `5xx`: a status of 500–599, or no response at all.
    FiveXx,
    /// `gateway-error`: 502, 503 or 504, or no response at all.
    GatewayError,
    /// `internal`: gRPC status 13.
    Internal,
    /// `refused-stream`: HTTP/2 indicates that the request was not processed (REFUSED_STREAM, or GOAWAY with a lower
    /// stream id).
    RefusedStream,
    /// `reset`: no response at all, for any reason, including a per-try timeout.
    Reset,
    /// `reset-before-request`: the connection was closed before the request was sent, or a kept-alive connection was
    /// closed without a byte of response.
    ResetBeforeRequest,
    /// `resource-exhausted`: gRPC status 8.
    ResourceExhausted,
    /// `retriable-4xx`: 409.
    Retriable4xx,
    /// `retriable-headers`: the response has one of the headers that the route lists.
    RetriableHeaders,
    /// `retriable-status-codes`: the status is one of those that the route lists.
    RetriableStatusCodes,
    /// `unavailable`: gRPC status 14.
    Unavailable,
}

impl Condition {
    /// All conditions, by name.
    pub const ALL: [Self; 14] = [
        Self::FiveXx,
        Self::Cancelled,
        Self::ConnectFailure,
        Self::DeadlineExceeded,
        Self::GatewayError,
        Self::Internal,
        Self::RefusedStream,
        Self::Reset,
        Self::ResetBeforeRequest,
        Self::ResourceExhausted,
        Self::Retriable4xx,
        Self::RetriableHeaders,
        Self::RetriableStatusCodes,
        Self::Unavailable,
    ];

    /// Returns Envoy's name for the condition.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::ConnectFailure => "connect-failure",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::FiveXx => "5xx",
            Self::GatewayError => "gateway-error",
            Self::Internal => "internal",
            Self::RefusedStream => "refused-stream",
            Self::Reset => "reset",
            Self::ResetBeforeRequest => "reset-before-request",
            Self::ResourceExhausted => "resource-exhausted",
            Self::Retriable4xx => "retriable-4xx",
            Self::RetriableHeaders => "retriable-headers",
            Self::RetriableStatusCodes => "retriable-status-codes",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a text that names no condition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no retry condition `{0}`")]
pub struct UnknownCondition(String);

impl FromStr for Condition {
    type Err = UnknownCondition;

    fn from_str(text: &str) -> Result<Self, UnknownCondition> {
        let mut all = Self::ALL.into_iter();
        all.find(|condition| condition.name() == text)
            .ok_or_else(|| UnknownCondition(text.to_owned()))
    }
}

/// A set of conditions.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Conditions(u16);

impl Conditions {
    /// The set of all conditions.
    pub const ALL: Self = Self(u16::MAX);
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Creates a set of these conditions.
    #[must_use]
    pub const fn of(conditions: &[Condition]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < conditions.len() {
            bits |= 1 << conditions[i] as u8;
            i += 1;
        }
        Self(bits)
    }

    /// Adds a condition.
    pub fn insert(&mut self, condition: Condition) {
        self.0 |= Self::of(&[condition]).0;
    }

    /// Returns whether the set contains a condition.
    #[must_use]
    pub const fn contains(self, condition: Condition) -> bool {
        self.meets(Self::of(&[condition]))
    }

    /// Returns whether the sets have a common condition.
    #[must_use]
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the conditions of the set, by name.
    pub fn iter(self) -> impl Iterator<Item = Condition> {
        Condition::ALL
            .into_iter()
            .filter(move |condition| self.contains(*condition))
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let mut set = Conditions::NONE;
        for condition in Condition::ALL {
            assert_eq!(condition.name().parse(), Ok(condition));
            assert!(!set.contains(condition), "one bit each");
            set.insert(condition);
            assert!(set.contains(condition));
        }
        assert_eq!(set.iter().count(), Condition::ALL.len());
        assert!("5XX".parse::<Condition>().is_err());
    }
}
