//! The types of one connection and its streams. They refer to each other: a connection has its streams and accepted
//! requests, and a stream has its connection. Their methods are in the other modules of this directory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use hashbrown::HashMap;
use http::HeaderMap;
use tokio::time::Sleep;

use super::closed::{Closed, Failed};
use super::frame::Decoder;
use super::outbox::Outbox;
use crate::net::io::Io;
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::http1::{HeadError, Limits, ResponseHead};
use crate::protocol::keepalive::Keepalive;
use crate::protocol::message::Message;
use crate::protocol::read_budget::Intake;
use crate::protocol::receive_buffer::Received;

/// One connection. Only its driver uses the socket.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) io: RefCell<Io>,
    pub(super) intake: RefCell<Intake>,
    pub(super) decoder: RefCell<Decoder>,
    pub(super) keepalive: RefCell<Keepalive>,
    pub(super) driver: RefCell<Option<Waker>>,
    /// Whether the driver has been woken and has not run since.
    pub(super) woken: Cell<bool>,
    pub(super) linger: RefCell<Option<Linger>>,
    pub(super) core: RefCell<Core>,
}

/// State of a connection that was shut down and waits for the peer to close its side. If the socket were closed
/// earlier, it would respond to further data with a reset, and the peer would lose data that it has not read yet.
#[derive(Debug)]
pub(super) struct Linger {
    pub(super) limit: Pin<Box<Sleep>>,
    /// Number of bytes that are still read and discarded.
    pub(super) left: usize,
    pub(super) shut: bool,
}

/// State that the driver and the streams share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) output: Outbox,
    pub(super) streams: HashMap<u32, Rc<Stream>>,
    pub(super) role: Role,
    /// Connection window for sending, in bytes.
    pub(super) send_window: u32,
    /// Connection window for receiving, in bytes.
    pub(super) receive_window: u32,
    /// Number of bytes that have arrived since the peer was last given credit.
    pub(super) arrived: u32,
    /// Tasks that wait for room in the outbox.
    pub(super) waiting: VecDeque<Waker>,
    /// Tasks that wait for the connection window.
    pub(super) starved: Vec<Waker>,
    /// Whether to close the connection when no stream is left.
    pub(super) leaving: bool,
    pub(super) closed: Option<Closed>,
    /// Limits on frames that are cheap to send.
    pub(super) flood: FloodLimits,
}

/// State that differs between the two ends.
#[derive(Debug)]
pub(super) enum Role {
    Client {
        /// Number of the next stream.
        next: u32,
        max_streams: u32,
        /// Whether the server accepts no further streams.
        gone: bool,
    },
    Server(Accepting),
}

/// State of accepting streams.
#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) limits: Limits,
    pub(super) max_streams: u32,
    /// Number of the last stream that was begun.
    pub(super) last: u32,
    /// Number of the last stream that is accepted.
    pub(super) until: u32,
    pub(super) accepted: Vec<Accepted>,
}

/// A request, or the error in parsing it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) owner: Owner,
    pub(crate) request: Result<Message, HeadError>,
}

/// One request and its response on a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) channel: Rc<Channel>,
    pub(super) id: u32,
    pub(super) state: RefCell<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// State of the response.
    pub(super) answer: Answer,
    pub(super) received: Received,
    /// Boxed, as other rare parts are: every waiting request reserves the space of this state, at both ends.
    pub(super) trailers: Option<Box<HeaderMap>>,
    /// Number of body bytes still to come; `None` if the head does not announce the length.
    pub(super) expected: Option<u64>,
    /// Number of bytes that the peer may send.
    pub(super) window: u32,
    /// Number of bytes that were forwarded since the peer was last given credit.
    pub(super) taken: u32,
    /// Whether the body is not read by anyone.
    pub(super) unwanted: bool,
    pub(super) remote_ended: bool,
    pub(super) local_ended: bool,
    /// Whether the stream was reset by either side, or lost with the connection.
    pub(super) closed: bool,
    pub(super) failed: Option<Failed>,
    /// Window for sending, in bytes.
    pub(super) send_window: u32,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// State of the response, at the client.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Whether the request was HEAD.
    pub(super) to_head: bool,
    /// Whether the final response head has been received.
    pub(super) here: bool,
    pub(super) head: Option<ResponseHead>,
    /// Informational responses that were not read yet; `None` if there are none.
    pub(super) interim: Option<Box<InterimHeads>>,
}

/// Informational responses in their order.
#[derive(Debug, Default)]
pub(super) struct InterimHeads(pub(super) Vec<ResponseHead>);

/// The owning handle of a stream. On drop it resets the stream unless the stream has ended.
#[derive(Debug)]
pub(crate) struct Owner(pub(super) Rc<Stream>);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request that waits has one at each end: with the counts of its references it fits into a block of the
    /// allocator.
    #[test]
    fn a_stream_stays_within_a_block() {
        let size = size_of::<Stream>() + 2 * size_of::<usize>();
        assert!(size <= 224, "{size} bytes");
    }
}
