//! Gives memory back to the system after a burst.
//!
//! The allocator is jemalloc, because it keeps objects of one size together: what thousands of busy
//! connections held lies between what thousands of idle ones still hold, and with the C library's
//! allocator such holes could not be given back (measured: 5.2 kB an idle connection instead of
//! 1.9). Its free pages decay by themselves only while the program allocates, so after a burst they
//! are purged from here.

use std::time::{Duration, Instant};

use tikv_jemalloc_sys as jemalloc;

/// So many connections must have given up their buffers for a purge to be worth it.
pub(crate) const WORTH: usize = 32;
/// While that goes on, the heap is purged no more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// Decides when to give memory back.
#[derive(Debug)]
pub(crate) struct Memory {
    released: usize,
    last: Instant,
}

impl Memory {
    pub(crate) fn new(now: Instant) -> Self {
        Self { released: 0, last: now }
    }

    /// To be called about once a second with the connections that gave up their buffers since.
    pub(crate) fn tick(&mut self, released: usize, now: Instant) {
        self.released += released;
        let quiet = released < WORTH;
        if self.released >= WORTH && (quiet || now - self.last >= AT_MOST_EVERY) {
            control(b"arena.4096.purge\0");
            forget_code();
            self.released = 0;
            self.last = now;
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
        jemalloc::mallctl(command.as_ptr().cast(), nothing(), nothing().cast(), nothing(), 0);
    }
}

/// Lets the system forget the pages of code that only the start (or a reload) needed: parsers, TLS
/// set-up, argument handling. They are clean and come back from the file should they be needed
/// again; until then they do not count as ours, and for a small sidecar they are most of it.
pub(crate) fn forget_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (start, end) in maps.lines().filter_map(code_of_a_file) {
        forget(start, end);
    }
}

/// The range of a file's code or of its beginning, where constants are. Neither is ever written,
/// hence never dirty; what the loader writes before it makes it read-only lies further behind.
fn code_of_a_file(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2)?;
    let begins = offset.bytes().all(|digit| digit == b'0');
    let constant = permissions == "r-xp" || (permissions == "r--p" && begins);
    if !constant || !path.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[allow(unsafe_code)]
fn forget(start: usize, end: usize) {
    let at = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is a private, read-only mapping of a file (see `code_of_a_file`). Its pages
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
            assert_eq!(code_of_a_file(code), Some((0x7f00, 0x7f10)));
        }
        for other in [
            "7f00-7f10 r--p 00001000 fe:00 12 /usr/bin/true",
            "7f00-7f10 rw-p 00001000 fe:00 12 /usr/bin/true",
            "7f00-7f10 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_of_a_file(other), None, "{other}");
        }
    }

    #[test]
    fn code_comes_back_when_it_is_called() {
        forget_code();
        assert_eq!("12".parse::<u32>(), Ok(12));
    }
}
