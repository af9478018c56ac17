//! Abnormal ends of connections and streams.

use super::connection::Closed;
use super::frame::Reason;
use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::streams::Failure;

impl Closed {
    /// Names in metrics of the reasons that are the peer's fault.
    pub(crate) const FAULTS: [&'static str; 4] = ["backlog", "malformed", "unresponsive", "flood"];

    /// Returns the index of this reason in [`Closed::FAULTS`]; `None` if it is not the peer's fault.
    pub(crate) fn fault(self) -> Option<usize> {
        match self {
            Self::Backlog => Some(0),
            Self::Malformed(_) => Some(1),
            Self::Unresponsive => Some(2),
            Self::Flood => Some(3),
            Self::ByPeer | Self::HeadTimeout | Self::Io(_) | Self::Quiet => None,
        }
    }
}

/// Reason why a stream has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failed {
    /// The body is malformed or does not have the announced length.
    Body(FramingError),
    /// The connection has ended.
    Closed,
    /// The head cannot be parsed.
    Head(HeadError),
    /// The peer currently accepts no further requests and has not processed this one.
    Refused,
    /// The peer has reset the stream.
    Reset(Reason),
    /// The sender of the request is gone.
    Sender,
    /// The peer is closing the connection and has not processed the request.
    Unseen,
}

impl From<FramingError> for Failed {
    fn from(error: FramingError) -> Self {
        Self::Body(error)
    }
}

impl From<HeadError> for Failed {
    fn from(error: HeadError) -> Self {
        Self::Head(error)
    }
}

impl Failure for Failed {
    fn of_upstream(self, answered: bool) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::UpstreamBody(error),
            Self::Closed if answered => ProxyError::UpstreamBody(FramingError::UnexpectedEof),
            Self::Closed => ProxyError::UpstreamClosed { reused: false },
            Self::Head(error) => ProxyError::UpstreamHead(error),
            Self::Refused | Self::Unseen => ProxyError::UpstreamRefused,
            Self::Reset(reason) => ProxyError::UpstreamReset(reason.as_str()),
            Self::Sender => ProxyError::ClientGone,
        }
    }

    fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Head(error) => ProxyError::DownstreamHead(error),
            Self::Closed | Self::Refused | Self::Reset(_) | Self::Sender | Self::Unseen => {
                ProxyError::ClientGone
            }
        }
    }

    fn is_unseen(self) -> bool {
        matches!(self, Self::Unseen)
    }
}
