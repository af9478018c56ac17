//! HTTP: from a client's connection to an endpoint's response.
//!
//! A request's way: [`serve`] (which version?) → [`http1`], [`http2`] or [`mux`] (a request off the wire) →
//! [`service`] (the pipeline) → [`forward`] (to an endpoint and back), and out the same way. All of a connection's
//! requests share its [`connection`].

mod client;
mod connection;
mod consult;
mod deadline;
mod forward;
mod hash_key;
mod headers;
mod hedge;
mod hop;
mod http1;
mod http2;
mod mirror;
mod mux;
mod path;
mod payload;
pub mod probe;
mod record;
mod replay;
mod reply;
mod rewrite;
mod sent;
mod serve;
mod service;
mod streams;
mod timers;
mod tried;
mod tries;
mod upload;

pub(crate) use client::Client;
pub(crate) use connection::Service;
pub(crate) use serve::serve;
