//! The trace of one request at this proxy, until its end.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_identity::SpiffeId;
use maglor_telemetry::trace_context::{
    HEADERS, Incoming, SpanId, TraceContext, TraceId, is_header,
};
use tokio::time::Instant;

use super::attempted::Attempted;
use crate::net::client_address::ClientAddress;
use crate::protocol::fields::{Fields, Key, Known};

/// The trace of one request.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(super) incoming: Incoming,
    /// The span of the request.
    pub(super) context: TraceContext,
    /// `http` or `https`: that of the client.
    pub(super) scheme: &'static str,
    pub(super) grpc: bool,
    /// Name and path of the route.
    pub(super) route: OnceCell<(Arc<str>, Arc<str>)>,
    /// Status with which the proxy itself answers a gRPC call.
    pub(super) own_status: Cell<Option<GrpcStatus>>,
    pub(super) attempts: RefCell<Vec<Attempted>>,
    /// Whether the request has trace headers, the client's or ours.
    has_headers: Cell<bool>,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) listener: &'a str,
    pub(crate) direction: &'static str,
    pub(crate) client: ClientAddress,
    pub(crate) peer: Option<&'a SpiffeId>,
    pub(crate) method: &'a Method,
    /// Path and query.
    pub(crate) target: &'a [u8],
    pub(crate) version: Version,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) request_id: Option<&'a [u8]>,
    pub(crate) status: StatusCode,
    /// Response flag; `-` = none.
    pub(crate) flag: &'a str,
    pub(crate) response_bytes: u64,
    pub(crate) took: Duration,
}

/// Reads the trace headers of a request.
pub(super) fn extract(fields: &Fields) -> Option<Incoming> {
    let mut names = fields.iter().map(|(known, name, _)| (known, name));
    let found = names.any(|(known, name)| known == Known::Other && is_header(name));
    found.then(|| Incoming::extract(|name| fields.all(Key::new(name.as_bytes()))))
}

impl RequestTrace {
    pub(super) fn new(
        incoming: Option<Incoming>,
        context: TraceContext,
        scheme: &'static str,
        grpc: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            has_headers: Cell::new(incoming.is_some()),
            incoming: incoming.unwrap_or_default(),
            context,
            scheme,
            grpc,
            route: OnceCell::new(),
            own_status: Cell::new(None),
            attempts: RefCell::default(),
        })
    }

    /// Returns the identifier, for logs.
    pub(crate) fn id(&self) -> TraceId {
        self.context.trace_id
    }

    /// Records the route: its name, and the path that it matches.
    pub(crate) fn route(&self, name: &Arc<str>, path: &Arc<str>) {
        // A request has one route.
        let _ = self.route.set((Arc::clone(name), Arc::clone(path)));
    }

    /// Records the status with which the proxy itself answers a gRPC call.
    pub(crate) fn fail(&self, status: GrpcStatus) {
        self.own_status.set(Some(status));
    }

    /// Replaces the trace headers of a request to the next hop: it is a child of the request's span.
    pub(crate) fn inject(&self, fields: &mut Fields) {
        self.inject_span(
            self.context.span_id,
            self.incoming.parent.map(|parent| parent.span_id),
            fields,
        );
    }

    /// Replaces the trace headers by those of a span.
    pub(super) fn inject_span(&self, span: SpanId, parent: Option<SpanId>, fields: &mut Fields) {
        if self.has_headers.replace(true) {
            for header in HEADERS {
                fields.remove(Key::new(header.as_bytes()));
            }
        }
        let context = TraceContext {
            span_id: span,
            ..self.context
        };
        self.incoming.inject(&context, parent, |name, value| {
            fields.push(Key::new(name.as_bytes()), value);
        });
    }
}

/// Converts instants to the time of spans.
#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    since_epoch: Duration,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            now,
            since_epoch: since_epoch.unwrap_or_default(),
        }
    }

    /// Returns the nanoseconds since the Unix epoch of an instant of the past.
    pub(super) fn nanos(&self, instant: Instant) -> u64 {
        self.nanos_before(self.now.saturating_duration_since(instant))
    }

    /// The same for a time before now.
    pub(super) fn nanos_before(&self, ago: Duration) -> u64 {
        let nanos = self.since_epoch.saturating_sub(ago).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use maglor_telemetry::trace_context::Sampling;
    use proptest::prelude::*;

    use super::*;

    fn begin(fields: &Fields) -> Rc<RequestTrace> {
        let incoming = extract(fields);
        let parent = incoming.as_ref().and_then(|incoming| incoming.parent);
        let root = TraceContext::root([7; 24], Sampling::Accept);
        let context = parent.map_or(root, |parent| parent.child([9; 8]));
        RequestTrace::new(incoming, context, "http", false)
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
            let trace = begin(&fields);
            // Twice, as for a retry.
            trace.inject(&mut fields);
            trace.inject(&mut fields);
            let read = extract(&fields).unwrap();
            let parent = read.parent.unwrap();
            prop_assert_eq!(parent.trace_id, trace.context.trace_id);
            prop_assert_eq!(parent.span_id, trace.context.span_id);
            prop_assert_eq!(&read.tracestate, &trace.incoming.tracestate);
            let kept = fields.all(Key::new(b"x-other")).count();
            prop_assert_eq!(kept, others);
            let visible = |(_, _, value): (_, _, &[u8])| value.iter().all(|byte| matches!(byte, b' '..=b'~'));
            prop_assert!(fields.iter().filter(|(_, name, _)| is_header(name)).all(visible));
        }
    }
}
