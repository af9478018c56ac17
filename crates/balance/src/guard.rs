//! What stands between a request and trouble: whether to try again, whom to leave out, whom to let
//! in. One guard a file; none knows another.
//!
//! Like policies, guards do no I/O, read no clock and draw no global randomness: time ([`Time`]) and
//! chance ([`Rng`]) are arguments, so that the simulator runs the code of the proxy. What a guard
//! wants to be known (an ejection, a breaker that opened) it returns as a value.
//!
//! Where the state of each lives, and what a request without failure pays:
//!
//! | guard | state | cost of a good request |
//! | --- | --- | --- |
//! | [`budget`] | one a cluster, shared by all threads | one addition |
//! | [`limits`] | one a cluster and one an endpoint, shared | two atomic swaps |
//! | [`outlier`] | a monitor an endpoint, shared; one detector with a single owner | one addition |
//! | [`breaker`] | one a cluster, shared, off unless asked for | one load, one addition |
//! | [`concurrency`] | one a cluster, shared, off unless asked for | two additions |
//! | [`rate`] | one a listener or route, shared, off unless asked for | one atomic swap; with keys a short lock |
//! | [`retry`] | a value of the request | nothing |
//! | [`fault`], [`split`] | none | a draw, where asked for |
//! | [`health`] | one checker an endpoint, one owner | nothing |
//!
//! All that is on by default takes 43 ns of a good request together (`cargo bench -p maglor-balance
//! --bench guards`, one thread, a shared two-core machine).
//!
//! Shared means `Arc` and atomics: what these guards promise (never more than …) holds over all
//! workers of a process, which counters of single threads could not promise. Their orderings are
//! `Relaxed` unless said otherwise: each word is complete in itself and publishes nothing else.
//!
//! [`Time`]: crate::Time
//! [`Rng`]: crate::Rng

pub mod breaker;
pub mod budget;
pub mod concurrency;
pub mod fault;
mod grpc;
pub mod health;
pub mod limits;
pub mod outlier;
mod percent;
pub mod rate;
pub mod retry;
pub mod split;

pub use grpc::GrpcStatus;
pub use percent::Percent;
