//! The operating system: memory, file descriptors, redirection of connections, the service manager.

pub(crate) mod descriptors;
pub(crate) mod memory;
pub mod redirection;
pub(crate) mod service_manager;
pub(crate) mod throttle;
