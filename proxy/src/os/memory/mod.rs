//! Gives memory back to the system after a burst.
//!
//! The allocator is jemalloc, because it keeps objects of one size together: what thousands of busy
//! connections held lies between what thousands of idle ones still hold, and with the C library's
//! allocator such holes could not be given back (measured: 5.2 kB an idle connection instead of
//! 1.9). Its free pages decay by themselves only while the program allocates, so after a burst they
//! are purged from here.

mod budget;
mod files;
mod heap;
mod holders;
mod resident;

use std::time::{Duration, Instant};

use tikv_jemalloc_sys as jemalloc;

pub(crate) use budget::{Budget, Level, Metrics as BudgetMetrics};
pub(crate) use holders::{
    Holders, Stake, adopt, current, guard, guard_stream, is_resetting, leave, level, poll_read,
    read_limit, reading, rebase,
};
pub(crate) use resident::own as in_use;

/// Held by tests that compare what the process has in memory before and after something.
#[cfg(test)]
pub(crate) static MEASURING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// So many connections must have given up their buffers for a purge to be worth it.
pub(crate) const WORTH: usize = 32;
/// While that goes on, the heap is purged no more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// So much more in use than in the heaps, in bytes, is worth a purge, whatever it was of.
const WORTH_BYTES: u64 = 4 << 20;

/// So many quiet ticks after a purge nothing of a burst is left.
const SETTLED: u8 = 4;

/// Gives free memory back now.
pub(crate) fn purge() {
    control(b"arena.4096.purge\0");
}

/// Decides when to give memory back.
#[derive(Debug)]
pub(crate) struct Memory {
    released: usize,
    /// Bytes in use beyond the heaps that a purge has left.
    beyond: u64,
    last: Instant,
    /// Ticks since the last purge, while what follows a burst is not over.
    settling: Option<u8>,
    files: files::Watch,
    mapped: files::Mapped,
}

impl Memory {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            released: 0,
            beyond: 0,
            last: now,
            settling: None,
            files: files::Watch::new(now),
            mapped: files::Mapped::find(),
        }
    }

    /// To be called about once a second with the connections that gave up their buffers since, and the bytes of all
    /// heaps.
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
            // The last of a burst goes in small pieces: pools are trimmed, timers run out.
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
            self.mapped.forget();
        }
    }
}

impl Memory {
    /// Few connections may have held much: what is free is measured, too.
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

/// A command of jemalloc's that takes and gives nothing. 4096 stands for all arenas.
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
