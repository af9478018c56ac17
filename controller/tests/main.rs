//! The tests of the controller, in one program with a module for each file: a program for each would compile `support`
//! and link the client of Kubernetes forty times.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

// Functions of the library: what an index makes of resources, and what operators decide.
mod accepted;
mod any_input;
mod crds;
mod dashboard_http;
mod documented_yaml;
mod documents;
mod index;
mod index_order;
mod placement;
mod proxy_group;
mod proxy_service;

// The program, with a folder of resources or a simulated API server, and real proxies.
mod admin_access;
mod attacks;
mod certify;
mod dashboard;
mod folder;
mod gateway;
mod graph;
mod hostile;
mod idle;
mod members;
mod mesh;
mod mesh_routes;
mod outage_matrix;
mod outages;
mod reconnect;
mod runbooks;
mod shared_proxies;
mod signer;

// With a real Kubernetes or Prometheus: `cargo xtask e2e`.
mod insertion;
mod kubernetes;
mod kubernetes_attacks;
mod kubernetes_hostile;
mod kubernetes_identity;
mod kubernetes_outages;
mod kubernetes_reconcile;
mod kubernetes_signer;
mod prometheus;
