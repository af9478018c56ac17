//! Abnormal ends of connections and streams.

use std::io;

use super::reason::{Malformed, Reason};
use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};

/// Reason why a connection has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Closed {
    /// The peer does not read its data.
    #[error("the peer does not read the data sent to it")]
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
    /// The connection to a server has ended.
    Closed(Closed),
    /// The client has reset the stream, or its connection has ended.
    Gone,
    /// The head of a response is invalid.
    Head(HeadError),
    /// The peer has violated the protocol on this stream.
    Malformed,
    /// The server has not processed the request.
    Refused,
    /// The server has reset the stream.
    Reset(Reason),
}

impl Failed {
    /// Returns the error that is logged for a client.
    pub(super) fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Head(error) => ProxyError::DownstreamHead(error),
            Self::Closed(_) | Self::Gone | Self::Malformed | Self::Refused | Self::Reset(_) => {
                ProxyError::ClientGone
            }
        }
    }

    /// Returns the error that is reported about an endpoint. `answered` is whether the head of the response was
    /// received.
    pub(super) fn of_upstream(self, answered: bool) -> ProxyError {
        let cut_off = match answered {
            true => ProxyError::UpstreamBody(FramingError::UnexpectedEof),
            false => ProxyError::UpstreamClosed { reused: false },
        };
        match self {
            Self::Body(error) => ProxyError::UpstreamBody(error),
            Self::Closed(Closed::Malformed(malformed)) => {
                ProxyError::UpstreamHttp2(malformed.what())
            }
            Self::Closed(Closed::Flood) => {
                ProxyError::UpstreamHttp2("too many frames without effect")
            }
            Self::Closed(Closed::Unresponsive) => {
                ProxyError::UpstreamHttp2("no response to a PING frame")
            }
            Self::Closed(_) | Self::Gone => cut_off,
            Self::Head(error) => ProxyError::UpstreamHead(error),
            Self::Malformed => ProxyError::UpstreamHttp2("a malformed message"),
            Self::Refused => ProxyError::UpstreamRefused,
            // RFC 9113 §8.1: such a reset may follow a complete response, but does not complete one.
            Self::Reset(Reason::NoError | Reason::Cancel) if answered => cut_off,
            Self::Reset(reason) => ProxyError::UpstreamHttp2(reason.as_str()),
        }
    }
}
