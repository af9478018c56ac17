//! Connections with many streams: what [`http2`](super::http2) and the [mesh transport](super::mesh_transport) have in
//! common.
//!
//! `connection` has the types, and [`Protocol`] what differs; `channel` is the state that the streams of a connection
//! share, `stream` is one request and its response, `incoming` and `sending` are their bodies, `driver` is the socket,
//! and `server` and `client` are the two ends of a connection. The driver of a connection is a separate task; the tasks of
//! requests put frames into its buffer and wake it once.
//!
//! The protocols have their own frames, and apply each frame to its stream and to the connection (`dispatch`).

mod channel;
mod client;
mod closed;
mod connection;
mod driver;
mod incoming;
mod sending;
mod server;
mod stream;

pub(in crate::protocol) use client::Begun;
pub(crate) use client::{Answered, Client};
pub(crate) use closed::Closed;
pub(in crate::protocol) use closed::Failure;
pub(crate) use connection::{Accepted, Owner, Protocol, Stream};
pub(in crate::protocol) use connection::{
    Accepting, Channel, Core, End, FrameOutcome, ResponseHead, Role, State,
};
pub(in crate::protocol) use driver::Driver;
pub(crate) use incoming::Incoming;
pub(crate) use sending::Sending;
pub(crate) use server::Server;
pub(in crate::protocol) use stream::DataFault;

/// Number of bytes of a body that a peer may send before they are read; it bounds the buffer of a stream.
pub(in crate::protocol) const STREAM_WINDOW: u32 = 64 * 1024;
/// Largest window for sending (RFC 9113, section 6.9.1).
const MAX_WINDOW: u32 = 0x7fff_ffff;
