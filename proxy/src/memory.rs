//! Gives memory back to the system after a burst.
//!
//! The C allocator keeps what was freed. After thousands of connections that is tens of megabytes,
//! which on an edge server belong to somebody else.

use std::time::{Duration, Instant};

/// So many connections must have closed for a look at the heap to be worth it.
const WORTH: usize = 32;
/// While connections keep closing, the heap is looked at no more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// Decides when to give memory back.
#[derive(Debug)]
pub(crate) struct Memory {
    closed: usize,
    last: Instant,
}

impl Memory {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            closed: 0,
            last: now,
        }
    }

    /// To be called about once a second with the connections closed since the last call.
    pub(crate) fn tick(&mut self, closed: usize, now: Instant) {
        self.closed += closed;
        let quiet = closed < WORTH;
        if self.closed >= WORTH && (quiet || now - self.last >= AT_MOST_EVERY) {
            give_back();
            self.closed = 0;
            self.last = now;
        }
    }
}

/// Asks the allocator for fewer arenas than it likes: one for each thread that allocates much.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub(crate) fn limit_arenas(threads: usize) {
    let arenas = libc::c_int::try_from(threads).unwrap_or(libc::c_int::MAX);
    // SAFETY: mallopt changes parameters of the allocator and has no other requirement.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, arenas);
    }
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn limit_arenas(_threads: usize) {}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn give_back() {
    // SAFETY: malloc_trim takes the allocator's own locks and has no other requirement.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
fn give_back() {}
