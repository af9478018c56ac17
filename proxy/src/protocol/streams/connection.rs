//! The types of one connection and its streams. They refer to each other: a connection has its streams and accepted
//! requests, and a stream has its connection. Their methods are in the other modules of this directory, and in those of
//! the protocols.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt::Debug;
use std::rc::Rc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use http::{HeaderMap, StatusCode, Version};
use tokio::time::Instant;

use super::closed::{Closed, Failure};
use crate::net::io::Io;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::Fields;
use crate::protocol::flood_limits::FloodLimits;
use crate::protocol::message::Message;
use crate::protocol::outbox::Outbox;
use crate::protocol::receive_buffer::Received;

/// What differs between the protocols.
pub(crate) trait Protocol: Debug + Sized + 'static {
    /// Violation of the protocol by a peer.
    type Malformed: Copy + Debug + Eq + Error + 'static;
    /// Reason why a stream has failed.
    type Failed: Failure;
    /// Reason that is sent to a peer when a stream or a connection ends.
    type Reason: Copy + Debug;
    /// State of opening streams.
    type Opening: Debug;
    /// Limits of accepting streams.
    type Admission: Debug;
    /// Further state of a connection.
    type More: Debug;
    /// Decoder of input.
    type Inbox: Debug;

    /// Version of HTTP that errors of requests are answered for.
    const VERSION: Version;
    /// Number of the last stream that a client can open.
    const LAST_STREAM: u32;
    /// Number of bytes of all bodies that may be in transit. Bytes that have arrived do not count, whether or not they
    /// were read, so that slow streams cannot use up the credit of others.
    const CONNECTION_WINDOW: u32;
    /// Maximum length of a frame's payload, in bytes.
    const MAX_PAYLOAD: usize;
    /// Maximum number of bytes of a body that are forwarded at a time.
    const PIECE: usize;
    /// Whether silent clients without a request are sent a PING, too.
    const CHECKS_IDLE_CLIENTS: bool;

    /// No error.
    const NO_ERROR: Self::Reason;
    /// The client has cancelled the request.
    const CANCELLED: Self::Reason;
    /// The server cannot finish the response.
    const FAILED: Self::Reason;
    /// A frame violates the protocol.
    const VIOLATION: Self::Reason;

    /// Handles input up to the cost `most`. Returns the cost of handling it, in addition to its bytes.
    fn take(
        inbox: &mut Self::Inbox,
        channel: &Rc<Channel<Self>>,
        bytes: &mut &[u8],
        most: usize,
    ) -> Result<usize, Closed<Self::Malformed>>;

    /// Appends a PING frame.
    fn encode_ping(out: &mut BytesMut);
    /// Appends a frame that grants credit for further bytes; stream 0 is the connection.
    fn encode_credit(stream: u32, bytes: u32, out: &mut BytesMut);
    /// Appends a frame that resets a stream.
    fn encode_reset(stream: u32, reason: Self::Reason, out: &mut BytesMut);
    /// Appends a GOAWAY frame that contains the number of the last stream.
    fn encode_goaway(last: u32, reason: Self::Reason, out: &mut BytesMut);
    /// Appends a piece of a body.
    fn encode_data(stream: u32, piece: Bytes, end: bool, out: &mut Outbox);
    /// Appends the head of a response.
    fn encode_head(
        core: &mut Core<Self>,
        stream: u32,
        status: StatusCode,
        fields: &Fields,
        end: bool,
    );
    /// Appends trailers, which end the message.
    fn encode_trailers(core: &mut Core<Self>, stream: u32, trailers: &HeaderMap);

    /// Returns the reason to send to the peer of a closed connection; `None` if the peer cannot be reached or was already
    /// informed.
    fn reason(closed: Closed<Self::Malformed>, is_client: bool) -> Option<Self::Reason>;
    /// Returns the reason to reset a stream whose owner is dropped.
    fn dropped(state: &State<Self>) -> Self::Reason;
    /// Returns the failure of a stream that this side has reset.
    fn abandoned(reason: Self::Reason) -> Self::Failed;
    /// Returns the failure of a stream whose connection has ended; `None` if what was received stays valid.
    fn lost(state: &State<Self>, closed: Closed<Self::Malformed>) -> Option<Self::Failed>;

    /// Records how a stream has ended.
    fn ended(_core: &mut Core<Self>, _stream: u32, _end: End) {}
    /// Wakes requests that wait until the server accepts another stream, after a stream or the connection has ended.
    fn admit_waiting(_core: &mut Core<Self>) {}
    /// Records that the connection window for sending has changed.
    fn note_window(_core: &mut Core<Self>) {}
}

/// How a stream has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Both sides have sent their complete messages.
    Over,
    /// The peer has reset the stream.
    ResetByPeer,
    /// This side has reset the stream: frames that the peer sent before it learned of this are in transit.
    ResetHere,
}

/// State that the streams of one connection share.
#[derive(Debug)]
pub(crate) struct Channel<P: Protocol> {
    /// The socket; `None` once the driver has ended.
    pub(in crate::protocol) io: RefCell<Option<Io>>,
    pub(super) driver: RefCell<Option<Waker>>,
    /// Whether the driver has been woken and has not run since.
    pub(in crate::protocol) woken: Cell<bool>,
    pub(in crate::protocol) core: RefCell<Core<P>>,
}

/// State that the driver and the streams share.
#[derive(Debug)]
pub(crate) struct Core<P: Protocol> {
    pub(in crate::protocol) output: Outbox,
    pub(in crate::protocol) streams: HashMap<u32, Rc<Stream<P>>>,
    pub(in crate::protocol) role: Role<P>,
    /// Connection window for sending, in bytes.
    pub(in crate::protocol) send_window: u32,
    /// Connection window for receiving, in bytes.
    pub(super) receive_window: u32,
    /// Number of bytes that have arrived since the peer was last given credit.
    pub(super) arrived: u32,
    /// Tasks that wait for the connection window.
    pub(super) starved: Vec<Waker>,
    /// Whether to close the connection when no stream is left.
    pub(in crate::protocol) leaving: bool,
    pub(in crate::protocol) closed: Option<Closed<P::Malformed>>,
    /// Limits on frames that are cheap to send.
    pub(in crate::protocol) flood: FloodLimits,
    pub(in crate::protocol) more: P::More,
}

/// State that differs between the two ends.
#[derive(Debug)]
pub(crate) enum Role<P: Protocol> {
    Client(P::Opening),
    Server(Accepting<P>),
}

/// State of accepting streams.
#[derive(Debug)]
pub(crate) struct Accepting<P: Protocol> {
    pub(in crate::protocol) admission: P::Admission,
    /// Number of the last stream that was begun.
    pub(in crate::protocol) last: u32,
    /// Number of the last stream that is accepted.
    pub(in crate::protocol) until: u32,
    pub(super) accepted: Vec<Accepted<P>>,
}

/// A request, or the error in parsing it.
#[derive(Debug)]
pub(crate) struct Accepted<P: Protocol> {
    pub(crate) owner: Owner<P>,
    pub(crate) request: Result<Message, ProxyError>,
    pub(crate) arrived: Instant,
    /// Size of the head in bytes, for memory that the connection has allocated.
    pub(crate) head: usize,
}

/// One request and its response on a connection.
#[derive(Debug)]
pub(crate) struct Stream<P: Protocol> {
    pub(super) channel: Rc<Channel<P>>,
    pub(in crate::protocol) id: u32,
    pub(in crate::protocol) state: RefCell<State<P>>,
}

#[derive(Debug)]
pub(crate) struct State<P: Protocol> {
    /// State of the response, at the client; `None` at the server. Boxed, as other rare parts are: every waiting request
    /// reserves the space of this state, at both ends.
    pub(in crate::protocol) answer: Option<Box<Answer>>,
    pub(in crate::protocol) received: Received,
    pub(in crate::protocol) trailers: Option<Box<HeaderMap>>,
    /// Number of body bytes still to come; `None` if the head does not announce the length.
    pub(super) expected: Option<u64>,
    /// Number of bytes that the peer may send.
    pub(super) window: u32,
    /// Number of bytes that were forwarded since the peer was last given credit.
    pub(super) taken: u32,
    /// Whether the body is not read by anyone.
    pub(super) unwanted: bool,
    pub(in crate::protocol) remote_ended: bool,
    pub(in crate::protocol) local_ended: bool,
    /// Whether the stream was reset by either side, or lost with the connection.
    pub(in crate::protocol) closed: bool,
    pub(in crate::protocol) failed: Option<P::Failed>,
    /// Window for sending, in bytes; below zero if the peer has reduced it (RFC 9113, section 6.9.2).
    pub(super) send_window: i64,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// State of the response, at the client.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Whether the request was HEAD.
    pub(in crate::protocol) to_head: bool,
    /// Whether the final head has been received.
    pub(in crate::protocol) here: bool,
    pub(in crate::protocol) head: Option<ResponseHead>,
    /// Informational responses that were not read yet.
    pub(in crate::protocol) interim: Vec<ResponseHead>,
}

/// The head of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
    /// Length of the body in bytes; `None` if the head does not contain it.
    pub(in crate::protocol) length: Option<u64>,
}

/// Effect of a frame on its stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameOutcome<R> {
    Open,
    /// Both sides have ended.
    Closed,
    /// The peer has violated the protocol: the stream must be reset.
    Violation(R),
}

/// The owning handle of a stream. On drop it resets the stream unless the stream has ended.
#[derive(Debug)]
pub(crate) struct Owner<P: Protocol>(pub(in crate::protocol) Rc<Stream<P>>);
