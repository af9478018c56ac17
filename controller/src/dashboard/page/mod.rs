//! The web page of a mesh: its files, its API, and a day of history.
//!
//! A [`Source`] provides the observed state; the caller owns the sockets, and passes accepted connections to
//! [`Dashboard::serve`]. Everything is read-only. The API is described in docs/dashboard-api.md.
//!
//! Invariants: no request changes anything; memory is bounded by the number of streams, the size of the graph and the
//! limit of the history; nothing is shown that was not measured.

mod admin_port;
mod answer;
mod assets;
mod documents;
mod graph_layout;
mod history;
mod hub;
mod merge_patch;
mod model;
mod number;
mod query;
mod server;
mod stream;
mod tap;
mod tokens;
mod why;

pub use admin_port::{AdminPort, Connecting, Connector, Io, Permissions, Permitted, Proxies, Taps};
pub use model::{
    About, Details, Edge, Endpoint, Mesh, Move, Proxy, Share, Signals, Source, Vertex, View,
};
pub use server::{Access, Dashboard};
pub use tokens::{Denied, Review, Reviewer};
