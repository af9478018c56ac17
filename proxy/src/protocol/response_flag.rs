//! How a request ended, in the one to four letters of the access log.

use std::fmt::{self, Display, Formatter};

/// Reason why a response did not come from an endpoint, or is incomplete; docs/access-log.md has the list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ResponseFlag {
    /// The response is the endpoint's, a redirect or a direct one.
    #[default]
    None,
    /// More requests are in flight at the server than the balancer allows (queue protocol).
    Busy,
    /// The client disconnected before the end.
    ClientGone,
    /// The client violated the protocol.
    DownstreamProtocolError,
    /// The client did not send its head in time.
    DownstreamTimeout,
    /// Injected fault.
    Fault,
    /// The memory budget is exhausted.
    Memory,
    /// The route's destination has no backend.
    NoBackend,
    /// The configuration of the destination could not be found in time.
    NoConfig,
    /// No route matches.
    NoRoute,
    /// Authorization denied the request.
    Denied,
    /// A rate limit is exhausted.
    RateLimited,
    /// No byte was transferred for the idle timeout.
    StreamIdle,
    /// The endpoint closed its connection.
    UpstreamClosed,
    /// No connection to the endpoint.
    UpstreamFailure,
    /// There is no healthy endpoint.
    UpstreamUnhealthy,
    /// A limit of the cluster is exhausted.
    UpstreamOverflow,
    /// The endpoint violated the protocol.
    UpstreamProtocolError,
    /// The endpoint reset the request.
    UpstreamReset,
    /// A timeout of the request or the attempt.
    UpstreamTimeout,
}

impl ResponseFlag {
    /// Returns whether a request with this flag has failed for a reason that is not its client's.
    #[must_use]
    pub(crate) fn is_server_failure(self) -> bool {
        !matches!(self, Self::None | Self::ClientGone)
    }

    /// Returns the letters of the flag; `-` for none.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Busy => "BN",
            Self::ClientGone => "DC",
            Self::DownstreamProtocolError => "DPE",
            Self::DownstreamTimeout => "DT",
            Self::Fault => "FI",
            Self::Memory => "OM",
            Self::NoBackend => "NB",
            Self::NoConfig => "NC",
            Self::NoRoute => "NR",
            Self::Denied => "RBAC",
            Self::RateLimited => "RL",
            Self::StreamIdle => "SI",
            Self::UpstreamClosed => "UC",
            Self::UpstreamFailure => "UF",
            Self::UpstreamUnhealthy => "UH",
            Self::UpstreamOverflow => "UO",
            Self::UpstreamProtocolError => "UPE",
            Self::UpstreamReset => "UR",
            Self::UpstreamTimeout => "UT",
        }
    }
}

impl Display for ResponseFlag {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
