//! HTTP/2 (RFC 9113): many requests on one connection, from clients and to endpoints.
//!
//! [`frame`] splits bytes into frames, [`hpack`] decodes fields into text, and `head` creates a request from this
//! text, or `repeated` copies it from the request before. `connection` has the types; `channel` is the state that the
//! streams of a connection share, `dispatch` applies frames to it, `stream` is one request, `driver` the socket, and
//! `server` and `client` the two ends of a connection; `answer` is the response as a client receives it. The driver
//! of a connection is a separate task; the tasks of requests put frames into its buffer and wake it once.
//!
//! An error in one message affects only its stream: the connection ends only where the RFC requires it, or where a
//! peer exceeds a limit on the work that it causes.

mod answer;
mod channel;
pub(crate) mod client;
mod closed;
mod connection;
mod dispatch;
mod driver;
mod exercise;
mod exercise_client;
pub(crate) mod frame;
mod head;
mod header;
pub(crate) mod hpack;
mod incoming;
mod past;
mod reason;
mod repeated;
mod sending;
mod server;
mod settings;
mod stream;

use std::time::Duration;

pub(crate) use client::Client;
pub(crate) use closed::Closed;
pub(crate) use connection::{Accepted, Limits, Owner, Stream};
#[doc(hidden)]
pub use exercise::{Exercise, Seen};
#[doc(hidden)]
pub use exercise_client::{Answers, ClientExercise};
pub(crate) use incoming::Incoming;
pub(crate) use reason::Reason;
pub(crate) use sending::Sending;
pub(crate) use server::Server;

/// Number of bytes of a body that a peer may send before they are read; it bounds the buffer of a stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Number of bytes of all bodies that may be in transit. Bytes that have arrived do not count, whether or not they
/// were read, so that slow streams cannot use up the credit of others. The buffers are bounded by the windows of
/// streams.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Initial size of windows (RFC 9113, section 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Interval of keepalive checks of clients. A silent one is sent a PING after three intervals and must respond within one.
const KEEPALIVE: Duration = Duration::from_secs(20);
