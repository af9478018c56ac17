//! The types of a connection that differ from those of the mesh transport.

use std::fmt;
use std::task::Waker;

use tokio::time::Instant;

use super::past::Past;
use super::reason::{Malformed, Reason};
use super::repeated::Repeated;
use crate::protocol::{http1, streams};

/// HTTP/2.
#[derive(Debug)]
pub(crate) enum Http2 {}

pub(crate) type Accepted = streams::Accepted<Http2>;
pub(super) type Accepting = streams::Accepting<Http2>;
pub(super) type Channel = streams::Channel<Http2>;
pub(crate) type Closed = streams::Closed<Malformed>;
pub(super) type Core = streams::Core<Http2>;
pub(super) type FrameOutcome = streams::FrameOutcome<Reason>;
pub(crate) type Owner = streams::Owner<Http2>;
pub(super) type Role = streams::Role<Http2>;
pub(super) type State = streams::State<Http2>;
pub(crate) type Stream = streams::Stream<Http2>;

/// Further state of a connection.
#[derive(Debug)]
pub(crate) struct More {
    pub(super) past: Past,
    /// Initial window of a stream for sending, in bytes.
    pub(super) stream_window: u32,
    /// Size of the peer's decoding table, in bytes.
    pub(super) table: u32,
    /// Whether the table size was reduced, which the next field block must signal (RFC 9113, section 4.3.1).
    pub(super) table_reduced: bool,
    /// Since when the connection window for sending has been nearly used up; `None` if it is not.
    pub(super) low_since: Option<Instant>,
}

/// State of opening streams.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Number of bytes of a body that the server may send before they are read.
    pub(super) window: u32,
    /// Number of the next stream.
    pub(super) next: u32,
    /// Maximum number of concurrent streams that the server accepts.
    pub(super) max_streams: u32,
    /// Whether the server's settings have been received.
    pub(super) settled: bool,
    /// Whether the server accepts no further streams.
    pub(super) gone: bool,
    /// Requests that wait until the server accepts another stream.
    pub(super) waiting: Vec<Waker>,
}

/// Limits of one client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Limits of the head of a request.
    pub(crate) head: http1::Limits,
    /// Maximum number of concurrent streams.
    pub(crate) streams: u32,
}

/// Limits of accepting streams.
pub(crate) struct Admission {
    pub(super) limits: Limits,
    /// Returns whether requests are rejected for lack of memory.
    pub(super) refuses: Box<dyn Fn() -> bool>,
    pub(super) repeated: Repeated,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
