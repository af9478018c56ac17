//! Messages between proxies about how busy servers are, so that balancing goes by true queues.
//!
//! The decisions (what to ask, what to answer, what to report) are [`maglor_balance::queue_protocol`]'s; here
//! is what they look like on the wire, described for others in docs/queue-protocol.md:
//!
//! * the field `x-maglor-queue` of requests and responses: under which condition a request is to be let
//!   in, and how many are in flight;
//! * the field `endpoint-load-metrics` of responses, ORCA's, for others than us;
//! * a *channel*: a connection that has left HTTP by `Upgrade: maglor-exchange/1` and carries frames of 32
//!   bytes both ways.
//!
//! The balancer's side is in `http::attempt` (what a request does) and [`super::channel`] (a channel's
//! client), the server's side in [`super::reporting`]. Whoever does not know the protocol ignores the field and
//! refuses the upgrade, and is treated as an endpoint of plain `lor`.

mod field;
mod frame;
pub(crate) mod orca;
mod wire;

use std::fmt::Debug;

use maglor_balance::queue_protocol::Report;

pub use self::frame::{Frame, LENGTH as FRAME_LENGTH};

pub(crate) use self::field::{QueueRequest, QueueResponse};
pub(crate) use self::wire::{PROTOCOL, Wire};

/// A server that can be asked for a report.
pub(crate) trait Reporter: Debug {
    /// What it would report now.
    fn report(&self) -> Report;
}
