//! The control thread: the current configuration and its changes, and the admin server.

pub(crate) mod admin;
pub(crate) mod app;
pub(crate) mod build;
pub(crate) mod cache;
pub(crate) mod ejection;
pub(crate) mod health;
mod own_request;
pub(crate) mod probes;
pub(crate) mod request_steps;
pub(crate) mod run;
pub(crate) mod source;
pub(crate) mod ticker;
pub(crate) mod tls_files;
pub(crate) mod trace_export;
