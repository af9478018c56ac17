//! The guards of maglor-balance, compiled with loom's atomics; the checks are in `tests`.
//!
//! Their sources are links to those of the package above, except for `sync`.
#![allow(
    dead_code,
    unused_imports,
    reason = "parts of another package, which checks them"
)]

pub mod guard;
mod hash;
mod rng;
mod sync;
mod time;

pub use rng::Rng;
pub use time::Time;
