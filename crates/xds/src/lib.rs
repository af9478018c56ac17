//! Envoy's discovery protocol (xDS): conversion between its types and the configuration, and both ends of the protocol.
//!
//! No I/O, no runtime and no clock, except in `grpc_server`: the owner of a connection passes received bytes in, sends the resulting messages,
//! and provides the time. Nothing else in the workspace depends on protobuf.
//!
//! | module | what |
//! | --- | --- |
//! | [`encode`], [`decode`] | [`maglor_config`]'s types ⇄ Envoy's types (`envoy.config.*.v3`) |
//! | [`client`] | the client: subscriptions by name, delta ADS, ACK and NACK |
//! | [`discovery`] | the client's state: from a name to its routes, clusters and endpoints |
//! | [`server`] | the server: resources with versions, sessions of both protocols, receipts |
//! | `grpc_server` | serves these resources over gRPC; feature `grpc-server` |
//! | [`frame`] | gRPC's framing of messages |
//! | [`load`] | clients' load reports (LRS) |
//! | [`snapshot`] | resources as bytes, for storage |
//! | [`proto`] | the generated types |
//!
//! Fields that Envoy does not have are sent as `filter_metadata["maglor.dev"]`, in the notation of the configuration
//! file; docs/xds.md lists them.

pub mod client;
pub mod decode;
pub mod discovery;
mod empty_value;
pub mod encode;
mod extension_types;
pub mod frame;
#[cfg(feature = "grpc-server")]
pub mod grpc_server;
pub mod load;
mod maglor_metadata;
mod resource;
pub mod server;
pub mod snapshot;
mod time;

/// The generated types, by package. `tests/generated.rs` compares them with the `.proto` files.
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
