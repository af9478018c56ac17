//! Support for the tests of Maglor. A dev-dependency only: the proxy never links it.
//!
//! # Layout
//!
//! - [`app`]: emulated applications of many services, after µBench.
//! - [`upstream`]: an HTTP server whose behaviour is selected by the path of a request, and that
//!   records requests.
//! - [`raw`]: HTTP/1.1 written by hand: a strict client and a server that may break any rule.
//! - [`browser`]: a real Chromium, for tests of pages.
//! - [`certs`]: a certificate authority and certificates, in memory and in files.
//! - `cluster`: a real Kubernetes of several nodes on this machine; feature `cluster`.
//! - [`hostile`]: hostile input as tables, and their runners.
//! - [`listed_pages`]: the pages of an admin port.
//! - [`load_generator`]: users and open loops with due times, HTTP and gRPC clients, latencies; also that of
//!   `maglor-lab load` and of the benchmarks.
//! - [`process`]: the real `maglor-proxy` as a child process.
//! - [`Load`]: clients that send requests without pause, and report every failure.
//! - [`netns`]: network namespaces as hosts, with delays between them.
//! - [`pattern`]: long bodies that need no memory and can be checked.
//! - [`mod@pty`]: terminals, for programs that want one.
//! - [`wait`] and [`seed()`]: waiting for conditions without sleeping, reproducible randomness;
//!   `property`, the same for properties.
//!
//! Everything binds port 0, has a deadline ([`TIMEOUT`]) and ends when its value is dropped.
//! Helpers panic with a message that states what was expected, at the line of the test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this crate exists for tests, and a test fails by panicking"
)]

use std::time::Duration;

pub mod app;
pub mod browser;
pub mod certs;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod hostile;
mod index;
mod load;
pub mod load_generator;
pub mod netns;
pub mod pattern;
pub mod process;
#[cfg(feature = "property")]
pub mod property;
pub mod pty;
pub mod raw;
mod seed;
pub mod upstream;
pub mod wait;

pub use certs::{Authority, Identity};
pub use index::listed_pages;
pub use load::Load;
pub use process::{Proxy, ProxyBuilder};
pub use raw::{RawConnection, RawHttp1, RawResponse, RawServer};
pub use seed::seed;
pub use upstream::{Answer, Recorded, Upstream};
pub use wait::eventually;

/// The deadline of every wait for a peer.
///
/// Far above the time that a loaded machine needs, so that it is only ever reached by a bug.
pub const TIMEOUT: Duration = Duration::from_secs(10);
