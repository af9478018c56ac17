//! The tests of the real binary, in one program with a module for each file: a program for each would compile `support`
//! and link the same libraries seventy times.
//!
//! `flood_fairness` and `memory_attacks` are separate: they change limits and priorities of their own process, which
//! proxies of other tests would inherit.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

// Protocols on both sides.
mod delivery;
mod detect;
mod filter_chains;
mod grpc;
mod http1;
mod http1_attacks;
mod http1_endpoints;
mod http1_fields;
mod http1_limits;
mod http2;
mod http2_answers;
mod tcp;
mod tls;
mod trailers;
mod unix_sockets;
mod websocket;

// Routes, endpoints, and the balancing among them.
mod adaptive;
mod black_hole;
mod disturbed;
mod ejection;
mod health;
mod load_reports;
mod localities;
mod nodes;
mod pools;
mod queue;
mod queue_protocol;
mod queue_protocol_lies;
mod retries;
mod routing;
mod silent;
mod sticky;
mod weights;

// Limits, hostile peers, and the release of resources.
mod descriptors;
mod floods;
mod hostile;
mod leak_schedules;
mod leaks;
mod limits;
mod memory;
mod sidecar_memory;
mod slow_readers;
mod timeouts;

// Workloads of a mesh.
mod authorization;
mod delegates;
mod discovery;
mod discovery_bytes;
mod inbound;
mod init;
mod large_discovery;
mod mesh_tls;
mod multiplexed;
mod mux;
mod mux_frames;
mod redirect;
mod redirect_mesh;
mod service_command;
mod services;
mod sidecar_command;
mod sidecars;

// The process, its configuration, and what it shows to operators.
mod admin;
mod admin_access;
mod drain;
mod exemplars;
mod mistakes;
mod probes;
mod recipes;
mod reload;
mod startup;
mod tracing;
mod why;
mod workers;
