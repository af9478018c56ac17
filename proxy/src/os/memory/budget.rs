//! A declared budget of memory, and what is done to stay within it.
//!
//! Three things grow with what clients do: connections, bodies that are kept to be sent again, and whatever
//! requests hold while they are under way. The first two have shares of the budget that are never exceeded. The
//! third is known at any moment from the sizes of the threads' heaps ([`super::heap`]), and the nearer it comes to the
//! budget ([`Level`]), the less is taken in: bodies are read in small pieces and not ahead of their readers, then
//! connections that hold more than others get 503 for their requests, then the largest holders are reset
//! ([`super::holders`]), at last every request gets 503 with `retry-after` and connections wait in the backlog.
//!
//! In use is what only this process has in memory: neither the pages of its program file, which the system can
//! drop, nor the socket buffers of the kernel. That is more than the heaps: stacks, pages that are not full or not yet
//! given back. How much more is measured some times a second and left aside.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use maglor_telemetry::{Counter, Gauge};

use super::{heap, in_use, purge};

/// What the process needs without any client: tables, certificates, stacks.
const BASE: u64 = 6 << 20;
/// What a connection is reckoned with: it needs about this much when it is idle and was busy just now. What it takes
/// while it is busy counts as it is.
const CONNECTION: u64 = 4 << 10;
/// Connections that are allowed however small the budget.
const LEAST_CONNECTIONS: u64 = 64;
/// Share of the budget, in percent, that bodies kept for a repetition may take.
const KEPT: u64 = 20;
/// Nothing new is taken in above the first of these percentages, until the use is below the second.
const SHED: u64 = 95;
const RELAX: u64 = 85;
/// Above this percentage of the budget in use, free memory is given back while an attack goes on.
const TRIM: u64 = 75;
/// Into so many parts the budget is divided for that.
const STEPS: u64 = 16;

/// Of what the heaps may take, in percent: above this, bodies are read in small pieces,
const PRESSED: i64 = 45;
/// requests of large holders are refused,
const SHORT: i64 = 62;
/// the largest holders are reset until the use is at `SHORT` again,
const OVER: i64 = 74;
/// and every request is refused.
const FULL: i64 = 90;
/// What the process needs beyond its heaps at the least, in bytes.
const LEAST_OVERHEAD: i64 = 1 << 20;

/// How short memory is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Level {
    Free,
    Pressed,
    Short,
    Over,
    Full,
}

/// The heap of one thread, in a cache line of its own: it is written whenever a task has been polled.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Heap(AtomicI64);

/// See the module's documentation. All accesses are `Relaxed`: limits that are passed by one are passed by
/// one.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In bytes; `u64::MAX` = none.
    limit: AtomicU64,
    shedding: AtomicBool,
    connections: AtomicU64,
    kept: AtomicU64,
    /// Of each worker, and of the control thread at the end.
    heaps: Box<[Heap]>,
    /// Memory in use that is not in the heaps, in bytes, as it was last measured.
    overhead: AtomicI64,
    metrics: Metrics,
}

/// What is counted of it.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) limit: Gauge,
    pub(crate) heap: Gauge,
    pub(crate) used: Gauge,
    /// Bodies kept to be sent again.
    pub(crate) kept: Gauge,
    /// Requests answered with 503.
    pub(crate) requests: Counter,
    /// Times that accepting had to wait.
    pub(crate) connections: Counter,
    /// Bodies that were not kept.
    pub(crate) bodies: Counter,
    /// Streams and connections that were reset.
    pub(crate) holders: Counter,
}

impl Budget {
    /// Without a limit, for so many workers.
    pub(crate) fn new(metrics: Metrics, workers: usize) -> Self {
        Self {
            limit: AtomicU64::new(u64::MAX),
            shedding: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            heaps: (0..=workers).map(|_| Heap::default()).collect(),
            overhead: AtomicI64::new(LEAST_OVERHEAD),
            metrics,
        }
    }

    /// Sets it, in bytes; `None` = there is none.
    pub(crate) fn set(&self, limit: Option<u64>) {
        self.limit
            .store(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.metrics
            .limit
            .set(limit.map_or(0, |limit| i64::try_from(limit).unwrap_or(i64::MAX)));
        if limit.is_none() {
            self.shedding.store(false, Ordering::Relaxed);
        }
    }

    fn limit(&self) -> Option<u64> {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit != u64::MAX).then_some(limit)
    }

    /// Whether there is one.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit().is_some()
    }

    /// Looks at the memory in use; to be called some times a second by the control thread. Near the limit free
    /// memory is given back to the system by `purge` before anything is refused.
    pub(crate) fn watch(&self, used: impl Fn() -> Option<u64>, purge: impl FnOnce()) {
        let Some((limit, mut now)) = self.limit().and_then(|limit| Some((limit, used()?))) else {
            return;
        };
        let percent = |used: u64| used.saturating_mul(100) / limit.max(1);
        if percent(now) >= RELAX {
            purge();
            now = used().unwrap_or(now);
        }
        self.metrics
            .used
            .set(i64::try_from(now).unwrap_or(i64::MAX));
        self.publish_control();
        self.measured(now);
        let before = self.shedding.load(Ordering::Relaxed);
        let shedding = percent(now) >= if before { RELAX } else { SHED };
        if shedding == before {
            return;
        }
        self.shedding.store(shedding, Ordering::Relaxed);
        if shedding {
            tracing::warn!(
                used = now,
                limit,
                "memory budget reached; refusing requests"
            );
        } else {
            tracing::info!(
                used = now,
                limit,
                "memory budget: requests are served again"
            );
        }
    }

    /// So many bytes are in use: what is not in the heaps is left aside from now on.
    fn measured(&self, used: u64) {
        let overhead = i64::try_from(used).unwrap_or(i64::MAX) - self.allocated();
        self.overhead.store(overhead, Ordering::Relaxed);
    }

    /// After how many bytes that a worker has allocated it looks at the memory in use, where there is a limit.
    pub(crate) fn step(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) / STEPS
    }

    /// Measures the memory in use, and returns what is free of it where that is near the limit. To be called by
    /// workers after each [`Budget::step`], which is sooner than the control thread's turn under an attack.
    pub(crate) fn trim(&self) {
        let Some((limit, mut now)) = self.limit().and_then(|limit| Some((limit, in_use()?))) else {
            return;
        };
        if now / limit.div_ceil(100) >= TRIM {
            purge();
            now = in_use().unwrap_or(now);
        }
        self.measured(now);
    }

    /// Makes known how large a thread's heap is, in bytes.
    pub(crate) fn publish(&self, shard: usize, bytes: i64) {
        if let Some(heap) = self.heaps.get(shard) {
            heap.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// Makes known how large the heap of the control thread is, which calls it.
    pub(crate) fn publish_control(&self) {
        self.publish(self.heaps.len() - 1, heap::balance());
        self.metrics.heap.set(self.allocated());
        let kept = self.kept.load(Ordering::Relaxed);
        self.metrics
            .kept
            .set(i64::try_from(kept).unwrap_or(i64::MAX));
    }

    /// Bytes of all heaps together, as far as threads have made them known.
    pub(crate) fn allocated(&self) -> i64 {
        let heaps = self.heaps.iter();
        heaps.map(|heap| heap.0.load(Ordering::Relaxed)).sum()
    }

    /// What the heaps may take, in bytes, where there is a limit.
    fn usable(&self) -> i64 {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let overhead = self.overhead.load(Ordering::Relaxed);
        limit - overhead.clamp(LEAST_OVERHEAD.min(limit / 2), limit / 2)
    }

    /// How short memory is. Holders that were told to end count until they have ended.
    pub(crate) fn level(&self) -> Level {
        let percent = self.allocated().saturating_mul(100) / self.usable().max(1);
        match percent {
            FULL.. => Level::Full,
            OVER.. => Level::Over,
            SHORT.. => Level::Short,
            PRESSED.. => Level::Pressed,
            _ => Level::Free,
        }
    }

    /// Bytes that have to be freed for requests of large holders to be let in again.
    pub(crate) fn excess(&self) -> i64 {
        self.allocated() - self.usable() / 100 * SHORT
    }

    /// Whether the memory in use was near the limit when it was last measured.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedding.load(Ordering::Relaxed)
    }

    /// A request was turned away.
    pub(crate) fn count_refused(&self) {
        self.metrics.requests.add_shared(1);
    }

    /// So many streams and connections were reset.
    pub(crate) fn count_reset(&self, holders: u64) {
        self.metrics.holders.add_shared(holders);
    }

    /// Whether another connection may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        let Some(limit) = self.limit() else {
            return true;
        };
        let most = (limit.saturating_sub(BASE) / CONNECTION).max(LEAST_CONNECTIONS);
        let room = self.connections.load(Ordering::Relaxed) < most
            && !self.shedding.load(Ordering::Relaxed);
        if !room {
            self.metrics.connections.add_shared(1);
        }
        room
    }

    /// A connection was accepted.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has gone.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks for so many more bytes of a body to be kept; whoever gets them returns them.
    pub(crate) fn keep(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let before = self.kept.fetch_add(bytes, Ordering::Relaxed);
        let most = self.limit().map_or(u64::MAX, |limit| limit / 100 * KEPT);
        let fits = before.saturating_add(bytes) <= most;
        if !fits {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
            self.metrics.bodies.add_shared(1);
        }
        fits
    }

    /// Returns what was kept.
    pub(crate) fn release(&self, bytes: usize) {
        self.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget(limit: Option<u64>) -> Budget {
        let budget = Budget::new(crate::telemetry::metrics::Metrics::new(1).memory(), 1);
        budget.set(limit);
        budget
    }

    #[test]
    fn nothing_new_is_taken_in_near_the_limit_until_it_is_far_again() {
        let budget = budget(Some(100 * MIB));
        let purged = std::cell::Cell::new(0);
        for (used, purges, sheds) in [
            (50, 0, false),
            (90, 1, false),
            (95, 2, true),
            (86, 3, true),
            (84, 3, false),
            (90, 4, false),
        ] {
            budget.watch(|| Some(used * MIB), || purged.set(purged.get() + 1));
            assert_eq!(purged.get(), purges, "{used}");
            assert_eq!(budget.is_shedding(), sheds, "{used}");
            assert_eq!(budget.has_room(), !sheds, "{used}");
        }
        // What can be given back is no reason to refuse anything.
        let used = std::cell::Cell::new(99);
        budget.watch(|| Some(used.get() * MIB), || used.set(80));
        assert!(!budget.is_shedding());
        budget.watch(|| Some(99 * MIB), || {});
        assert!(budget.is_shedding());
        budget.set(None);
        budget.watch(|| Some(999 * MIB), || {});
        assert!(!budget.is_shedding());
    }

    #[test]
    fn connections_and_kept_bodies_have_their_shares() {
        let small = budget(Some(8 * MIB));
        (0..512).for_each(|_| small.connected());
        assert!(!small.has_room(), "(8 − 6) MiB / 4 KiB");
        small.disconnected();
        assert!(small.has_room());
        assert!(
            small.keep(1 << 20) && !small.keep(1 << 20),
            "a fifth of 8 MiB"
        );
        small.release(1 << 20);
        assert!(small.keep(1 << 20));
        assert!(budget(None).keep(usize::MAX / 2));
    }

    #[test]
    fn levels_follow_the_heaps_and_what_is_in_use_besides() {
        let budget = budget(Some(101 * MIB));
        let mib = |bytes: u64| i64::try_from(bytes * MIB).unwrap();
        for (bytes, level) in [
            (44, Level::Free),
            (45, Level::Pressed),
            (62, Level::Short),
            (74, Level::Over),
            (90, Level::Full),
        ] {
            budget.publish(0, mib(bytes));
            assert_eq!(budget.level(), level, "{bytes}");
        }
        assert_eq!(budget.excess(), mib(28));
        // A third of what is in use is not in the heaps.
        budget.publish(0, mib(40));
        budget.watch(|| Some(71 * MIB), || {});
        assert_eq!(budget.level(), Level::Pressed, "40 of 70");
        budget.set(None);
        assert!(!budget.is_limited());
    }

    #[test]
    fn the_system_says_what_is_in_use() {
        let _alone = crate::os::memory::MEASURING.blocking_lock();
        let before = in_use().unwrap();
        let block = vec![1_u8; 64 << 20];
        let with = in_use().unwrap();
        assert!(with >= before + (60 << 20), "{before} {with} {}", block[7]);
    }
}
