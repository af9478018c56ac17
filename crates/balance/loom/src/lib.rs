//! The guards of maglor-balance, compiled against loom's atomics; `tests` has what is checked.
//!
//! Their sources are links to those of the package above, but for `sync`.
#![allow(
    dead_code,
    unused_imports,
    reason = "parts of another package, which looks after them"
)]

pub mod guard;
mod hash;
mod rng;
mod sync;
mod time;

pub use rng::Rng;
pub use time::Time;
