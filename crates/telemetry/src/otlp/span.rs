//! One span.

use super::{Attributes, wire};
use crate::trace_context::{Sampling, SpanId, TraceContext};

/// Number of `spans` in `ScopeSpans`.
pub(super) const SPANS: u32 = 2;

const STATUS_ERROR: u64 = 2;
/// The bits of `flags` above those of `traceparent`: whether it is known that the parent is remote, and
/// whether it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A request that was received.
    Server = 2,
    /// A request that was sent.
    Client = 3,
}

/// A span that has ended, without its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The trace, the span, and the decision of its sampling.
    pub context: TraceContext,
    /// The parent; `None` = the trace begins with it.
    pub parent: Option<SpanId>,
    /// The `tracestate` of W3C Trace Context; `None` if the request had none.
    pub tracestate: Option<&'a str>,
    /// The name of the span.
    pub name: &'a str,
    /// The side of the request that the span describes.
    pub kind: Kind,
    /// Beginning in nanoseconds since the Unix epoch.
    pub start: u64,
    /// End in nanoseconds since the Unix epoch.
    pub end: u64,
    /// Whether the operation failed, which sets the status of the span to `ERROR`.
    pub failed: bool,
}

impl Span<'_> {
    /// Appends the span as a part of a batch; `describe` adds its attributes.
    pub fn encode(&self, out: &mut Vec<u8>, describe: impl FnOnce(&mut Attributes<'_>)) {
        wire::nested(out, SPANS, |out| {
            wire::bytes(out, 1, &self.context.trace_id.to_bytes());
            wire::bytes(out, 2, &self.context.span_id.to_bytes());
            if let Some(tracestate) = self.tracestate {
                wire::bytes(out, 3, tracestate.as_bytes());
            }
            if let Some(parent) = self.parent {
                wire::bytes(out, 4, &parent.to_bytes());
            }
            wire::bytes(out, 5, self.name.as_bytes());
            wire::varint(out, 6, self.kind as u64);
            wire::fixed64(out, 7, self.start);
            wire::fixed64(out, 8, self.end);
            describe(&mut Attributes::new(out, 9));
            if self.failed {
                wire::nested(out, 15, |out| wire::varint(out, 3, STATUS_ERROR));
            }
            wire::fixed32(out, 16, self.flags());
        });
    }

    fn flags(&self) -> u32 {
        let sampled = matches!(self.context.sampling, Sampling::Accept | Sampling::Debug);
        let remote = self.kind == Kind::Server && self.parent.is_some();
        u32::from(sampled) | HAS_IS_REMOTE | if remote { IS_REMOTE } else { 0 }
    }
}
