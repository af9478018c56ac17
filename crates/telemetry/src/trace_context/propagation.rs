//! Reads the trace headers of a request, and writes those of the next one in the same formats.

use super::{Sampling, SpanId, TraceContext, b3, tracestate};

/// The name of the W3C header with the context.
pub const TRACEPARENT: &str = "traceparent";
/// The name of the W3C header with data of vendors.
pub const TRACESTATE: &str = "tracestate";

/// All trace headers: a proxy that writes a context removes these first, so that no malformed or
/// contradictory value is passed on.
pub const HEADERS: [&str; 8] = [
    TRACEPARENT,
    TRACESTATE,
    b3::SINGLE,
    b3::TRACE_ID,
    b3::SPAN_ID,
    b3::PARENT_SPAN_ID,
    b3::SAMPLED,
    b3::FLAGS,
];

/// The formats in which a request carries its context.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Formats {
    /// `traceparent`.
    pub w3c: bool,
    /// `b3`.
    pub b3_single: bool,
    /// `x-b3-traceid`, `x-b3-spanid` and so on.
    pub b3_multi: bool,
}

/// The trace headers of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The position of the sender; `None` = a trace begins here.
    pub parent: Option<TraceContext>,
    /// The sender's decision; B3 may carry one without identifiers.
    pub sampling: Sampling,
    /// The formats of valid headers.
    pub formats: Formats,
    /// The data of vendors, if the parent is from `traceparent`.
    pub tracestate: Option<String>,
}

/// Returns whether a name, in any case, is that of a trace header.
#[must_use]
#[inline]
pub fn is_header(name: &[u8]) -> bool {
    // Most names begin with another letter.
    matches!(
        name.first().map(u8::to_ascii_lowercase),
        Some(b'b' | b't' | b'x')
    ) && HEADERS
        .iter()
        .any(|header| name.eq_ignore_ascii_case(header.as_bytes()))
}

/// No header: a trace begins here, undecided.
impl Default for Incoming {
    fn default() -> Self {
        Self {
            parent: None,
            sampling: Sampling::Defer,
            formats: Formats::default(),
            tracestate: None,
        }
    }
}

impl Incoming {
    /// Reads the headers of a request.
    ///
    /// `header` returns all values of a header by its lower-case name. A header that must be unique
    /// and is not is ignored, as is one that cannot be parsed. If formats contradict each other,
    /// `traceparent` takes precedence, then `b3`.
    pub fn extract<'a, I>(mut header: impl FnMut(&'static str) -> I) -> Self
    where
        I: Iterator<Item = &'a [u8]>,
    {
        let mut only = |name| {
            let mut values = header(name);
            let value = values.next()?;
            values.next().is_none().then_some(value)
        };
        let w3c = only(TRACEPARENT).and_then(TraceContext::parse);
        let single = only(b3::SINGLE);
        let b3_single = single.and_then(b3::parse_single);
        let b3_multi = b3::parse_multi(&mut only);
        // A decision without identifiers.
        let single_alone = single.and_then(b3::parse_decision);
        let multi_alone = b3::decision_of(&mut only);
        let parent = w3c.or(b3_single).or(b3_multi);
        Self {
            parent,
            sampling: match parent {
                Some(parent) => parent.sampling,
                None => single_alone.or(multi_alone).unwrap_or(Sampling::Defer),
            },
            formats: Formats {
                w3c: w3c.is_some(),
                b3_single: b3_single.is_some() || single_alone.is_some(),
                b3_multi: b3_multi.is_some() || (parent.is_none() && multi_alone.is_some()),
            },
            tracestate: w3c.and_then(|_| tracestate::combine(header(TRACESTATE))),
        }
    }

    /// Returns whether [`Incoming::inject`] writes `traceparent` alone.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        let Formats {
            b3_single,
            b3_multi,
            ..
        } = self.formats;
        !b3_single && !b3_multi && self.tracestate.is_none()
    }

    /// Writes the headers of a request sent by the span of `context`, whose parent is `parent`: in
    /// the formats that were received, or W3C if there were none. All values are visible ASCII.
    pub fn inject(
        &self,
        context: &TraceContext,
        parent: Option<SpanId>,
        mut write: impl FnMut(&'static str, &[u8]),
    ) {
        let Formats {
            w3c,
            b3_single,
            b3_multi,
        } = self.formats;
        if w3c || !(b3_single || b3_multi) {
            write(TRACEPARENT, &context.to_traceparent());
            if let Some(tracestate) = &self.tracestate {
                write(TRACESTATE, tracestate.as_bytes());
            }
        }
        if b3_single {
            write(b3::SINGLE, b3::to_single(context, parent).as_bytes());
        }
        if b3_multi {
            for (name, value) in b3::to_multi(context, parent) {
                write(name, value.as_bytes());
            }
        }
    }
}
