//! The data plane: sidecar and standalone reverse proxy.
//!
//! The directories are layers: each uses those above it in this list and none below. ARCHITECTURE.md describes the
//! order in which a connection and a request pass through them.

#![allow(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` reserves space for each argument twice, for as long as a request waits"
)]

// The operating system: memory, descriptors, redirection.
mod os;
// Sockets and byte streams.
mod net;
// Parsing and encoding of messages.
mod protocol;
// Metrics and logs.
mod telemetry;
// TLS on both sides.
mod tls;
// State of a worker, and state that all threads share.
mod runtime;
// Clusters, endpoints and connections to them.
mod upstream;
// Identity, authorization, load feedback.
mod mesh;
// The configuration in force: listeners, routes, limits.
mod routing;
// A request, from its head to its last byte.
mod http;
// Accepted connections, up to the choice of protocol.
mod downstream;
// The control thread.
mod control;

pub use control::app::ApplyError;
pub use control::build::{BuildError, unusable_addresses, unusable_files};
pub use control::run::{Options, RunError, run, unusable_log};
pub use os::memory::{forget_start, limit_fault_around};
pub use os::redirection;
pub use protocol::error::{ProxyError, Verdict};
pub use protocol::http1::{FramingError, HeadError};
pub use protocol::response_flag::ResponseFlag;

/// Parts that benchmarks and fuzz targets use directly. No other code may use them, because they change without
/// notice.
#[doc(hidden)]
pub mod seams {
    pub use crate::control::request_steps::{Head, Router};
    pub use crate::mesh::load_feedback::queue_protocol::{
        FRAME_LENGTH as QUEUE_FRAME_LENGTH, Frame as QueueFrame,
    };
    pub use crate::protocol::detect::{
        ClientHelloParser, Detected, Protocol, http2_preface, protocol, tls,
    };
    pub use crate::protocol::http2::frame::PREFACE as HTTP2_PREFACE;
    pub use crate::protocol::http2::{Answers, ClientExercise, Exercise, Seen};
    pub use crate::protocol::mesh_transport::frame as mesh_transport;
    pub use crate::protocol::proxy_protocol::{
        Parsed, encode_v1, encode_v2, parse as parse_proxy_header,
    };
}
