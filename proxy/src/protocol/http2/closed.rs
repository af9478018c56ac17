//! Abnormal ends of connections and streams.

use std::io;

use super::reason::{Malformed, Reason};
use crate::protocol::error::ProxyError;
use crate::protocol::http1::FramingError;

/// Reason why a connection has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Closed {
    /// The peer does not read its data.
    #[error("the peer does not read")]
    Backlog,
    /// The peer has closed the connection.
    #[error("closed by the peer")]
    ByPeer,
    /// The peer has exceeded a limit on frames that are cheap to send.
    #[error("too many frames without effect")]
    Flood,
    /// The peer has taken too long to send its preface or a request head.
    #[error("timeout while reading the preface or a head")]
    HeadTimeout,
    /// The socket or TLS has failed.
    #[error("i/o: {0}")]
    Io(io::ErrorKind),
    /// The peer has violated the protocol.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// This side has closed the connection, because no stream was left.
    #[error("closed")]
    Quiet,
    /// The peer does not respond.
    #[error("the peer does not respond")]
    Unresponsive,
}

impl Closed {
    /// Returns the error code to send to the peer; `None` if the peer cannot be reached or was already informed.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed(malformed) => Some(malformed.reason),
            Self::Flood => Some(Reason::EnhanceYourCalm),
            Self::HeadTimeout | Self::Unresponsive => Some(Reason::NoError),
            Self::Backlog | Self::ByPeer | Self::Io(_) | Self::Quiet => None,
        }
    }
}

/// Reason why a stream has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failed {
    /// The length of the body differs from the announced one, or the trailers are malformed.
    Body(FramingError),
    /// The peer has reset the stream, or the connection has ended.
    Gone,
    /// The peer has violated the protocol on this stream.
    Malformed,
}

impl Failed {
    /// Returns the error that is logged for a client.
    pub(super) fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Gone | Self::Malformed => ProxyError::ClientGone,
        }
    }
}
