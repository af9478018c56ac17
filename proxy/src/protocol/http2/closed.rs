//! Abnormal ends of streams.

use super::connection::Closed;
use super::reason::Reason;
use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};
use crate::protocol::streams::Failure;

/// Reason why a stream has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failed {
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
    fn of_downstream(self) -> ProxyError {
        match self {
            Self::Body(error) => ProxyError::DownstreamBody(error),
            Self::Head(error) => ProxyError::DownstreamHead(error),
            Self::Closed(_) | Self::Gone | Self::Malformed | Self::Refused | Self::Reset(_) => {
                ProxyError::ClientGone
            }
        }
    }

    fn of_upstream(self, answered: bool) -> ProxyError {
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

    /// Refused requests are attempts that count, since a server may refuse any number of them.
    fn is_unseen(self) -> bool {
        false
    }
}
