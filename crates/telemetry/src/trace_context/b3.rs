//! B3, the headers of Zipkin, in one header or in several.
//!
//! A trace identifier may have 16 digits; it is read as 32 with leading zeros, and one with 16
//! leading zeros is written with 16 digits, so that its form is preserved. A request may carry a
//! sampling decision without identifiers: for the trace that begins with it.

use super::{Sampling, SpanId, TraceContext, TraceId, hex};

/// The name of the single header, which contains all values.
pub const SINGLE: &str = "b3";
/// The name of the header with the trace identifier.
pub const TRACE_ID: &str = "x-b3-traceid";
/// The name of the header with the identifier of the sender's span.
pub const SPAN_ID: &str = "x-b3-spanid";
/// The name of the header with the identifier of the parent of the sender's span.
pub const PARENT_SPAN_ID: &str = "x-b3-parentspanid";
/// The name of the header with the sampling decision.
pub const SAMPLED: &str = "x-b3-sampled";
/// The name of the header that is `1` for a debug trace.
pub const FLAGS: &str = "x-b3-flags";

/// Parses the value of `b3`: `TRACE-SPAN[-SAMPLING[-PARENT]]`.
#[must_use]
pub fn parse_single(value: &[u8]) -> Option<TraceContext> {
    let mut parts = value.trim_ascii().split(|&byte| byte == b'-');
    let (trace, span) = (parts.next()?, parts.next()?);
    let sampling = match parts.next() {
        None => Sampling::Defer,
        Some(b"0") => Sampling::Deny,
        Some(b"1") => Sampling::Accept,
        Some(b"d") => Sampling::Debug,
        // The decision may be omitted before the parent.
        Some(parent) if parts.clone().next().is_none() => {
            parse_span(parent)?;
            Sampling::Defer
        }
        Some(_) => return None,
    };
    if let Some(parent) = parts.next() {
        parse_span(parent)?;
    }
    if parts.next().is_some() {
        return None;
    }
    Some(TraceContext {
        trace_id: parse_trace(trace)?,
        span_id: parse_span(span)?,
        sampling,
    })
}

/// Parses a value of `b3` that is a sampling decision alone.
#[must_use]
pub fn parse_decision(value: &[u8]) -> Option<Sampling> {
    match value.trim_ascii() {
        b"0" => Some(Sampling::Deny),
        b"1" => Some(Sampling::Accept),
        b"d" => Some(Sampling::Debug),
        _ => None,
    }
}

/// Returns the decision of the several headers; `header` returns the value of a header by name.
pub fn decision_of<'a>(
    mut header: impl FnMut(&'static str) -> Option<&'a [u8]>,
) -> Option<Sampling> {
    if header(FLAGS).is_some_and(|flags| flags.trim_ascii() == b"1") {
        return Some(Sampling::Debug);
    }
    match header(SAMPLED)?.trim_ascii() {
        // Senders from before the specification write words instead of digits.
        b"1" | b"true" => Some(Sampling::Accept),
        b"0" | b"false" => Some(Sampling::Deny),
        b"d" => Some(Sampling::Debug),
        _ => None,
    }
}

/// Parses the several headers; `header` returns the value of a header by name.
pub fn parse_multi<'a>(
    mut header: impl FnMut(&'static str) -> Option<&'a [u8]>,
) -> Option<TraceContext> {
    let trace_id = parse_trace(header(TRACE_ID)?.trim_ascii())?;
    let span_id = parse_span(header(SPAN_ID)?.trim_ascii())?;
    let sampling = decision_of(header).unwrap_or(Sampling::Defer);
    Some(TraceContext {
        trace_id,
        span_id,
        sampling,
    })
}

/// Returns the value of `b3`; `parent` is the parent of the context's own span, `None` if it has none.
#[must_use]
pub fn to_single(context: &TraceContext, parent: Option<SpanId>) -> String {
    let mut value = format!("{}-{}", trace_digits(context.trace_id), context.span_id);
    if let Some(decision) = decision(context.sampling) {
        value.push('-');
        value.push_str(decision);
    }
    if let Some(parent) = parent {
        value.push('-');
        value.push_str(&parent.to_string());
    }
    value
}

/// Returns names and values of the separate headers; see [`to_single`].
pub fn to_multi(
    context: &TraceContext,
    parent: Option<SpanId>,
) -> impl Iterator<Item = (&'static str, String)> {
    let sampling = match context.sampling {
        // "Debug implies an accept decision, so don't also send the X-B3-Sampled header."
        Sampling::Debug => Some((FLAGS, "1".to_owned())),
        other => decision(other).map(|decision| (SAMPLED, decision.to_owned())),
    };
    [
        Some((TRACE_ID, trace_digits(context.trace_id))),
        Some((SPAN_ID, context.span_id.to_string())),
        parent.map(|parent| (PARENT_SPAN_ID, parent.to_string())),
        sampling,
    ]
    .into_iter()
    .flatten()
}

fn decision(sampling: Sampling) -> Option<&'static str> {
    match sampling {
        Sampling::Accept => Some("1"),
        Sampling::Debug => Some("d"),
        Sampling::Defer => None,
        Sampling::Deny => Some("0"),
    }
}

fn trace_digits(id: TraceId) -> String {
    let mut digits = id.to_string();
    if digits.starts_with("0000000000000000") {
        digits.drain(..16);
    }
    digits
}

fn parse_trace(digits: &[u8]) -> Option<TraceId> {
    if digits.len() == 16 {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&hex::decode::<8>(digits)?);
        return TraceId::new(bytes);
    }
    TraceId::new(hex::decode(digits)?)
}

fn parse_span(digits: &[u8]) -> Option<SpanId> {
    SpanId::new(hex::decode(digits)?)
}
