//! The data plane: sidecar and standalone reverse proxy.
//!
//! Modules in the order in which they matter to a byte, from its socket to the endpoint and back;
//! ARCHITECTURE.md tells the story.

// A thread and its sockets.
mod accept;
mod kept;
mod thread;
mod worker;
// A connection, top to bottom.
mod client_address;
pub mod detect;
pub mod io;
mod original_destination;
mod own_connections;
pub mod proxy_protocol;
mod relay;
mod send_queue;
mod socket;
pub mod tcp;
pub mod tls;
// A request, top to bottom.
mod authorization;
mod codec;
pub mod exchange;
mod fields;
mod http;
pub mod http2;
mod intake;
mod limit;
mod message;
pub mod mux;
mod on_demand;
mod outbox;
mod pulse;
mod received;
mod route;
mod station;
mod timer;
mod turns;
mod upstream;
// What went wrong, what is counted, what is said.
mod access_log;
mod calls;
mod error;
mod metrics;
mod observers;
mod throttle;
// State and operations: the control thread.
mod admin;
mod app;
mod beat;
mod build;
mod cache;
mod descriptors;
mod ejection;
mod files;
mod flood;
mod grpc;
mod health;
mod identity;
pub mod init;
mod memory;
mod probes;
mod run;
mod service_manager;
mod shared;
mod source;
mod state;

pub use app::ApplyError;
pub use build::{BuildError, unusable_addresses, unusable_files};
pub use codec::{FramingError, HeadError};
pub use error::{ProxyError, Verdict};
#[doc(hidden)]
pub use http::probe;
pub use run::{Options, RunError, run, unusable_log};
