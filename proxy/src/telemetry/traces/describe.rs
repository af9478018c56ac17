//! Spans in OpenTelemetry's terms: semantic conventions for HTTP and gRPC, version 1.45. What they have no name for
//! begins with `maglor.`.
//!
//! Queries are left out of URLs: they may contain secrets.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_config::Address;
use maglor_telemetry::otlp::{Attributes, Kind, Span};
use maglor_telemetry::trace_context::TraceContext;

use tokio::time::Instant;

use crate::protocol::response_flag::ResponseFlag;
use crate::telemetry::record::{Attempted, Entry, Notes, Trace, direction_name};

/// Methods that are named; all others are `_OTHER`, so that clients cannot create names.
const METHODS: [&str; 10] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE",
];
/// Status of a request whose client has left before there was a response.
const NONE: u16 = 499;

/// Returns whether a request has failed for a reason that is not its client's.
#[inline]
pub(super) fn failed(notes: &Notes, status: StatusCode, flag: ResponseFlag) -> bool {
    if flag == ResponseFlag::None && !notes.grpc {
        return status.as_u16() >= 500;
    }
    failed_unusually(notes, status, flag)
}

fn failed_unusually(notes: &Notes, status: StatusCode, flag: ResponseFlag) -> bool {
    if notes.grpc && notes.call_status().is_some() {
        return notes.has_failed_call();
    }
    let cut_off = status.as_u16() < 400 && flag.is_server_failure();
    status.as_u16() >= 500 || cut_off
}

/// Encodes the span of a request.
pub(super) fn server(
    trace: &Trace,
    notes: &Notes,
    served: &Entry<'_>,
    clock: &Clock,
    out: &mut Vec<u8>,
) {
    let failed = failed(notes, served.status, served.flag);
    let route = served.route;
    let names = Names::of(notes, served);
    let name = match (names.call, route) {
        (Some(call), _) => Cow::Borrowed(call),
        (None, Some(route)) => Cow::Owned(format!("{} {}", names.span_method(), route.path)),
        (None, None) => Cow::Borrowed(names.span_method()),
    };
    let span = Span {
        context: trace.context,
        parent: trace.parent(),
        tracestate: trace.tracestate(),
        name: &name,
        kind: Kind::Server,
        start: clock.nanos_before(served.took),
        end: clock.nanos_before(Duration::ZERO),
        failed,
    };
    span.encode(out, |attributes| {
        names.describe(attributes);
        attributes.text("url.scheme", trace.scheme());
        attributes.bytes("url.path", path_of(served));
        server_of(served, trace.scheme(), attributes);
        client_of(served, attributes);
        if let Some(agent) = served.user_agent {
            attributes.bytes("user_agent.original", agent);
        }
        let version = match served.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        attributes.text("network.protocol.version", version);
        if served.status.as_u16() != NONE {
            let status = served.status.as_u16();
            attributes.number("http.response.status_code", status.into());
        }
        attributes.number("http.response.body.size", served.response_bytes);
        if let Some(route) = route {
            attributes.text("http.route", &route.path);
            attributes.text("maglor.route", &route.name);
        }
        let call_status = notes.call_status();
        describe_call_status(call_status, attributes);
        let flag = Some(served.flag).filter(|flag| flag.is_server_failure());
        if failed {
            error_type(flag, call_status, served.status, attributes);
        }
        describe_of_ours(served, attributes);
    });
}

/// Adds what the conventions have no names for.
fn describe_of_ours(served: &Entry<'_>, attributes: &mut Attributes<'_>) {
    attributes.text("maglor.listener", served.listener);
    attributes.text("maglor.direction", direction_name(served.direction));
    if served.flag != ResponseFlag::None {
        attributes.text("maglor.response_flag", served.flag.as_str());
    }
    if let Some(id) = served.request_id {
        attributes.bytes("maglor.request_id", id);
    }
    if let Some(peer) = served.peer {
        attributes.text("maglor.peer", peer.as_str());
    }
}

/// Encodes the span of an attempt.
pub(super) fn client(
    trace: &Trace,
    notes: &Notes,
    (served, attempted): (&Entry<'_>, &Attempted),
    clock: &Clock,
    out: &mut Vec<u8>,
) {
    let Some(span_id) = attempted.span else {
        return;
    };
    let names = Names::of(notes, served);
    let status = attempted.status;
    let refused = status.is_some_and(|status| status.as_u16() >= 400);
    let erred = attempted
        .grpc
        .is_some_and(|status| status != GrpcStatus::OK);
    let failed = !attempted.bounced && (refused || erred || attempted.error.is_some());
    let span = Span {
        context: TraceContext {
            span_id,
            ..trace.context
        },
        parent: Some(trace.context.span_id),
        tracestate: trace.tracestate(),
        name: names.call.unwrap_or_else(|| names.span_method()),
        kind: Kind::Client,
        start: clock.nanos(attempted.started),
        end: attempted.ended.map_or_else(
            || clock.nanos_before(Duration::ZERO),
            |end| clock.nanos(end),
        ),
        failed,
    };
    span.encode(out, |attributes| {
        names.describe(attributes);
        let scheme = match attempted.cluster.tls {
            Some(_) => "https",
            None => "http",
        };
        if let Some(host) = served.host {
            let host = String::from_utf8_lossy(host);
            let path = String::from_utf8_lossy(path_of(served));
            attributes.text("url.full", &format!("{scheme}://{host}{path}"));
        }
        server_of(served, scheme, attributes);
        peer_of(&attempted.address, attributes);
        if let Some(status) = status {
            attributes.number("http.response.status_code", status.as_u16().into());
        }
        if attempted.number > 1 {
            let resent = attempted.number - 1;
            attributes.number("http.request.resend_count", resent.into());
        }
        describe_call_status(attempted.grpc, attributes);
        if failed {
            let status = status.unwrap_or_default();
            error_type(attempted.error, attempted.grpc, status, attributes);
        }
        let outcome = match attempted {
            Attempted { bounced: true, .. } => Some("bounced"),
            // Another attempt was faster, or the client has left.
            Attempted {
                status: None,
                error: None,
                ..
            } => Some("cancelled"),
            _ => None,
        };
        if let Some(outcome) = outcome {
            attributes.text("maglor.outcome", outcome);
        }
        attributes.text("maglor.cluster", &attempted.cluster.name);
        attributes.text("maglor.endpoint", &attempted.address.to_string());
        attributes.text("maglor.policy", attempted.cluster.policy.name());
        attributes.number("maglor.queue_length", attempted.queue.into());
    });
}

/// Names by the protocol of the request.
struct Names<'a> {
    /// `package.Service/Method` of a gRPC call.
    call: Option<&'a str>,
    /// The method, or `_OTHER`.
    method: &'a str,
    /// A method that is `_OTHER`.
    original: Option<&'a str>,
}

impl<'a> Names<'a> {
    fn of(notes: &Notes, served: &Entry<'a>) -> Self {
        let method = served.method.as_str();
        let known = METHODS.contains(&method);
        let call = path_of(served).strip_prefix(b"/").filter(|_| notes.grpc);
        let is_call = |path: &&str| path.split('/').filter(|part| !part.is_empty()).count() == 2;
        Self {
            call: call
                .and_then(|path| str::from_utf8(path).ok())
                .filter(is_call),
            method: if known { method } else { "_OTHER" },
            original: Some(method).filter(|_| !known),
        }
    }

    /// Returns the method in names of spans.
    fn span_method(&self) -> &'a str {
        match self.original {
            None => self.method,
            Some(_) => "HTTP",
        }
    }

    fn describe(&self, attributes: &mut Attributes<'_>) {
        attributes.text("http.request.method", self.method);
        if let Some(original) = self.original {
            attributes.text("http.request.method_original", original);
        }
        if let Some(call) = self.call {
            attributes.text("rpc.system.name", "grpc");
            attributes.text("rpc.method", call);
        }
    }
}

fn describe_call_status(status: Option<GrpcStatus>, attributes: &mut Attributes<'_>) {
    if let Some(status) = status {
        attributes.text("rpc.response.status_code", status.name());
    }
}

fn error_type(
    flag: Option<ResponseFlag>,
    call_status: Option<GrpcStatus>,
    status: StatusCode,
    attributes: &mut Attributes<'_>,
) {
    match (flag, call_status) {
        (Some(flag), _) => attributes.text("error.type", flag.as_str()),
        (None, Some(status)) => attributes.text("error.type", status.name()),
        (None, None) => attributes.text("error.type", status.as_str()),
    }
}

fn path_of<'a>(served: &Entry<'a>) -> &'a [u8] {
    let mut parts = served.target.split(|byte| *byte == b'?');
    parts.next().unwrap_or_default()
}

/// Adds the host of the request, with the default port if it has none.
fn server_of(served: &Entry<'_>, scheme: &str, attributes: &mut Attributes<'_>) {
    let Some(host) = served.host.and_then(|host| str::from_utf8(host).ok()) else {
        return;
    };
    let default = if scheme == "https" { 443 } else { 80 };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => match port.parse::<u16>() {
            Ok(port) => (name, port),
            Err(_) => (host, default),
        },
        _ => (host, default),
    };
    attributes.text("server.address", name.trim_matches(['[', ']']));
    attributes.number("server.port", port.into());
}

fn client_of(served: &Entry<'_>, attributes: &mut Attributes<'_>) {
    let Some(address) = served.client.socket() else {
        return;
    };
    let ip = address.ip().to_canonical();
    attributes.text("client.address", &ip.to_string());
    attributes.number("client.port", address.port().into());
}

fn peer_of(address: &Address, attributes: &mut Attributes<'_>) {
    match address {
        Address::Ip(address) => {
            attributes.text("network.peer.address", &address.ip().to_string());
            attributes.number("network.peer.port", address.port().into());
        }
        Address::Unix(_) => attributes.text("network.peer.address", &address.to_string()),
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
