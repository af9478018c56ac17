//! The mesh transport: a multiplexing protocol between two mesh members, with many requests on one connection.
//!
//! It is negotiated by ALPN, and only if both ends have proved their identities; peers that do not support it use
//! HTTP/2. Heads are sent as the text that the proxy already holds, and are parsed as in HTTP/1.1. Bodies are sent in
//! frames, with credit for each stream and for the connection. All pending output is sent in one write. The format is
//! described in docs/transport.md.
//!
//! [`frame`] is the format, `connection` the types, `channel` one connection, `stream` one request on it, `client`
//! and `server` the parts that differ between the ends. The driver of a connection is a separate task; the tasks of
//! requests put frames into its buffer and wake it once.

mod channel;
pub(crate) mod client;
mod closed;
mod connection;
mod dispatch;
pub mod frame;
mod incoming;
mod outbox;
mod sending;
pub(crate) mod server;
mod stream;
mod window;

pub(crate) use closed::Closed;
pub(crate) use connection::{Owner, Stream};
pub(crate) use frame::Reason;
pub(crate) use sending::Sending;

/// The transport's name in ALPN.
pub(crate) const ALPN: &[u8] = b"maglor/1";

/// Number of bytes of a body that a peer may send before they are read; it bounds the buffer of a stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Number of bytes of all bodies that may be in transit. Bytes that have arrived do not count, whether or not they
/// were read, so that slow streams cannot use up the credit of others.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Number of streams that a client may open before the server has announced its limit.
const INITIAL_STREAMS: u32 = 100;
