//! A batch of spans, and the collector's response to it.

use prost::Message;

use super::{Attributes, wire};

/// The process that exports: its attributes, already encoded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resource {
    /// Fields of `ResourceSpans` and of `ScopeSpans` before the spans.
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Resource {
    /// Encodes the attributes of the resource, and the name and version of what made the spans.
    #[must_use]
    pub fn new(scope: (&str, &str), describe: impl FnOnce(&mut Attributes<'_>)) -> Self {
        let mut encoded = Self::default();
        wire::nested(&mut encoded.resource, 1, |out| {
            describe(&mut Attributes::new(out, 1));
        });
        wire::nested(&mut encoded.scope, 1, |out| {
            wire::bytes(out, 1, scope.0.as_bytes());
            wire::bytes(out, 2, scope.1.as_bytes());
        });
        encoded
    }

    /// Encodes an `ExportTraceServiceRequest`.
    #[must_use]
    pub fn request<'a>(&self, spans: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut request = Vec::new();
        wire::nested(&mut request, 1, |out| {
            out.extend_from_slice(&self.resource);
            wire::nested(out, 2, |out| {
                out.extend_from_slice(&self.scope);
                spans.for_each(|span| out.extend_from_slice(span));
            });
        });
        request
    }
}

/// What a collector did not take of a batch that it accepted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PartialSuccess {
    /// Number of spans that it rejected.
    pub rejected: u64,
    /// Its reason, or a warning about spans that it took.
    pub message: String,
}

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    rejected: i64,
    /// A text; as bytes, so that one that is not UTF-8 does not hide the number.
    #[prost(bytes = "vec", tag = "2")]
    message: Vec<u8>,
}

/// Reads an `ExportTraceServiceResponse`; an unreadable one rejects nothing.
#[must_use]
pub fn partial_success(response: &[u8]) -> PartialSuccess {
    let partial = Response::decode(response).ok().and_then(|one| one.partial);
    let Partial { rejected, message } = partial.unwrap_or_default();
    PartialSuccess {
        // A signed number, which no collector should send as negative.
        rejected: u64::try_from(rejected).unwrap_or(0),
        message: String::from_utf8_lossy(&message).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_spans_are_read() {
        let mut response = Vec::new();
        wire::varint(&mut response, 9, 300);
        wire::fixed64(&mut response, 8, 1);
        wire::nested(&mut response, 1, |out| {
            wire::fixed32(out, 7, 1);
            wire::varint(out, 1, 300);
            wire::bytes(out, 2, b"too old");
        });
        let expected = PartialSuccess {
            rejected: 300,
            message: "too old".to_owned(),
        };
        assert_eq!(partial_success(&response), expected);
        assert_eq!(partial_success(&[]), PartialSuccess::default());
        for end in 0..response.len() {
            let _ = partial_success(&response[..end]);
        }
        for hostile in [&[0x0a, 0xff, 0xff][..], &[0xff; 11], &[0x0b], &[0x0a, 9, 1]] {
            assert_eq!(partial_success(hostile), PartialSuccess::default());
        }
        let mut negative = Vec::new();
        wire::nested(&mut negative, 1, |out| wire::varint(out, 1, u64::MAX));
        assert_eq!(partial_success(&negative).rejected, 0);
    }
}
