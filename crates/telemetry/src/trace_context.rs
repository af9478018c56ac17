//! Reads, writes and continues trace contexts.
//!
//! W3C Trace Context level 1 (`traceparent`, `tracestate`) and, where there is no valid
//! `traceparent`, B3 in one or in several headers. No I/O and no randomness: the caller passes
//! header values as bytes, and the random bytes of new identifiers.
//!
//! A proxy that does not take part in a trace forwards the headers unchanged; one that does
//! removes all of [`HEADERS`] and writes the context of its own span by [`Incoming::inject`], in the
//! formats that it received.
//!
//! ```
//! use maglor_telemetry::trace_context::Incoming;
//!
//! let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
//! let incoming = Incoming::extract(|name| {
//!     (name == "traceparent").then_some(traceparent.as_bytes()).into_iter()
//! });
//! let parent = incoming.parent.expect("a valid header");
//!
//! let mut written = Vec::new();
//! incoming.inject(&parent.child([7; 8]), Some(parent.span_id), |name, value| {
//!     written.push(format!("{name}: {}", String::from_utf8_lossy(value)));
//! });
//! assert_eq!(
//!     written,
//!     ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01"]
//! );
//! ```

use std::fmt;
use std::num::NonZero;

pub mod b3;
mod hex;
mod propagation;
pub mod tracestate;

pub use propagation::{Formats, HEADERS, Incoming, TRACEPARENT, TRACESTATE, is_header};

/// Length of a `traceparent` of version 00.
const TRACEPARENT_LENGTH: usize = 55;

/// Length of its line, with the name and the end.
const TRACEPARENT_LINE: usize = TRACEPARENT.len() + ": ".len() + TRACEPARENT_LENGTH + "\r\n".len();

/// The only flag of level 1; others are dropped, as the specification requires.
const SAMPLED: u8 = 0x01;

/// The identifier of a trace, which is never zero.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TraceId(NonZero<u128>);

/// The identifier of a span inside a trace, which is never zero.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SpanId(NonZero<u64>);

/// Whether a trace is recorded. `traceparent` has two of these values, B3 has all four.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sampling {
    /// The trace is recorded.
    Accept,
    /// The trace is recorded regardless of limits (B3).
    Debug,
    /// The next process decides (B3); written as not recorded in `traceparent`.
    Defer,
    /// The trace is not recorded.
    Deny,
}

/// The position of a request in a trace: the trace and the span that sent it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceContext {
    /// The identifier of the trace.
    pub trace_id: TraceId,
    /// The identifier of the sender's span.
    pub span_id: SpanId,
    /// Whether the trace is recorded.
    pub sampling: Sampling,
}

impl TraceContext {
    /// Starts a trace from random bytes: 16 for the trace, and 8 for the span.
    #[must_use]
    #[inline]
    pub fn root(random: [u8; 24], sampling: Sampling) -> Self {
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&random[..16]);
        span.copy_from_slice(&random[16..]);
        Self {
            trace_id: TraceId::from_random(trace),
            span_id: SpanId::from_random(span),
            sampling,
        }
    }

    /// Returns the context of a request that is sent on behalf of this one; its span is created from 8 random bytes.
    #[must_use]
    #[inline]
    pub fn child(&self, random: [u8; 8]) -> Self {
        Self {
            span_id: SpanId::from_random(random),
            ..*self
        }
    }

    /// Parses the value of `traceparent`.
    ///
    /// Versions above 00 are parsed by the rules of version 00 as far as possible (§4.3 of the
    /// specification); version ff, identifiers of zeros and upper-case digits are invalid.
    #[must_use]
    pub fn parse(traceparent: &[u8]) -> Option<Self> {
        // RFC 9110 allows white space around any field value.
        let value = traceparent.trim_ascii();
        let (known, rest) = value.split_at_checked(TRACEPARENT_LENGTH)?;
        if [known[2], known[35], known[52]] != [b'-'; 3] {
            return None;
        }
        let [version] = hex::decode(&known[..2])?;
        match version {
            0 if rest.is_empty() => {}
            1..=0xfe if rest.is_empty() || rest[0] == b'-' => {}
            _ => return None,
        }
        let [flags] = hex::decode(&known[53..])?;
        Some(Self {
            trace_id: TraceId::new(hex::decode(&known[3..35])?)?,
            span_id: SpanId::new(hex::decode(&known[36..52])?)?,
            sampling: if flags & SAMPLED == 0 {
                Sampling::Deny
            } else {
                Sampling::Accept
            },
        })
    }

    /// Returns the value of `traceparent` in version 00, which is ASCII.
    #[must_use]
    pub fn to_traceparent(&self) -> [u8; TRACEPARENT_LENGTH] {
        let mut value = [0; TRACEPARENT_LENGTH];
        value.copy_from_slice(
            &self.to_traceparent_line()[TRACEPARENT.len() + 2..][..TRACEPARENT_LENGTH],
        );
        value
    }

    /// Returns the line of the header, with its end.
    #[must_use]
    #[inline]
    pub fn to_traceparent_line(&self) -> [u8; TRACEPARENT_LINE] {
        let mut line = *b"traceparent: 00-00000000000000000000000000000000-0000000000000000-00\r\n";
        line[16..48].copy_from_slice(hex::digits(self.trace_id.to_bytes()).as_flattened());
        line[49..65].copy_from_slice(hex::digits(self.span_id.to_bytes()).as_flattened());
        if matches!(self.sampling, Sampling::Accept | Sampling::Debug) {
            line[67] = b'1';
        }
        line
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex::text(&self.to_traceparent()))
    }
}

macro_rules! identifier {
    ($name:ident, $bytes:literal, $number:ty) => {
        impl $name {
            /// Returns the identifier with these bytes; `None` if all of them are zero.
            #[must_use]
            pub fn new(bytes: [u8; $bytes]) -> Option<Self> {
                NonZero::new(<$number>::from_be_bytes(bytes)).map(Self)
            }

            /// Returns a new identifier. Bytes that are all zero, which is very improbable, are replaced by the number
            /// one.
            #[must_use]
            #[inline]
            pub fn from_random(bytes: [u8; $bytes]) -> Self {
                Self(
                    NonZero::new(<$number>::from_be_bytes(bytes))
                        .unwrap_or(NonZero::<$number>::MIN),
                )
            }

            /// Returns the bytes of the identifier, the most significant one first.
            #[must_use]
            #[inline]
            pub fn to_bytes(self) -> [u8; $bytes] {
                self.0.get().to_be_bytes()
            }
        }

        /// Formats the identifier in lower-case hexadecimal digits.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(hex::text(hex::digits(self.to_bytes()).as_flattened()))
            }
        }
    };
}

identifier!(TraceId, 16, u128);
identifier!(SpanId, 8, u64);

#[cfg(test)]
mod tests;
