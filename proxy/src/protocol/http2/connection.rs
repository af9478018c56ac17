//! The types of one connection and its streams. They refer to each other: a connection has its streams and accepted
//! requests, and a stream has its connection. Their methods are in the other modules of this directory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

use hashbrown::HashMap;
use http::HeaderMap;
use tokio::time::Instant;

use super::closed::{Closed, Failed};
use super::head::ResponseHead;
use super::past::Past;
use super::repeated::Repeated;
use crate::net::io::Io;
use crate::protocol::error::ProxyError;
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::http1;
use crate::protocol::message::Message;
use crate::protocol::outbox::Outbox;
use crate::protocol::receive_buffer::Received;

/// State that the streams of one connection share.
#[derive(Debug)]
pub(super) struct Channel {
    /// The socket; `None` once the driver has ended.
    pub(super) io: RefCell<Option<Io>>,
    pub(super) driver: RefCell<Option<Waker>>,
    /// Whether the driver has been woken and has not run since.
    pub(super) woken: Cell<bool>,
    pub(super) core: RefCell<Core>,
}

/// State that the driver and the streams share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) output: Outbox,
    pub(super) streams: HashMap<u32, Rc<Stream>>,
    pub(super) past: Past,
    pub(super) role: Role,
    /// Connection window for sending, in bytes.
    pub(super) send_window: u32,
    /// Initial window of a stream for sending, in bytes.
    pub(super) stream_window: u32,
    /// Connection window for receiving, in bytes.
    pub(super) receive_window: u32,
    /// Number of bytes that have arrived since the peer was last given credit.
    pub(super) arrived: u32,
    /// Size of the peer's decoding table, in bytes.
    pub(super) table: u32,
    /// Whether the table size was reduced, which the next field block must signal (RFC 9113, section 4.3.1).
    pub(super) table_reduced: bool,
    /// Tasks that wait for room in the outbox.
    pub(super) waiting: VecDeque<Waker>,
    /// Tasks that wait for the connection window.
    pub(super) starved: Vec<Waker>,
    /// Since when the connection window for sending has been nearly used up; `None` if it is not.
    pub(super) low_since: Option<Instant>,
    /// Whether to close the connection when no stream is left.
    pub(super) leaving: bool,
    pub(super) closed: Option<Closed>,
    /// Limits on frames that are cheap to send.
    pub(super) flood: FloodLimits,
}

/// State that differs between the two ends.
#[derive(Debug)]
pub(super) enum Role {
    Client(Opening),
    Server(Accepting),
}

/// State of opening streams.
#[derive(Debug)]
pub(super) struct Opening {
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

/// State of accepting streams.
pub(super) struct Accepting {
    pub(super) limits: Limits,
    /// Returns whether requests are rejected for lack of memory.
    pub(super) refuses: Box<dyn Fn() -> bool>,
    /// Number of the last stream that was begun.
    pub(super) last: u32,
    /// Number of the last stream that is accepted.
    pub(super) until: u32,
    pub(super) repeated: Repeated,
    pub(super) accepted: Vec<Accepted>,
}

/// A request, or the error in parsing it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) owner: Owner,
    pub(crate) request: Result<Message, ProxyError>,
    pub(crate) arrived: Instant,
    /// Size of the head in bytes, for memory that the connection has allocated.
    pub(crate) head: usize,
}

/// One request and its response on a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) channel: Rc<Channel>,
    pub(super) id: u32,
    pub(super) state: RefCell<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// State of the response, at the client; `None` at the server.
    pub(super) answer: Option<Box<Answer>>,
    pub(super) received: Received,
    pub(super) trailers: Option<HeaderMap>,
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
    /// Window for sending, in bytes; below zero if the peer has reduced it (section 6.9.2).
    pub(super) send_window: i64,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// State of the response, at the client.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Whether the request was HEAD.
    pub(super) to_head: bool,
    /// Whether the final head has been received.
    pub(super) here: bool,
    pub(super) head: Option<ResponseHead>,
    pub(super) interim: Vec<ResponseHead>,
}

/// The owning handle of a stream. On drop it resets the stream unless the stream has ended.
#[derive(Debug)]
pub(crate) struct Owner(pub(super) Rc<Stream>);

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
