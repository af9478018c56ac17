//! Serves the resources of this package over gRPC, by aggregated discovery in both protocol variants and the identity
//! service, and receives clients' load reports.
//!
//! Sockets, TLS and authorization are the caller's responsibility: it accepts connections, hands each to
//! [`Server::serve`] with the known facts about the peer, and implements [`Policy`], which decides what
//! the peer may see. gRPC is implemented on hyper's HTTP/2 directly: four methods, five bytes before
//! a message and two trailers need no framework.
//!
//! ```no_run
//! # async fn example(listener: tokio::net::TcpListener, policy: std::sync::Arc<dyn maglor_xds::grpc_server::Policy>)
//! # -> std::io::Result<()> {
//! use maglor_xds::grpc_server::{Peer, Server};
//!
//! let server = Server::new(policy);
//! loop {
//!     let (socket, address) = listener.accept().await?;
//!     let peer = Peer { address, identity: None };
//!     tokio::spawn(server.clone().serve(socket, peer));
//! }
//! # }
//! ```

mod body;
mod call;
mod loads;
mod policy;
mod report;
mod server;
mod state;
mod status;
mod stream;

pub use crate::proto::envoy::config::core::v3::Node;
pub use crate::proto::maglor::identity::v1::{CertifyRequest, CertifyResponse};
pub use policy::{Certified, Peer, Policy, WhileOpen};
pub use report::SessionReport;
pub use server::Server;
pub use status::{Code, Status};
