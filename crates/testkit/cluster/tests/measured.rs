//! Measurements on a real Kubernetes, which take minutes and print tables: `cargo test -p maglor-testkit --test measured
//! MODULE:: -- --ignored --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "the tests of main.rs use the rest of it")]
mod support;

mod arrivals;
mod auto;
mod auto_namespace;
mod controller_attacks;
mod graphs;
mod proxied_bytes;
mod saving;
