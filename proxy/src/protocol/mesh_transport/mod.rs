//! The mesh transport: a multiplexing protocol between two mesh members, with many requests on one connection.
//!
//! It is negotiated by ALPN, and only if both ends have proved their identities; peers that do not support it use
//! HTTP/2. Heads are sent as the text that the proxy already holds, and are parsed as in HTTP/1.1. Bodies are sent in
//! frames, with credit for each stream and for the connection. All pending output is sent in one write. The format is
//! described in docs/transport.md.
//!
//! [`frame`] is the format, `inbox` decodes input, and `dispatch` applies its frames to the connection and its streams.
//! The connection itself is that of [`streams`](super::streams): `protocol` is what differs, `connection` has the types
//! that differ, `client` and `server` are the two ends of a connection.

pub(crate) mod client;
mod closed;
mod connection;
mod dispatch;
pub mod frame;
mod inbox;
mod protocol;
pub(crate) mod server;
mod stream;

use std::time::Duration;

pub(crate) use connection::Closed;
#[cfg(test)]
pub(crate) use connection::MeshTransport;

/// The transport's name in ALPN.
pub(crate) const ALPN: &[u8] = b"maglor/1";

/// Number of bytes of all bodies that may be in transit. Bytes that have arrived do not count, whether or not they
/// were read, so that slow streams cannot use up the credit of others.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Number of streams that a client may open before the server has announced its limit.
const INITIAL_STREAMS: u32 = 100;
/// Interval of keepalive checks. A silent peer is sent a PING after three intervals and must respond within one.
const KEEPALIVE: Duration = Duration::from_secs(10);
