//! Gives memory back to the system after a burst.
//!
//! The allocator is jemalloc, because it keeps objects of one size together: what thousands of busy
//! connections held lies between what thousands of idle ones still hold, and with the C library's
//! allocator such holes could not be given back (measured: 5.2 kB an idle connection instead of
//! 1.9). Its free pages decay by themselves only while the program allocates, so after a burst they
//! are purged from here.

mod budget;

use std::time::{Duration, Instant};

use tikv_jemalloc_sys as jemalloc;

pub(crate) use budget::{Budget, Metrics as BudgetMetrics, in_use};

/// So many connections must have given up their buffers for a purge to be worth it.
pub(crate) const WORTH: usize = 32;
/// While that goes on, the heap is purged no more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// So many quiet ticks after a purge nothing of a burst is left.
const SETTLED: u8 = 4;

/// Gives free memory back now.
pub(crate) fn purge() {
    control(b"arena.4096.purge\0");
}

fn give_back() {
    purge();
    forget(Forget::All);
}

/// Decides when to give memory back.
#[derive(Debug)]
pub(crate) struct Memory {
    released: usize,
    last: Instant,
    /// Ticks since the last purge, while what follows a burst is not over.
    settling: Option<u8>,
}

impl Memory {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            released: 0,
            last: now,
            settling: None,
        }
    }

    /// To be called about once a second with the connections that gave up their buffers since.
    pub(crate) fn tick(&mut self, released: usize, now: Instant) {
        self.released += released;
        let quiet = released < WORTH;
        if self.released >= WORTH && (quiet || now - self.last >= AT_MOST_EVERY) {
            give_back();
            self.released = 0;
            self.last = now;
            self.settling = Some(0);
        } else if quiet && let Some(ticks) = &mut self.settling {
            // The last of a burst goes in small pieces: pools are trimmed, timers run out.
            *ticks += 1;
            let over = *ticks == SETTLED;
            if over || *ticks == SETTLED / 2 {
                give_back();
            }
            if over {
                self.settling = None;
            }
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

/// What of the program's files can be forgotten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Forget {
    /// Code and constants.
    All,
    /// Code only: what serves requests has its constants at hand.
    Code,
}

/// Lets the system forget the pages of files that only the start (or a reload, or a burst) needed:
/// parsers, TLS set-up, argument handling. They are clean and come back from the file should they
/// be needed again; until then they do not count as ours, and for a small sidecar they are most
/// of it.
pub(crate) fn forget(what: Forget) {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (start, end) in maps.lines().filter_map(|line| clean_range(line, what)) {
        drop_pages(start, end);
    }
}

/// The range of a file's code or of its beginning, where constants are. Neither is ever written,
/// hence never dirty; what the loader writes before it makes it read-only lies further behind.
fn clean_range(line: &str, what: Forget) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?;
    let begins = offset.bytes().all(|digit| digit == b'0');
    let constants = permissions == "r--p" && begins && what == Forget::All;
    if !(permissions == "r-xp" || constants) || !path.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[allow(unsafe_code)]
fn drop_pages(start: usize, end: usize) {
    let at = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is a private, read-only mapping of a file (see `clean_range`). Its pages
    // equal the file's, so dropping them changes no byte that anybody can read.
    unsafe {
        libc::madvise(at, end - start, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_the_beginning_of_files_can_be_forgotten() {
        for code in [
            "7f00-7f10 r-xp 00001000 fe:00 12 /usr/bin/true",
            "7f00-7f10 r--p 00000000 fe:00 12 /usr/bin/true",
        ] {
            assert_eq!(clean_range(code, Forget::All), Some((0x7f00, 0x7f10)));
            let is_code = code.contains("r-xp");
            assert_eq!(clean_range(code, Forget::Code).is_some(), is_code);
        }
        for other in [
            "7f00-7f10 r--p 00001000 fe:00 12 /usr/bin/true",
            "7f00-7f10 rw-p 00001000 fe:00 12 /usr/bin/true",
            "7f00-7f10 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(clean_range(other, Forget::All), None, "{other}");
        }
    }

    #[test]
    fn code_comes_back_when_it_is_called() {
        forget(Forget::All);
        assert_eq!("12".parse::<u32>(), Ok(12));
    }
}
