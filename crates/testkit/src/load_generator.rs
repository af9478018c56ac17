//! The load generator: loops that send requests and measure latencies, for any client of one request at a time.
//!
//! A closed loop ([`closed`]) is a number of users, each of which waits for its response, thinks, and sends the next
//! request; its latency counts from the send. In an open loop ([`open`]) requests are due at times that do not depend
//! on responses, and the latency counts from when a request was **due**: a stalled server cannot hide its delay by
//! slowing the generator down (coordinated omission).
//!
//! Everything runs in a `LocalSet` on one thread. [`Session`] is the client, [`Observer`] receives the results;
//! [`http::Client`] and [`record::Record`] are those of `maglor-lab load`, the benchmarks have their own.

#![deny(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a program of operators, too: `maglor-lab load`"
)]

mod alarm;
mod clock;
pub mod closed;
pub mod http;
pub mod open;
pub mod record;
pub mod tls;

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

pub use clock::Clock;

/// A client with one request at a time.
pub trait Session: 'static {
    /// The failure of a request.
    type Error: fmt::Display;

    /// Sends one request and reads its whole response.
    fn round_trip(&mut self) -> impl Future<Output = Result<(), Self::Error>>;
}

/// A request that has ended.
#[derive(Debug, Clone, Copy, Eq, PartialEq)]
pub struct Sample {
    /// When it was due; in a closed loop, when it was sent.
    pub due: Instant,
    /// When the last byte of its response had arrived, or when it failed.
    pub ended: Instant,
}

impl Sample {
    /// Returns the time from when it was due to its end.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }
}

/// Receives the results of a run, in the order of their ends.
pub trait Observer: 'static {
    /// Receives the result of a request; `Break` ends its session.
    fn ended<E: fmt::Display>(&self, sample: Sample, result: Result<(), E>) -> ControlFlow<()>;

    /// Receives a request that was due and not sent, because too many were waiting for its session.
    fn missed(&self, due: Instant);
}
