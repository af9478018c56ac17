//! Abnormal ends of connections and streams.

use std::io;

use super::frame::{Malformed, Reason};
use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};

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
    /// Names in metrics of the reasons that are the peer's fault.
    pub(crate) const FAULTS: [&'static str; 4] = ["backlog", "malformed", "unresponsive", "flood"];

    /// Returns the index of this reason in [`Closed::FAULTS`]; `None` if it is not the peer's fault.
    pub(crate) fn fault(self) -> Option<usize> {
        match self {
            Self::Backlog => Some(0),
            Self::Malformed(_) => Some(1),
            Self::Unresponsive => Some(2),
            Self::Flood => Some(3),
            Self::ByPeer | Self::Io(_) | Self::Quiet => None,
        }
    }

    /// Returns the reason to send to the peer; `None` unless the peer has violated the protocol.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed(_) => Some(Reason::Protocol),
            Self::Flood => Some(Reason::Calm),
            _ => None,
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

impl Failed {
    /// Returns the error that is reported about an endpoint. `answered` is whether the head of the response was
    /// received.
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

    /// Returns the error that is logged for a client.
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
