//! Protection against failures and overload: retries, ejection, limits and breakers. One guard per file; they are
//! independent of each other.
//!
//! Like policies, guards do no I/O, read no clock and use no global randomness: time ([`Time`]) and randomness
//! ([`Rng`]) are arguments, so that the simulator runs the code of the proxy. Events (an ejection, a breaker that
//! opened) are returned as values.
//!
//! The state of each guard, and its cost for a request without failure:
//!
//! | guard | state | cost of a good request |
//! | --- | --- | --- |
//! | [`retry_budget`] | one a cluster, shared by all threads | one addition |
//! | [`limits`] | one a cluster and one an endpoint, shared | two atomic swaps |
//! | [`outlier`] | a monitor an endpoint, shared; one detector with a single owner | one addition |
//! | [`breaker`] | one a cluster, shared, off by default | one load, one addition |
//! | [`concurrency`] | one a cluster, shared, off by default | two additions |
//! | [`rate`] | one a listener or route, shared, off by default | one atomic swap; with keys a short lock |
//! | [`retry`] | a value of the request | nothing |
//! | [`fault`], [`split`] | none | a draw, if enabled |
//! | [`health`] | one checker an endpoint, one owner | nothing |
//!
//! All guards that are on by default take 43 ns of a good request together
//! (`cargo bench -p maglor-balance --bench guards`, one thread, a shared two-core machine).
//!
//! Shared guards are behind an `Arc` and consist of atomics: their bounds hold over all workers of a process, which
//! counters of single threads could not guarantee. Memory orderings are `Relaxed` unless stated otherwise: each word is
//! complete in itself and publishes nothing else.
//!
//! [`Time`]: crate::Time
//! [`Rng`]: crate::Rng

pub mod breaker;
pub mod concurrency;
pub mod fault;
mod grpc;
pub mod health;
pub mod limits;
pub mod outlier;
mod percent;
pub mod rate;
pub mod retry;
pub mod retry_budget;
pub mod split;

pub use grpc::GrpcStatus;
pub use percent::Percent;
