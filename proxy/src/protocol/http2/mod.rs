//! HTTP/2 (RFC 9113): many requests on one connection, from clients and to endpoints.
//!
//! [`frame`] splits bytes into frames, [`hpack`] decodes fields into text, and `head` creates a request from this
//! text, or `repeated` copies it from the request before. `inbox` decodes input, and `dispatch` applies its frames to
//! the connection and its streams. The connection itself is that of [`streams`](super::streams): `protocol` is what
//! differs, `connection` has the types that differ, `server` and `client` are the two ends of a connection, and `answer`
//! is the response as a client receives it.
//!
//! An error in one message affects only its stream: the connection ends only where the RFC requires it, or where a
//! peer exceeds a limit on the work that it causes.

mod answer;
mod channel;
pub(crate) mod client;
mod closed;
mod connection;
mod dispatch;
mod exercise;
mod exercise_client;
pub(crate) mod frame;
mod head;
mod header;
pub(crate) mod hpack;
mod inbox;
mod past;
mod protocol;
mod reason;
mod repeated;
mod server;
mod settings;
mod stream;

use std::time::Duration;

pub(crate) use client::Client;
pub(crate) use connection::{Closed, Http2, Limits, Owner};
#[doc(hidden)]
pub use exercise::{Exercise, Seen};
#[doc(hidden)]
pub use exercise_client::{Answers, ClientExercise};
pub(crate) use server::Server;

/// Number of bytes of all bodies that may be in transit. Bytes that have arrived do not count, whether or not they
/// were read, so that slow streams cannot use up the credit of others. The buffers are bounded by the windows of
/// streams.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Initial size of windows (RFC 9113, section 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Interval of keepalive checks of clients. A silent one is sent a PING after three intervals and must respond within one.
const KEEPALIVE: Duration = Duration::from_secs(20);
