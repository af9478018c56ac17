//! The tests on a real Kubernetes, in one program with a module for each file: `cargo xtask e2e`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

mod admin_ports;
mod dashboard;
mod e2e;
mod gateway;
mod lifecycle;
mod live_graph;
mod mesh;
mod placement;
mod proxy_group;
mod proxy_service;
mod traces;
mod tuning;
mod webhooks;
