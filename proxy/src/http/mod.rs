//! HTTP: from a client's connection to an endpoint's response.
//!
//! A request's way: [`mod@serve`] (which version?) → [`http1`], [`http2`] or [`mesh_transport`] (a request off the wire) →
//! [`pipeline`] (its phases) → [`forward`] (to a cluster and back) → [`attempt`] (to an endpoint and back), and out the
//! same way. All of a connection's requests share its [`connection`].

mod accounting;
mod attempt;
pub(crate) mod client;
mod connection;
mod deadline;
mod forward;
mod hash_key;
pub(crate) mod headers;
mod http1;
mod http2;
mod load_feedback;
mod mesh_transport;
mod pipeline;
mod reply;
mod rewrite;
mod serve;
mod streams;
mod timer;
mod upload;

pub(crate) use client::Client;
pub(crate) use connection::Service;
pub(crate) use serve::serve;
