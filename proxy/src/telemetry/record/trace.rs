//! The place of a request in a trace.

use maglor_telemetry::trace_context::{Incoming, SpanId, TRACEPARENT, TraceContext, is_header};

use crate::protocol::fields::{Fields, Key};

/// The place of a request in a trace.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The client's trace headers; `None` if there are none, as of most requests from outside of the mesh.
    incoming: Option<Box<Incoming>>,
    /// The span of the request.
    pub(crate) context: TraceContext,
    /// Whether the client uses TLS.
    https: bool,
    /// Whether the request has trace headers, the client's or ours.
    has_headers: bool,
}

/// Reads the trace headers of a request.
#[inline]
pub(crate) fn extract(fields: &Fields) -> Option<Box<Incoming>> {
    let found = fields.unlisted().filter(|name| is_header(name));
    let initials = found.fold(0, |all, name| all | initial(name));
    (initials != 0).then(|| Box::new(read(fields, initials)))
}

/// Reads trace headers, of which those with these initials are present.
fn read(fields: &Fields, initials: u32) -> Incoming {
    Incoming::extract(|name| {
        let name = name.as_bytes();
        let is_present = initial(name) & initials != 0;
        let values = is_present.then(|| fields.all(Key::unlisted(name)));
        values.into_iter().flatten()
    })
}

/// Returns the bit of a name's first letter.
fn initial(name: &[u8]) -> u32 {
    name.first().map_or(0, |first| 1 << (first & 0x1f))
}

pub(super) fn span_id(random: u64) -> SpanId {
    SpanId::from_random(random.to_be_bytes())
}

impl Trace {
    #[inline]
    pub(crate) fn new(incoming: Option<Box<Incoming>>, context: TraceContext, https: bool) -> Self {
        Self {
            has_headers: incoming.is_some(),
            incoming,
            context,
            https,
        }
    }

    /// Returns the scheme of the client: `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// Returns the client's span.
    pub(crate) fn parent(&self) -> Option<SpanId> {
        let parent = self.incoming.as_ref()?.parent?;
        Some(parent.span_id)
    }

    /// Returns the data of vendors.
    pub(crate) fn tracestate(&self) -> Option<&str> {
        self.incoming.as_ref()?.tracestate.as_deref()
    }

    /// Replaces the trace headers of a request by those of a span, a child of the request's, or of the latter itself.
    pub(super) fn inject(&mut self, span: Option<SpanId>, fields: &mut Fields) {
        if std::mem::replace(&mut self.has_headers, true) {
            fields.remove_unlisted(is_header);
        }
        let context = TraceContext {
            span_id: span.unwrap_or(self.context.span_id),
            ..self.context
        };
        let incoming = self.incoming.as_deref();
        let Some(incoming) = incoming.filter(|incoming| !incoming.is_plain()) else {
            let line = context.to_traceparent_line();
            return fields.push_text(TRACEPARENT.len(), &line);
        };
        let parent = match span {
            Some(_) => Some(self.context.span_id),
            None => self.parent(),
        };
        incoming.inject(&context, parent, |name, value| {
            fields.push(Key::unlisted(name.as_bytes()), value);
        });
    }
}

#[cfg(test)]
mod tests {
    use maglor_telemetry::trace_context::{HEADERS, Sampling};
    use proptest::prelude::*;

    use super::*;

    fn begin(fields: &Fields) -> Trace {
        let incoming = extract(fields);
        let parent = incoming.as_ref().and_then(|incoming| incoming.parent);
        let root = TraceContext::root([7; 24], Sampling::Accept);
        let context = parent.map_or(root, |parent| parent.child([9; 8]));
        Trace::new(incoming, context, false)
    }

    proptest! {
        /// Whatever a client sends, the next hop gets valid headers, and those of other kinds unchanged.
        #[test]
        fn malformed_headers_are_not_passed_on(
            headers in proptest::collection::vec(
                (0..HEADERS.len() + 1, any::<bool>(), "[0-9a-f=,-]{0,60}|[ -~]{0,9}|.{0,9}"),
                0..12,
            ),
        ) {
            let mut fields = Fields::default();
            let mut others = 0;
            for (at, upper, value) in headers {
                let name = HEADERS.get(at).copied().unwrap_or("x-other");
                others += usize::from(name == "x-other");
                let name = if upper { name.to_uppercase() } else { name.to_owned() };
                fields.push(Key::new(name.as_bytes()), value.as_bytes());
            }
            let mut trace = begin(&fields);
            // Twice, as for a retry.
            trace.inject(None, &mut fields);
            trace.inject(None, &mut fields);
            let read = extract(&fields).unwrap();
            let parent = read.parent.unwrap();
            prop_assert_eq!(parent.trace_id, trace.context.trace_id);
            prop_assert_eq!(parent.span_id, trace.context.span_id);
            prop_assert_eq!(read.tracestate.as_deref(), trace.tracestate());
            let kept = fields.all(Key::new(b"x-other")).count();
            prop_assert_eq!(kept, others);
            let visible = |(_, _, value): (_, _, &[u8])| value.iter().all(|byte| matches!(byte, b' '..=b'~'));
            prop_assert!(fields.iter().filter(|(_, name, _)| is_header(name)).all(visible));
        }
    }
}
