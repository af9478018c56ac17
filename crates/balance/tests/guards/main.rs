//! Properties of the guards, over random schedules, against models, and with concurrent threads. `SEED` replays a
//! run.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod adaptive;
mod breaker;
mod budget;
mod concurrency;
mod difference;
mod limits;
mod outlier;
mod rate;
mod retry;
#[path = "../support/mod.rs"]
mod support;
mod together;

use maglor_balance::Time;

/// `millis` after the epoch.
fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}
