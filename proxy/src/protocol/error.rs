//! Errors that prevent a request from being answered by an endpoint, and the responses that clients get for them.

use std::io;
use std::time::Duration;

use http::StatusCode;
use maglor_balance::guard::fault::AbortAnswer;
use maglor_balance::guard::retry::Failure;

use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::response_flag::ResponseFlag;

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The cluster's circuit breaker is open, and remains so for this long.
    #[error("circuit breaker open")]
    BreakerOpen(Duration),
    /// More requests are in flight at the server than the balancer's condition allows. The balancer attempts another
    /// server (docs/queue-protocol.md).
    #[error("the server is busy: {0} requests in flight")]
    Busy(u32),
    /// The client closed its connection or reset its stream.
    #[error("client disconnected")]
    ClientGone,
    /// Connecting to the endpoint took longer than `connect_timeout`.
    #[error("connect timeout")]
    ConnectTimeout,
    /// No connection to the endpoint could be made.
    #[error("connect failed: {0}")]
    Connect(#[source] io::Error),
    /// The endpoint left the cluster while a connection to it was being opened.
    #[error("the endpoint was removed before a connection to it was established")]
    EndpointLeft,
    /// A CONNECT request where `allow_connect` is off.
    #[error("CONNECT is not allowed on this listener")]
    ConnectNotAllowed,
    /// The listener's rules deny the request. The text is Envoy's, which users of Istio know.
    #[error("RBAC: access denied")]
    Denied,
    /// The request's body is malformed.
    #[error("malformed request body: {0}")]
    DownstreamBody(#[source] FramingError),
    /// Every endpoint has reached its limit of requests.
    #[error("overflow: all endpoints are at their limit")]
    EndpointsFull,
    /// The control plane did not resolve the host in time.
    #[error("the control plane has not answered in time")]
    DiscoveryTimeout,
    /// A fault injected as the route is configured.
    #[error("fault injected")]
    Fault(AbortAnswer),
    /// The request's head is malformed.
    #[error("malformed request: {0}")]
    DownstreamHead(#[source] HeadError),
    /// Reading from or writing to the client failed.
    #[error("downstream i/o: {0}")]
    DownstreamIo(#[source] io::Error),
    /// The client took longer than `header_timeout` for a request's head.
    #[error("timeout while reading the request head")]
    HeaderTimeout,
    /// The memory budget is currently exhausted.
    #[error("memory budget exhausted")]
    MemoryBudget,
    /// The route has no cluster for this share of its requests.
    #[error("no backend for this share of the route's requests")]
    NoBackend(StatusCode),
    /// No endpoint can take the request.
    #[error("no healthy upstream")]
    NoHealthyUpstream,
    /// The cluster uses the original destination, but the connection was made to the listener itself.
    #[error("no original destination: the connection was not redirected here")]
    NoOriginalDestination,
    /// The original destination is a port on which this proxy serves its own application or its admin pages.
    #[error("the destination port belongs to the proxy, not to an application")]
    OwnPort,
    /// No virtual host or no route matches.
    #[error("no route matches")]
    NoRoute,
    /// A limit of the cluster is reached, and its queue is full.
    #[error("overflow: too many requests are waiting")]
    Overflow,
    /// An attempt took longer than `per_try_timeout`.
    #[error("per-try timeout")]
    PerTryTimeout,
    /// A limit of the cluster was reached for longer than `queue_timeout`.
    #[error("queue timeout")]
    QueueTimeout,
    /// A rate limit was exceeded; a request is admitted again after this duration.
    #[error("rate limit exceeded")]
    RateLimited(Duration),
    /// A further attempt needed the beginning of a body that is too large to keep.
    #[error("the request body is too large to be sent again")]
    ReplayLost,
    /// The route's `timeout` expired.
    #[error("request timeout")]
    RequestTimeout,
    /// No byte was transferred for `stream_idle_timeout`.
    #[error("stream idle timeout")]
    StreamIdleTimeout,
    /// The endpoint's body is malformed or was cut off.
    #[error("malformed response body: {0}")]
    UpstreamBody(#[source] FramingError),
    /// The endpoint closed the connection before it sent a response.
    #[error("upstream closed the connection before the response")]
    UpstreamClosed {
        /// Whether the connection was reused and no byte of the response was received: most likely the request was
        /// sent when the endpoint's idle timeout expired.
        reused: bool,
    },
    /// The endpoint's head is malformed.
    #[error("malformed response: {0}")]
    UpstreamHead(#[source] HeadError),
    /// HTTP/2 to the endpoint failed.
    #[error("upstream HTTP/2: {0}")]
    UpstreamHttp2(&'static str),
    /// The endpoint refused the request without processing it (HTTP/2: REFUSED_STREAM, or GOAWAY).
    #[error("upstream refused the request")]
    UpstreamRefused,
    /// The endpoint's proxy has cancelled the request.
    #[error("aborted by the endpoint's proxy: {0}")]
    UpstreamReset(&'static str),
    /// Reading from or writing to the endpoint failed.
    #[error("upstream i/o: {0}")]
    UpstreamIo(#[source] io::Error),
    /// The endpoint switched protocols without a request for it.
    #[error("unexpected upgrade by the upstream")]
    UnexpectedUpgrade,
}

/// The response to an error, and its name in logs and metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// gRPC status of the response, for gRPC clients.
    pub grpc: u8,
    /// Short response flag; the same as Envoy's if Envoy has one for this error.
    pub flag: ResponseFlag,
}

/// nginx's "client closed request"; never sent, only logged and counted.
const CLIENT_CLOSED: u16 = 499;

/// Reason why a request to an endpoint has no response.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Failed(ProxyError),
    /// The endpoint has not processed the request, because it has closed the connection (GOAWAY), which may be
    /// noticed only when the request is sent. The caller has the unread body again.
    NotSent,
}

impl From<Unanswered> for ProxyError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Failed(error) => error,
            Unanswered::NotSent => Self::UpstreamRefused,
        }
    }
}

impl ProxyError {
    /// Returns the response to an error.
    pub fn verdict(&self) -> Verdict {
        use ResponseFlag as F;
        use StatusCode as S;
        let (status, grpc, flag) = match self {
            Self::ClientGone | Self::DownstreamIo(_) => (
                S::from_u16(CLIENT_CLOSED).unwrap_or(S::BAD_REQUEST),
                1,
                F::ClientGone,
            ),
            Self::Busy(_) => (S::SERVICE_UNAVAILABLE, 14, F::Busy),
            Self::Denied => (S::FORBIDDEN, 7, F::Denied),
            Self::MemoryBudget => (S::SERVICE_UNAVAILABLE, 8, F::Memory),
            Self::ConnectNotAllowed => (S::METHOD_NOT_ALLOWED, 12, F::NoRoute),
            Self::Connect(_) | Self::ConnectTimeout | Self::EndpointLeft => {
                (S::SERVICE_UNAVAILABLE, 14, F::UpstreamFailure)
            }
            Self::DownstreamBody(_) => (S::BAD_REQUEST, 13, F::DownstreamProtocolError),
            Self::DownstreamHead(error) => (head_status(*error), 13, F::DownstreamProtocolError),
            Self::HeaderTimeout => (S::REQUEST_TIMEOUT, 4, F::DownstreamTimeout),
            Self::BreakerOpen(_) | Self::EndpointsFull | Self::Overflow | Self::QueueTimeout => {
                (S::SERVICE_UNAVAILABLE, 14, F::UpstreamOverflow)
            }
            Self::Fault(answer) => fault_status(*answer),
            Self::RateLimited(_) => (S::TOO_MANY_REQUESTS, 8, F::RateLimited),
            Self::DiscoveryTimeout => (S::SERVICE_UNAVAILABLE, 14, F::NoConfig),
            Self::NoBackend(status) => (*status, 14, F::NoBackend),
            Self::NoHealthyUpstream | Self::NoOriginalDestination | Self::OwnPort => {
                (S::SERVICE_UNAVAILABLE, 14, F::UpstreamUnhealthy)
            }
            Self::NoRoute => (S::NOT_FOUND, 12, F::NoRoute),
            Self::PerTryTimeout | Self::RequestTimeout => {
                (S::GATEWAY_TIMEOUT, 4, F::UpstreamTimeout)
            }
            Self::StreamIdleTimeout => (S::GATEWAY_TIMEOUT, 4, F::StreamIdle),
            Self::UpstreamBody(FramingError::UnexpectedEof)
            | Self::UpstreamClosed { .. }
            | Self::UpstreamIo(_) => (S::BAD_GATEWAY, 14, F::UpstreamClosed),
            Self::UpstreamBody(_) | Self::UpstreamHead(_) | Self::UnexpectedUpgrade => {
                (S::BAD_GATEWAY, 14, F::UpstreamProtocolError)
            }
            Self::ReplayLost | Self::UpstreamHttp2(_) | Self::UpstreamReset(_) => {
                (S::BAD_GATEWAY, 14, F::UpstreamReset)
            }
            Self::UpstreamRefused => (S::SERVICE_UNAVAILABLE, 14, F::UpstreamReset),
        };
        Verdict { status, grpc, flag }
    }

    /// Returns the limit of the cluster that rejected the request; `None` if no such limit did.
    pub(crate) fn overflow_reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::BreakerOpen(_) => "breaker-open",
            Self::EndpointsFull => "endpoints-full",
            Self::Overflow => "queue-full",
            Self::QueueTimeout => "queue-timeout",
            _ => return None,
        })
    }

    /// Returns when the client may try again, if that is known.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::BreakerOpen(wait) | Self::RateLimited(wait) => Some(*wait),
            Self::DiscoveryTimeout
            | Self::EndpointsFull
            | Self::MemoryBudget
            | Self::Overflow
            | Self::QueueTimeout => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Returns whether the error is evidence about the endpoint.
    pub(crate) fn is_upstreams(&self) -> bool {
        match self {
            Self::Connect(error) => !is_own_want(error),
            Self::RequestTimeout | Self::UpstreamBody(_) => true,
            _ => self.as_failure().is_some(),
        }
    }

    /// Returns whether the error is a fault of the endpoint or of its connection that ended a response after its
    /// beginning and before its last byte.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.as_failure() == Some(Failure::Reset)
    }

    /// Returns the failure that determines whether to retry; `None` if no endpoint has failed.
    pub(crate) fn as_failure(&self) -> Option<Failure> {
        Some(match self {
            Self::Connect(_) | Self::ConnectTimeout | Self::EndpointLeft => Failure::Connect,
            Self::EndpointsFull => Failure::Busy,
            Self::PerTryTimeout => Failure::PerTryTimeout,
            Self::UpstreamClosed { reused: true } => Failure::Stale,
            Self::UpstreamRefused => Failure::Refused,
            Self::UnexpectedUpgrade
            | Self::UpstreamBody(_)
            | Self::UpstreamClosed { reused: false }
            | Self::UpstreamHead(_)
            | Self::UpstreamHttp2(_)
            | Self::UpstreamReset(_)
            | Self::UpstreamIo(_) => Failure::Reset,
            _ => return None,
        })
    }
}

/// Returns whether a connection failed because this process or host has no descriptor or no memory left for it.
fn is_own_want(error: &io::Error) -> bool {
    let wants = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| wants.contains(&code))
}

/// Maps the status of an injected fault from HTTP to gRPC or vice versa (gRPC's table of HTTP statuses).
fn fault_status(answer: AbortAnswer) -> (StatusCode, u8, ResponseFlag) {
    use StatusCode as S;
    let (status, grpc) = match answer {
        AbortAnswer::Http(status) => {
            let grpc = match status {
                400 => 13,
                401 => 16,
                403 => 7,
                404 => 12,
                429 | 502..=504 => 14,
                _ => 2,
            };
            (
                S::from_u16(status).unwrap_or(S::INTERNAL_SERVER_ERROR),
                grpc,
            )
        }
        AbortAnswer::Grpc(status) => {
            let http = match status.code() {
                0 => S::OK,
                4 => S::GATEWAY_TIMEOUT,
                5 => S::NOT_FOUND,
                7 => S::FORBIDDEN,
                8 => S::TOO_MANY_REQUESTS,
                12 => S::NOT_IMPLEMENTED,
                14 => S::SERVICE_UNAVAILABLE,
                16 => S::UNAUTHORIZED,
                _ => S::INTERNAL_SERVER_ERROR,
            };
            (http, status.code())
        }
    };
    (status, grpc, ResponseFlag::Fault)
}

fn head_status(error: HeadError) -> StatusCode {
    match error {
        HeadError::TooLarge | HeadError::TooManyHeaders => {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        }
        HeadError::TransferEncoding => StatusCode::NOT_IMPLEMENTED,
        HeadError::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        _ => StatusCode::BAD_REQUEST,
    }
}
