//! Abnormal ends of connections and streams.

use std::error::Error;
use std::fmt::Debug;
use std::io;

use crate::protocol::error::ProxyError;
use crate::protocol::http1::{FramingError, HeadError};

/// Reason why a connection has ended. `M` is a violation of its protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Closed<M: Error + 'static> {
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
    Malformed(#[from] M),
    /// This side has closed the connection, because no stream was left.
    #[error("closed")]
    Quiet,
    /// The peer does not respond.
    #[error("the peer does not respond")]
    Unresponsive,
}

/// Reason why a stream has failed.
pub(crate) trait Failure: Copy + Debug + From<FramingError> + From<HeadError> {
    /// Returns the error that is logged for a client.
    fn of_downstream(self) -> ProxyError;

    /// Returns the error that is reported about an endpoint. `answered` is whether the head of the response was
    /// received.
    fn of_upstream(self, answered: bool) -> ProxyError;

    /// Returns whether another connection can be used without counting the attempt: the server is closing this one and
    /// has not processed the request.
    fn is_unseen(self) -> bool;
}
