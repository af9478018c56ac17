//! The types of a connection that differ from those of HTTP/2.

use super::frame::{Malformed, Reason};
use crate::protocol::{http1, streams};

/// The mesh transport.
#[derive(Debug)]
pub(crate) enum MeshTransport {}

pub(super) type Accepting = streams::Accepting<MeshTransport>;
pub(super) type Channel = streams::Channel<MeshTransport>;
pub(crate) type Closed = streams::Closed<Malformed>;
pub(super) type Core = streams::Core<MeshTransport>;
pub(super) type FrameOutcome = streams::FrameOutcome<Reason>;
pub(super) type Owner = streams::Owner<MeshTransport>;
pub(super) type Role = streams::Role<MeshTransport>;
pub(super) type State = streams::State<MeshTransport>;
pub(super) type Stream = streams::Stream<MeshTransport>;

/// State of opening streams.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Number of the next stream.
    pub(super) next: u32,
    /// Maximum number of concurrent streams that the server accepts.
    pub(super) max_streams: u32,
    /// Whether the server accepts no further streams.
    pub(super) gone: bool,
}

/// Limits of accepting streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Limits of the head of a request.
    pub(super) limits: http1::Limits,
    /// Maximum number of concurrent streams.
    pub(super) max_streams: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request that waits has one at each end: with the counts of its references it fits into a block of the
    /// allocator.
    #[test]
    fn a_stream_stays_within_a_block() {
        let size = size_of::<Stream>() + 2 * size_of::<usize>();
        assert!(size <= 192, "{size} bytes");
    }
}
