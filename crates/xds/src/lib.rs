//! Envoy's discovery protocol (xDS): conversion between its types and the configuration, and both ends of the
//! protocol.
//!
//! No I/O, no runtime and no clock: the owner of a connection feeds received bytes, carries out what
//! goes out, and says what time it is. Nothing else in the workspace knows protobuf.
//!
//! | module | what |
//! | --- | --- |
//! | [`encode`], [`decode`] | [`maglor_config`]'s words ⇄ Envoy's types (`envoy.config.*.v3`) |
//! | [`client`] | one end: subscriptions by name, delta ADS, ACK and NACK |
//! | [`discovery`] | what a client makes of it: from a name to its routes, clusters and endpoints |
//! | [`server`] | the other end: resources with versions, sessions of both protocols, receipts |
//! | [`frame`] | gRPC's framing of messages |
//! | [`load`] | what clients report that they have sent where (LRS) |
//! | [`snapshot`] | resources as bytes, to be kept |
//! | [`proto`] | the generated types |
//!
//! What Envoy cannot say travels as `filter_metadata["maglor.dev"]`, in the words of the
//! configuration file; docs/xds.md lists what is where.

pub mod client;
pub mod decode;
pub mod discovery;
pub mod encode;
pub mod frame;
pub mod load;
mod resource;
pub mod server;
pub mod snapshot;
mod time;
mod words;

/// The generated types, by package; `tests/generated.rs` compares them with the `.proto` files.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
#[path = "gen/mod.rs"]
pub mod proto;

pub use maglor_config::workload::Inbound;
pub use prost::{DecodeError as MessageError, Message};
pub use prost_types::Timestamp;
pub use resource::{BUNDLE, Health, Kind, Listener, MOST_AHEAD, Resource, ServedEndpoint};
