//! What two members of the mesh speak to each other: many requests on one connection.
//!
//! Chosen by ALPN, only where both ends have proved their identities; a peer that does not know it
//! speaks HTTP/2. Heads travel as the text that the proxy holds anyway and are read by the very parser
//! of HTTP/1.1, bodies in frames with credit for each stream and for the connection, and all that is
//! ready leaves in one write. The format is described in docs/transport.md.
//!
//! [`frame`] is the format, `channel` one connection, `stream` one request on it, `client` and
//! `server` what differs between the ends. The driver of a connection is a task of its own; the tasks
//! of requests leave frames in its buffer and wake it once.

mod channel;
pub(crate) mod client;
mod closed;
mod dispatch;
pub mod frame;
mod incoming;
mod outbox;
mod sending;
pub(crate) mod server;
mod stream;

pub(crate) use closed::Closed;
pub(crate) use frame::Reason;
pub(crate) use incoming::{Incoming, Owner};
pub(crate) use sending::Sending;
pub(crate) use stream::Stream;

/// The transport's name in ALPN.
pub(crate) const ALPN: &[u8] = b"maglor/1";

/// Bytes of a body that a peer may send before they are taken: the bound on what is buffered for a stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of all bodies together that may be on their way. Bytes that have arrived do not count, taken or
/// not: so no number of slow streams uses up what the others need.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Streams that a client may have before the server has said how many.
const INITIAL_STREAMS: u32 = 100;
