//! Size of a thread's heap, from the allocator's own counters.
//!
//! jemalloc counts what each thread allocates and frees in any case. So two loads suffice to determine the memory of
//! a worker, including that of libraries.

use std::cell::Cell;
use std::ptr;

use tikv_jemalloc_sys as jemalloc;

/// Addresses of jemalloc's counters for the calling thread, in bytes.
#[derive(Clone, Copy)]
struct Counters {
    allocated: *const u64,
    freed: *const u64,
}

/// Counter that stays 0, for programs with another allocator.
static NOTHING: u64 = 0;

thread_local! {
    static COUNTERS: Cell<Option<Counters>> = const { Cell::new(None) };
}

/// Returns the bytes that the calling thread has allocated minus those that it has freed. For memory that one thread
/// allocates and another frees, only the sum over both threads is correct.
#[allow(unsafe_code)]
pub(crate) fn balance() -> i64 {
    let Counters { allocated, freed } = COUNTERS.get().unwrap_or_else(find);
    // SAFETY: both point to aligned counters that live as long as the calling thread, or to `NOTHING`; only this thread
    // writes them, inside of the allocator, hence volatile.
    let (allocated, freed) = unsafe { (ptr::read_volatile(allocated), ptr::read_volatile(freed)) };
    allocated.wrapping_sub(freed).cast_signed()
}

/// Returns the total number of bytes that the calling thread has allocated, freed or not.
#[allow(unsafe_code)]
pub(crate) fn turnover() -> u64 {
    let Counters { allocated, .. } = COUNTERS.get().unwrap_or_else(find);
    // SAFETY: as in `balance`.
    unsafe { ptr::read_volatile(allocated) }
}

#[cold]
fn find() -> Counters {
    let counters = Counters {
        allocated: counter(b"thread.allocatedp\0"),
        freed: counter(b"thread.deallocatedp\0"),
    };
    COUNTERS.set(Some(counters));
    counters
}

#[allow(unsafe_code)]
fn counter(name: &'static [u8]) -> *const u64 {
    let mut found: *const u64 = ptr::null();
    let mut length = size_of_val(&found);
    // SAFETY: the name ends in a null byte; the call writes one pointer into a place of that size.
    let failed = unsafe {
        jemalloc::mallctl(
            name.as_ptr().cast(),
            (&raw mut found).cast(),
            &raw mut length,
            ptr::null_mut(),
            0,
        )
    };
    if failed == 0 && !found.is_null() {
        found
    } else {
        &raw const NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn what_a_thread_holds_is_counted() {
        let before = balance();
        // SAFETY: allocated and freed by the same allocator, and not used.
        let grown = unsafe {
            let block = jemalloc::malloc(1 << 20);
            let grown = balance() - before;
            jemalloc::free(block);
            grown
        };
        assert!(
            (1 << 20..(1 << 20) + (64 << 10)).contains(&grown),
            "{grown}"
        );
        assert_eq!(balance(), before);
    }
}
