//! HTTP: from a client's connection to an endpoint's response.
//!
//! A request's way: [`serve`] (which version?) → [`http1`] or [`http2`] (a request off the wire) →
//! [`service`] (the pipeline) → [`forward`] (to an endpoint and back), and out the same way.

mod farewell;
mod forward;
mod hash_key;
mod headers;
mod http1;
mod http2;
pub mod probe;
mod record;
mod reply;
mod rewrite;
mod serve;
mod service;

pub(crate) use headers::Client;
pub(crate) use serve::serve;
pub(crate) use service::Service;
