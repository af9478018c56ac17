//! HTTP: from a client's connection to an endpoint's response.
//!
//! A request's way: [`serve`] (which version?) → [`http1`], [`http2`] or [`mux`] (a request off the wire) →
//! [`service`] (the pipeline) → [`forward`] (to an endpoint and back), and out the same way.

mod assertion;
mod consult;
mod deadline;
mod forward;
mod hash_key;
mod headers;
mod hedge;
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

use std::time::Duration;

pub(crate) use headers::Client;
pub(crate) use serve::serve;
pub(crate) use service::Service;

/// A connection that is to end (drain, changed listener, age) waits so long for requests that were
/// sent before its client could know.
const LEAVE_AFTER: Duration = Duration::from_secs(1);
