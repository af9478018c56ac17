//! The server of the protocol: resources with versions, and the state of each client.
//!
//! A [`Cache`] contains the distributed resources and the order of their changes. A [`Session`] is the stream of one
//! client: it takes requests, returns responses, and tracks the versions that its client has. Both protocol variants
//! are supported (`envoy.service.discovery.v3.AggregatedDiscoveryService`): delta, in which a response contains the
//! changes, and state of the world, in which it contains all requested resources of a kind.
//!
//! Resources are sent before others that refer to them, and removed after them: first clusters, endpoints, listeners
//! and routes, then removals.

mod answers;
mod cache;
mod change;
mod receipts;
mod session;
mod subscriptions;

pub use answers::Nack;
pub use cache::Cache;
pub use change::ChangeId;
pub use receipts::{Delivery, Receipt, Receipts};
pub use session::{Protocol, Scope, Session};
