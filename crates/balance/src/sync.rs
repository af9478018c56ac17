//! The synchronization primitives of guards.
//!
//! The separate package `loom` compiles the guards with another module of this name, and tests them under all
//! interleavings of threads.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
