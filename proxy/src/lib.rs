//! The data plane: sidecar and standalone reverse proxy.
//!
//! Modules in the order in which a byte meets them.

pub mod io;
pub mod proxy_protocol;
pub mod detect;
pub mod tls;
pub mod tcp;
