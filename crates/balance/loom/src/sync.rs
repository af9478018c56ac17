//! Replaces the module of this name in maglor-balance.

pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
pub(crate) use loom::sync::{Mutex, MutexGuard};
