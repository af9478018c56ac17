//! The queue protocol: messages between proxies about the load of servers, so that balancing can use true
//! queue lengths.
//!
//! [`maglor_balance::queue_protocol`] decides what to query, to answer and to report; this module defines the wire
//! format, which docs/queue-protocol.md specifies:
//!
//! * the field `x-maglor-queue` of requests and responses: the admission condition of a request, and the number of
//!   requests in flight;
//! * the field `endpoint-load-metrics` of responses, as defined by ORCA, for other implementations;
//! * a *channel*: a connection upgraded from HTTP by `Upgrade: maglor-exchange/1`, which carries frames of 32
//!   bytes both ways.
//!
//! The balancer's side is in `http::attempt` (requests) and [`super::channel`] (the client's end of a
//! channel), the server's side in [`super::reporting`]. An endpoint without the protocol ignores the field
//! and refuses the upgrade; it is balanced by plain `lor`.

mod frame;
mod frame_stream;
pub(crate) mod orca;
mod queue_header;

use std::fmt::Debug;

use maglor_balance::queue_protocol::Report;

pub use self::frame::{Frame, LENGTH as FRAME_LENGTH};

pub(crate) use self::frame_stream::{FrameStream, PROTOCOL};
pub(crate) use self::queue_header::{QueueRequest, QueueResponse};

/// A source of reports about a server.
pub(crate) trait Reporter: Debug {
    /// Returns the current report.
    fn report(&self) -> Report;
}
