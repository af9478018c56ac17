//! The serving end: resources with versions, and what each client still needs.
//!
//! A [`Cache`] holds what is to be distributed and which change of it came when. A [`Session`] is one
//! client's stream: requests go in, responses come out, and it knows what its client has. Both
//! protocols are used (`envoy.service.discovery.v3.AggregatedDiscoveryService`): delta, in which a
//! response holds what has changed, and state of the world, in which it holds everything of a kind
//! that was asked for.
//!
//! What is referred to is sent before what refers to it, and taken away after it: clusters,
//! endpoints, listeners, routes, and then what has gone.

mod answers;
mod cache;
mod receipts;
mod session;
mod subscriptions;

pub use answers::Nack;
pub use cache::{Cache, ChangeId};
pub use receipts::{Delivery, Receipt, Receipts};
pub use session::{Protocol, Scope, Session};
