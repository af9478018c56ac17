//! The server side of an admin port: which requests it answers, and how many connections it has.
//!
//! An admin port has pages for the network (health, metrics) and pages for operators (configuration, taps,
//! drain). Pages for operators are answered over loopback only, where `kubectl port-forward` arrives, and only
//! to requests that no other website can have caused ([`refusal`]). Connections are bounded for each of the two
//! ([`Limits`]), so that neither the network nor the data plane can use up what an operator needs.
//!
//! What the pages say is the caller's. Ports of other protocols bound their connections by the same [`Connections`].

mod access;
mod connections;
mod server;

pub use access::{Audience, Methods, Page, Refusal, Via, refusal};
pub use connections::{Busy, Connections, Held, Limits, Place, network_of};
pub use server::{Accepted, Response, Server};
