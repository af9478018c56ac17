//! Kinds of causes, and their names.

/// Kinds of causes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CauseKind {
    /// A rule of authorization denied it.
    AuthorizationDenied,
    /// The circuit breaker was open.
    CircuitBreaker,
    /// The client left.
    ClientGone,
    /// No connection to the endpoint.
    ConnectFailure,
    /// The limit of connections.
    ConnectionLimit,
    /// The endpoint's own response was an error.
    EndpointError,
    /// A fault was injected.
    FaultInjected,
    /// A handshake between members of the mesh failed.
    MtlsRefusal,
    /// No endpoint could take the request.
    NoHealthyEndpoint,
    /// No route matched.
    NoRoute,
    /// Anything else; the sentence has the error.
    Other,
    /// The queue of the cluster was full.
    QueueFull,
    /// It was in the queue of the cluster.
    QueueWait,
    /// A rate limit was exceeded.
    RateLimited,
    /// Several attempts failed, or the budget of retries was exhausted.
    RetryStorm,
    /// The rest of a response's body took long.
    SlowBody,
    /// The client took long to read.
    SlowClient,
    /// The connection took long.
    SlowConnect,
    /// The endpoint took long to respond.
    SlowEndpoint,
    /// The client took long to send.
    SlowUpload,
    /// A timeout expired.
    Timeout,
    /// A TLS handshake failed.
    TlsFailure,
    /// The endpoint reset or closed the connection.
    UpstreamReset,
}

impl CauseKind {
    /// All kinds, in alphabetical order, with their names in JSON and documentation.
    pub const ALL: [(Self, &'static str); 23] = [
        (Self::AuthorizationDenied, "authorization-denied"),
        (Self::CircuitBreaker, "circuit-breaker"),
        (Self::ClientGone, "client-gone"),
        (Self::ConnectFailure, "connect-failure"),
        (Self::ConnectionLimit, "connection-limit"),
        (Self::EndpointError, "endpoint-error"),
        (Self::FaultInjected, "fault-injected"),
        (Self::MtlsRefusal, "mtls-refusal"),
        (Self::NoHealthyEndpoint, "no-healthy-endpoint"),
        (Self::NoRoute, "no-route"),
        (Self::Other, "other"),
        (Self::QueueFull, "queue-full"),
        (Self::QueueWait, "queue-wait"),
        (Self::RateLimited, "rate-limited"),
        (Self::RetryStorm, "retry-storm"),
        (Self::SlowBody, "slow-body"),
        (Self::SlowClient, "slow-client"),
        (Self::SlowConnect, "slow-connect"),
        (Self::SlowEndpoint, "slow-endpoint"),
        (Self::SlowUpload, "slow-upload"),
        (Self::Timeout, "timeout"),
        (Self::TlsFailure, "tls-failure"),
        (Self::UpstreamReset, "upstream-reset"),
    ];

    /// Returns the name in JSON and documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or("other", |(_, name)| name)
    }

    /// Returns whether the proxy in front of the endpoint may have the rest of the explanation.
    pub(super) fn is_of_endpoint(self) -> bool {
        matches!(
            self,
            Self::EndpointError
                | Self::MtlsRefusal
                | Self::RetryStorm
                | Self::SlowBody
                | Self::SlowEndpoint
                | Self::Timeout
                | Self::UpstreamReset
        )
    }
}

/// Why a request went as it did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cause {
    /// The kind.
    pub kind: CauseKind,
    /// One sentence.
    pub sentence: String,
}

impl Cause {
    pub(super) fn new(kind: CauseKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
        }
    }
}
