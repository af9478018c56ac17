//! The memory of a series, counted by the allocator: an idle proxy must stay small.
#![allow(
    unsafe_code,
    reason = "a global allocator cannot be written without it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use maglor_telemetry::{Buckets, Registry};

thread_local! {
    /// Bytes that this thread holds; only one thread of the test counts.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| held.set(held.get() + layout.size().cast_signed()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - layout.size().cast_signed()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `n` series cost each, handle included.
fn bytes_each<T>(n: usize, create: impl Fn(&str) -> T) -> isize {
    let names: Vec<_> = (0..n)
        .map(|n| format!("10.0.{}.{}:8080", n / 250, n % 250))
        .collect();
    let mut handles = Vec::with_capacity(n);
    let before = HELD.get();
    for name in &names {
        handles.push(create(name));
    }
    let heap = (HELD.get() - before) / n.cast_signed();
    drop(handles);
    heap + size_of::<T>().cast_signed()
}

#[test]
fn series_are_small_with_one_worker() {
    let registry = Registry::new(1);
    let labels = ["cluster", "endpoint"];
    let counters = registry.counter("a_total", "A.", &labels);
    let gauges = registry.gauge("b", "B.", &labels);
    let histograms = registry.histogram("c_seconds", "C.", &labels, Buckets::latency());

    let counter = bytes_each(1000, |endpoint| counters.with(&["web", endpoint]));
    let gauge = bytes_each(1000, |endpoint| gauges.with(&["web", endpoint]));
    let histogram = bytes_each(1000, |endpoint| histograms.with(&["web", endpoint]));
    println!("bytes a series: counter {counter}, gauge {gauge}, histogram {histogram}");
    assert!(counter < 200 && gauge < 200, "{counter} {gauge}");
    assert!(histogram < 500, "{histogram}");
}

#[test]
fn ended_series_give_their_memory_back() {
    let registry = Registry::new(4);
    let family = registry.histogram("c_seconds", "C.", &["endpoint"], Buckets::latency());
    let round = |registry: &Registry| {
        let handles: Vec<_> = (0..1000).map(|n| family.with(&[&n.to_string()])).collect();
        drop(handles);
        drop(registry.encode());
    };
    round(&registry);
    let before = HELD.get();
    round(&registry);
    assert_eq!(HELD.get(), before);
}
