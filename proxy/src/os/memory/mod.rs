//! Returns memory to the system after a burst.
//!
//! The allocator is jemalloc, because it keeps objects of one size together. The memory of thousands of busy
//! connections is interspersed with that of thousands of idle ones, and the C library's allocator could not return
//! such holes to the system (measured: 5.2 kB per idle connection instead of 1.9). Its free pages decay only while
//! the program allocates, so this module purges them after a burst.

mod budget;
mod files;
mod heap;
mod holders;
mod resident;

use std::time::{Duration, Instant};

use tikv_jemalloc_sys as jemalloc;

pub(crate) use budget::{Budget, Level, Metrics as BudgetMetrics};
pub(crate) use holders::{
    Holders, adopt, guard, guard_stream, is_resetting, leave, level, poll_read, read_limit,
    reading, rebase,
};
pub(crate) use resident::own as in_use;

/// Held by tests that compare the process's memory before and after an action.
#[cfg(test)]
pub(crate) static MEASURING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Minimum number of connections that must have released their buffers for a purge.
pub(crate) const WORTH: usize = 32;
/// Minimum interval between purges while connections keep releasing buffers.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// Growth of the memory in use beyond the heaps, in bytes, that causes a purge regardless of its origin.
const WORTH_BYTES: u64 = 4 << 20;

/// Number of quiet ticks after a purge after which a burst is considered over.
const SETTLED: u8 = 4;

/// Limits the bytes of the program's files that become resident at a page fault. To be called before anything else: the start
/// needs little of each part of the code.
pub fn limit_fault_around() {
    files::Mapped::get();
}

/// Drops the resident pages of the program's files, between steps of the start: each needs much code that the next ones do
/// not need.
pub fn forget_start() {
    files::Mapped::get().forget();
}

/// Returns free memory to the system now.
pub(crate) fn purge() {
    control(b"arena.4096.purge\0");
}

/// Decides when to return memory to the system.
#[derive(Debug)]
pub(crate) struct Memory {
    released: usize,
    /// Bytes in use beyond the heaps after the last purge.
    beyond: u64,
    last: Instant,
    /// Number of ticks since the last purge; `None` when the burst is over.
    settling: Option<u8>,
    files: files::Watch,
}

impl Memory {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            released: 0,
            beyond: 0,
            last: now,
            settling: None,
            files: files::Watch::new(now),
        }
    }

    /// Called about once a second with the number of connections that released their buffers since the last
    /// call, and the size of all heaps in bytes.
    pub(crate) fn tick(&mut self, released: usize, allocated: i64, now: Instant) {
        self.purge_if_worth(allocated);
        self.released += released;
        let quiet = released < WORTH;
        if self.released >= WORTH && (quiet || now - self.last >= AT_MOST_EVERY) {
            purge();
            self.released = 0;
            self.last = now;
            self.settling = Some(0);
        } else if quiet && let Some(ticks) = &mut self.settling {
            // The rest of a burst is freed in small amounts as pools are trimmed and timers expire.
            *ticks += 1;
            let over = *ticks == SETTLED;
            if over || *ticks == SETTLED / 2 {
                purge();
            }
            if over {
                self.settling = None;
                self.files.settle(now);
            }
        }
        if resident::files().is_some_and(|files| self.files.look(files, now)) {
            files::Mapped::get().forget();
        }
    }
}

impl Memory {
    /// Purges if much memory is free, which a few connections may have held.
    fn purge_if_worth(&mut self, allocated: i64) {
        let allocated = u64::try_from(allocated).unwrap_or(0);
        let beyond = || in_use().map_or(0, |used| used.saturating_sub(allocated));
        let now = beyond();
        if now > self.beyond + WORTH_BYTES {
            purge();
            self.beyond = beyond();
        } else {
            self.beyond = self.beyond.min(now);
        }
    }
}

/// Empties the calling thread's cache of free objects, so that a purge finds them.
pub(crate) fn flush_thread_cache() {
    control(b"thread.tcache.flush\0");
}

/// Runs a jemalloc command without argument and result. 4096 denotes all arenas.
#[allow(unsafe_code)]
fn control(command: &'static [u8]) {
    let nothing = std::ptr::null_mut;
    // SAFETY: the name ends in a null byte, and no value is read or written. Where jemalloc is not
    // the allocator of the program, it has nothing to purge.
    unsafe {
        jemalloc::mallctl(
            command.as_ptr().cast(),
            nothing(),
            nothing().cast(),
            nothing(),
            0,
        );
    }
}
