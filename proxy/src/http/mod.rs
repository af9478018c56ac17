//! HTTP: from a client's connection to an endpoint's response.
//!
//! A request passes through [`detect_version`] (HTTP version) → [`http1`], [`http2`] or [`mesh_transport`] (parsing)
//! → [`pipeline`] (its phases) → [`forward`] (to a cluster and back) → [`attempt`] (to an endpoint and back); its
//! response returns the same way. All requests of a connection share its [`connection`] state.

mod accounting;
mod attempt;
mod authorize;
pub(crate) mod client;
mod connection;
mod deadline;
mod detect_version;
mod forward;
mod handling;
mod hash_key;
pub(crate) mod headers;
mod http1;
mod http2;
mod load_feedback;
mod mesh_transport;
mod phase;
mod pipeline;
mod recording;
mod reply;
mod rewrite_path;
mod story;
mod streams;
mod timer;
mod upload;

pub(crate) use client::Client;
pub(crate) use connection::Service;
pub(crate) use detect_version::serving;
pub(crate) use phase::Phase;
