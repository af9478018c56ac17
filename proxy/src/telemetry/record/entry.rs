//! A finished request as the access log, taps, spans and stories show it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode, Version};
use maglor_config::Address;
use maglor_config::listener::TrafficDirection;
use maglor_identity::SpiffeId;
use maglor_telemetry::trace_context::TraceId;
use serde_json::Value;

use super::RouteName;
use crate::net::client_address::ClientAddress;
use crate::protocol::response_flag::ResponseFlag;

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) listener: &'a str,
    pub(crate) direction: TrafficDirection,
    pub(crate) client: ClientAddress,
    /// Authenticated identity of the client; `None` if there is none.
    pub(crate) peer: Option<&'a SpiffeId>,
    pub(crate) method: &'a Method,
    /// Path and query as the client sent them.
    pub(crate) target: &'a [u8],
    pub(crate) version: Version,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    /// `x-forwarded-for` as the client sent it.
    pub(crate) forwarded_for: Option<&'a [u8]>,
    pub(crate) request_id: Option<&'a [u8]>,
    /// `None` if no route matches.
    pub(crate) route: Option<&'a RouteName>,
    /// The endpoint whose response the client got, or that failed last.
    pub(crate) upstream: Option<(&'a Address, &'a Arc<str>)>,
    /// Number of attempts; 0 if the request was not forwarded.
    pub(crate) attempts: u32,
    pub(crate) error: Option<&'a str>,
    /// Identifier of the trace, with tracing.
    pub(crate) trace_id: Option<TraceId>,
    pub(crate) status: StatusCode,
    pub(crate) flag: ResponseFlag,
    pub(crate) response_bytes: u64,
    pub(crate) took: Duration,
    /// Time until the response's head; `None` if there was no response.
    pub(crate) responded: Option<Duration>,
}

impl Entry<'_> {
    /// Returns the request as a JSON object, as used by taps.
    pub(crate) fn describe(&self) -> Value {
        let text =
            |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        let upstream = self.upstream.map(|(address, _)| address.to_string());
        serde_json::json!({
            "time": timestamp().to_string(),
            "listener": self.listener,
            "direction": direction_name(self.direction),
            "client": self.client.to_string(),
            "peer": self.peer.map(SpiffeId::as_str),
            "method": self.method.as_str(),
            "target": String::from_utf8_lossy(self.target),
            "protocol": format!("{:?}", self.version),
            "host": text(self.host),
            "user_agent": text(self.user_agent),
            "referer": text(self.referer),
            "forwarded_for": text(self.forwarded_for),
            "request_id": text(self.request_id),
            "trace_id": self.trace_id.map(|id| id.to_string()),
            "status": self.status.as_u16(),
            "flag": self.flag.as_str(),
            "response_bytes": self.response_bytes,
            "duration_ms": millis(self.took),
            "response_ms": self.responded.map(millis),
            "cluster": self.upstream.map(|(_, cluster)| &**cluster),
            "upstream": upstream,
            "tries": self.attempts,
            "error": self.error,
        })
    }
}

/// Returns the name of a traffic direction in the configuration.
pub(crate) fn direction_name(direction: TrafficDirection) -> &'static str {
    match direction {
        TrafficDirection::Inbound => "inbound",
        TrafficDirection::Outbound => "outbound",
        TrafficDirection::Unspecified => "unspecified",
    }
}

/// Returns a duration in nanoseconds; one of more than five centuries counts as that.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

/// Returns a duration in milliseconds, with three decimals.
pub(crate) fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// Formats the current time in UTC by RFC 3339, with milliseconds.
pub(crate) fn timestamp() -> impl std::fmt::Display {
    humantime::format_rfc3339_millis(SystemTime::now())
}

#[cfg(test)]
impl Entry<'static> {
    /// A call to another service by a member of the mesh, with a response of 200.
    pub(crate) fn example(method: &str, target: &str) -> Self {
        let peer: SpiffeId = "spiffe://mesh.example/ns/shop/sa/web".parse().unwrap();
        let method: Method = method.parse().unwrap();
        Self {
            listener: "outbound",
            direction: TrafficDirection::Outbound,
            client: std::net::SocketAddr::from(([10, 0, 0, 1], 4321)).into(),
            peer: Some(Box::leak(Box::new(peer))),
            method: Box::leak(Box::new(method)),
            target: target.to_owned().leak().as_bytes(),
            version: Version::HTTP_11,
            host: Some(b"cart"),
            user_agent: None,
            referer: None,
            forwarded_for: None,
            request_id: None,
            route: None,
            upstream: None,
            attempts: 0,
            error: None,
            trace_id: None,
            status: StatusCode::OK,
            flag: ResponseFlag::None,
            response_bytes: 2,
            took: Duration::from_millis(1),
            responded: None,
        }
    }
}
