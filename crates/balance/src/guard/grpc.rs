//! The gRPC status codes that guards distinguish.

/// A gRPC status code, 0–16; other numbers are taken as `UNKNOWN`, as the gRPC specification requires.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GrpcStatus(u8);

impl GrpcStatus {
    /// The call was cancelled, usually by the caller.
    pub const CANCELLED: Self = Self(1);
    /// Data was lost or corrupted.
    pub const DATA_LOSS: Self = Self(15);
    /// The deadline expired.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// An invariant of the server was broken.
    pub const INTERNAL: Self = Self(13);
    /// Success.
    pub const OK: Self = Self(0);
    /// The caller is not permitted to make this call.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// A quota or another resource is exhausted.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The server is temporarily not able to take calls.
    pub const UNAVAILABLE: Self = Self(14);
    /// The method does not exist.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// An error without a better code.
    pub const UNKNOWN: Self = Self(2);

    /// Returns the status with this code; `UNKNOWN` for other numbers than 0–16.
    #[must_use]
    pub const fn new(code: u32) -> Self {
        if code > 16 {
            return Self::UNKNOWN;
        }
        Self(code as u8)
    }

    /// Parses the value of a `grpc-status` field; a value that is not a number is `UNKNOWN`.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        text.trim().parse().map_or(Self::UNKNOWN, Self::new)
    }

    /// Returns the name of the code in the gRPC specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        NAMES[self.0 as usize]
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_field() {
        assert_eq!(GrpcStatus::parse(b"14"), GrpcStatus::UNAVAILABLE);
        assert_eq!(GrpcStatus::parse(b" 0 "), GrpcStatus::OK);
        assert_eq!(GrpcStatus::parse(b"14").name(), "UNAVAILABLE");
        assert_eq!(GrpcStatus::new(16).name(), "UNAUTHENTICATED");
        for odd in [&b"17"[..], b"", b"x", b"-1", b"\xff"] {
            assert_eq!(GrpcStatus::parse(odd), GrpcStatus::UNKNOWN);
        }
    }
}
