//! How connections and streams end otherwise than they should.

use std::io;

use super::frame::{Malformed, Reason};
use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};

/// How a connection has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Closed {
    /// The peer does not read what it is sent.
    #[error("the peer does not read")]
    Backlog,
    /// The peer has closed it.
    #[error("closed by the peer")]
    ByPeer,
    /// The peer has sent more than it may of what costs it nothing.
    #[error("too many frames that carry nothing")]
    Flood,
    /// The socket, or TLS, has failed.
    #[error("i/o: {0}")]
    Io(io::ErrorKind),
    /// The peer has sent what it may not send.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// We have closed it, nothing being left to do.
    #[error("closed")]
    Quiet,
    /// The peer does not answer.
    #[error("the peer does not answer")]
    Unresponsive,
}

impl Closed {
    /// Reasons that are the peer's fault, as metrics name them.
    pub(crate) const FAULTS: [&'static str; 4] = ["backlog", "malformed", "unresponsive", "flood"];

    /// Which of [`Closed::FAULTS`] it is.
    pub(crate) fn fault(self) -> Option<usize> {
        match self {
            Self::Backlog => Some(0),
            Self::Malformed(_) => Some(1),
            Self::Unresponsive => Some(2),
            Self::Flood => Some(3),
            Self::ByPeer | Self::Io(_) | Self::Quiet => None,
        }
    }

    /// The reason that is sent to the peer, if it has broken a rule.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed(_) => Some(Reason::Protocol),
            Self::Flood => Some(Reason::Calm),
            _ => None,
        }
    }
}

/// Why a stream brings no more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failed {
    /// Its body is not as long as its head says, or malformed.
    Body(FramingError),
    /// The connection has ended.
    Closed,
    /// Its head cannot be read.
    Head(HeadError),
    /// The peer takes no more for now, and has not looked at it.
    Refused,
    /// The peer has given it up.
    Reset(Reason),
    /// Who sent the request has gone.
    Sender,
    /// The peer is leaving, and has not looked at it.
    Unseen,
}

impl Failed {
    /// As it is reported about an endpoint; `answered` = the response's head had come.
    pub(super) fn of_upstream(self, answered: bool) -> ProxyError {
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

    /// As the log describes it for a client.
    pub(super) fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Head(error) => ProxyError::DownstreamHead(error),
            Self::Closed | Self::Refused | Self::Reset(_) | Self::Sender | Self::Unseen => {
                ProxyError::ClientGone
            }
        }
    }
}
