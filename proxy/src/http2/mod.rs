//! What both ends of an HTTP/2 connection share: its windows, its byte stream with the limits on what a peer
//! may send, and bodies in either direction. The protocol itself is the crate `h2`'s.

mod frames;
mod outflow;
mod receiving;
mod sending;
mod wire;

use std::time::Duration;

pub(crate) use outflow::{Outflow, Parcel};
pub(crate) use receiving::Receiving;
pub(crate) use sending::{Sending, Unsent};
pub(crate) use wire::{Traffic, Wire};

/// Bytes of a body that a peer may send before they are taken: the bound on what is buffered for a stream.
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of all bodies of a connection that a peer may send before they are taken: more than the windows of
/// as many streams as a connection ever has (16 384; Go's client has the same). So no number of slow
/// streams uses up what the others need.
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 30;
/// Bytes that may wait to be written on a stream.
pub(crate) const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of a frame that is received.
pub(crate) const MAX_FRAME: u32 = 16 * 1024;
/// Bytes of overhead of unread DATA frames that are small: about 16 000 frames.
pub(crate) const DATA_FRAME_BUDGET: usize = 4 * 1024 * 1024;

/// With connections of a peer that keeps its streams, a silent peer is sent a PING after three of these and has one
/// to answer.
pub(crate) const SERVER_PULSE: Duration = Duration::from_secs(20);
/// The same for connections to an endpoint.
pub(crate) const CLIENT_PULSE: Duration = Duration::from_secs(10);

/// Removes fields that have no meaning in HTTP/2 (RFC 9113, section 8.2.2).
pub(crate) fn remove_connection_fields(fields: &mut crate::fields::Fields) {
    for name in crate::mux::CONNECTION_FIELDS {
        fields.remove(name);
    }
}
