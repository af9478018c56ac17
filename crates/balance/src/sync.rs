//! What guards share between threads.
//!
//! The package `loom` beside this one compiles the guards with another module of this name, and
//! runs them in every order in which threads may meet.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
