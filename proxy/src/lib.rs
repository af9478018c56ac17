//! The data plane: sidecar and standalone reverse proxy.
//!
//! The folders are layers: each uses those above it in this list, none those below. ARCHITECTURE.md tells in which order a
//! connection and a request meet them.

// What the system and the wire are like.
pub mod net;
pub mod os;
pub mod protocol;
pub mod telemetry;
pub mod tls;
// What a connection and a request use.
pub mod mesh;
mod routing;
mod runtime;
mod upstream;
// A request, a connection, the process.
mod control;
mod downstream;
mod http;

pub use control::app::ApplyError;
pub use control::build::{BuildError, unusable_addresses, unusable_files};
#[doc(hidden)]
pub use control::request_steps as probe;
pub use control::run::{Options, RunError, run, unusable_log};
pub use protocol::error::{ProxyError, Verdict};
pub use protocol::http1::{FramingError, HeadError};
