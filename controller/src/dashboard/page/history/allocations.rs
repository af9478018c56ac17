//! Counts the bytes that the present thread has allocated, for tests of memory.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that ends no longer counts.
    let _ = BYTES.try_with(|all| all.set(all.get().wrapping_add(bytes)));
}

// SAFETY: all calls are passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the bytes that this thread has allocated and not freed.
pub(super) fn present() -> isize {
    BYTES.with(Cell::get)
}
