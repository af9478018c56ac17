//! How connections and streams end otherwise than they should.

use std::io;

use super::reason::{Malformed, Reason};
use crate::protocol::error::ProxyError;
use crate::protocol::http1::FramingError;

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
    /// The peer has taken too long to send its preface, or a head.
    #[error("timeout while reading the preface or a head")]
    HeadTimeout,
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
    /// The error code that is sent to the peer; `None` if it cannot be reached, or has been informed.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed(malformed) => Some(malformed.reason),
            Self::Flood => Some(Reason::EnhanceYourCalm),
            Self::HeadTimeout | Self::Unresponsive => Some(Reason::NoError),
            Self::Backlog | Self::ByPeer | Self::Io(_) | Self::Quiet => None,
        }
    }
}

/// Why a stream brings no more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failed {
    /// Its body is not as long as its head says, or its trailers are malformed.
    Body(FramingError),
    /// The peer has given it up, or the connection has ended.
    Gone,
    /// The peer has broken a rule of the protocol with it.
    Malformed,
}

impl Failed {
    /// As the log describes it for a client.
    pub(super) fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Gone | Self::Malformed => ProxyError::ClientGone,
        }
    }
}
