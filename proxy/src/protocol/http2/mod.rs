//! HTTP/2 as a server speaks it (RFC 9113): many requests on one connection.
//!
//! [`frame`] finds frames in bytes, [`hpack`] decodes fields into the text that the proxy keeps them in, `head` makes a
//! request of them. `channel` is what the streams of a connection share, `dispatch` what each frame does to it, `stream`
//! one request, `driver` the socket, and `server` all of them together. The driver of a connection is a task of its own;
//! the tasks of requests leave frames in its buffer and wake it once.
//!
//! A fault of one message costs its own stream only: the connection ends only where the RFC demands
//! it, or where a peer causes more work than it may.

mod channel;
mod closed;
mod dispatch;
mod driver;
mod exercise;
pub(crate) mod frame;
mod head;
mod header;
pub(crate) mod hpack;
mod incoming;
mod past;
mod reason;
mod sending;
mod server;
mod settings;
mod stream;

use std::time::Duration;

pub(crate) use closed::Closed;
#[doc(hidden)]
pub use exercise::{Exercise, Seen};
pub(crate) use reason::Reason;
pub(crate) use sending::Sending;
pub(crate) use server::{Accepted, Limits, Server};
pub(crate) use stream::Stream;

/// Bytes of a body that a peer may send before they are taken: the bound on what is buffered for a stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of all bodies together that may be on their way. Bytes that have arrived do not count, taken or
/// not: so no number of slow streams uses up what the others need. What is buffered is bounded by the windows of streams.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Windows before anybody has changed them (RFC 9113, section 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// A silent peer is sent a PING after three of these and has one to answer.
const KEEPALIVE: Duration = Duration::from_secs(20);
