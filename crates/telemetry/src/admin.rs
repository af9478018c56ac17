//! The server of an admin port: access control and connection limits.
//!
//! An admin port has pages for the network (health, metrics) and pages for operators (configuration, taps, drain).
//! Pages for operators are available over loopback only, where `kubectl port-forward` connects, and only to requests
//! that no other website can have caused ([`refusal`]). Connections over loopback and from the network are limited
//! separately ([`Limits`]), so that neither the network nor the data plane can exhaust the connections of operators.
//!
//! The caller provides the contents of pages. Ports of other protocols limit their connections with [`Connections`],
//! too.

mod access;
mod connections;
mod headers;
mod query;
mod server;

pub use access::{Audience, Methods, Page, Refusal, Via, foreign_site, refusal};
pub use connections::{Busy, Connections, Held, Limits, Place, network_of};
pub use headers::list;
pub use query::parameters;
pub use server::{Accepted, Response, Server};
