//! The memory budget, and the measures to stay within it.
//!
//! Three things grow with what clients do: connections, bodies buffered for retries, and memory held by requests in
//! progress. The first two have shares of the budget that are never exceeded. The third is always known from the
//! sizes of the threads' heaps ([`super::heap`]). The closer it is to the budget ([`Level`]), the less is accepted:
//! first, bodies are read in small pieces and not ahead of their readers; then requests on connections that hold more
//! memory than others get 503; then the largest holders are reset ([`super::holders`]); finally, every request gets
//! 503 with `retry-after`, and connections wait in the backlog.
//!
//! Memory in use is the process's private resident memory: neither the pages of its program file, which the system
//! can drop, nor the socket buffers of the kernel. It exceeds the size of the heaps by stacks and by pages that are
//! partly filled or not yet returned to the system. This overhead is measured several times a second and subtracted
//! from the budget.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use maglor_telemetry::{Counter, Gauge};

use super::{heap, in_use, purge};

/// Memory of the process without any client, in bytes: tables, certificates, stacks.
const BASE: u64 = 6 << 20;
/// Memory of a connection in bytes, for the limit on connections: about that of an idle connection that was recently
/// busy. The memory of a busy connection is measured.
const CONNECTION: u64 = 4 << 10;
/// Number of connections that are allowed regardless of the budget.
const LEAST_CONNECTIONS: u64 = 64;
/// Maximum share of bodies buffered for retries, in percent of the budget.
const KEPT: u64 = 20;
/// While shedding, nothing new is accepted. Shedding begins above the first and ends below the second of these
/// percentages of the budget.
const SHED: u64 = 95;
const RELAX: u64 = 85;
/// Percentage of the budget above which workers return free memory to the system.
const TRIM: u64 = 75;
/// Fraction of the budget, as its divisor. A worker checks [`TRIM`] each time that it has allocated this much.
const STEPS: u64 = 16;

/// Thresholds in percent of what the heaps may hold. Above this one, bodies are read in small pieces.
const PRESSED: i64 = 45;
/// Above this percentage, requests of large holders are rejected.
const SHORT: i64 = 62;
/// Above this percentage, the largest holders are reset until the use is at [`SHORT`] again.
const OVER: i64 = 74;
/// Above this percentage, every request is rejected.
const FULL: i64 = 90;
/// Minimum memory in use beyond the heaps, in bytes.
const LEAST_OVERHEAD: i64 = 1 << 20;

/// Memory pressure.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Level {
    Free,
    Pressed,
    Short,
    Over,
    Full,
}

/// Size of one thread's heap. It has its own cache line, since it is written after each poll of a task.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Heap(AtomicI64);

/// The memory budget and its use. All accesses are `Relaxed`, so a limit may be exceeded by one.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Limit in bytes; `u64::MAX` means no limit.
    limit: AtomicU64,
    shedding: AtomicBool,
    connections: AtomicU64,
    kept: AtomicU64,
    /// Sizes of the workers' heaps, followed by that of the control thread.
    heaps: Box<[Heap]>,
    /// Memory in use outside of the heaps, in bytes, at the last measurement.
    overhead: AtomicI64,
    metrics: Metrics,
}

/// Metrics of the budget.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) limit: Gauge,
    pub(crate) heap: Gauge,
    pub(crate) used: Gauge,
    /// Bytes of bodies buffered for retries.
    pub(crate) kept: Gauge,
    /// Requests rejected with 503.
    pub(crate) requests: Counter,
    /// Number of times that accepting was paused.
    pub(crate) connections: Counter,
    /// Bodies that were not buffered.
    pub(crate) bodies: Counter,
    /// Streams and connections that were reset.
    pub(crate) holders: Counter,
}

impl Budget {
    /// Creates a budget without a limit, for this many workers.
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

    /// Sets the limit in bytes; `None` means no limit.
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

    /// Returns whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit().is_some()
    }

    /// Measures the memory in use; called by the control thread several times a second. Near the limit
    /// `purge` returns free memory to the system before anything is rejected.
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

    /// Records the bytes in use: the part that exceeds the heaps is the new overhead.
    fn measured(&self, used: u64) {
        let overhead = i64::try_from(used).unwrap_or(i64::MAX) - self.allocated();
        self.overhead.store(overhead, Ordering::Relaxed);
    }

    /// Returns the number of allocated bytes after which a worker calls [`Budget::trim`].
    pub(crate) fn step(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) / STEPS
    }

    /// Measures the memory in use, and returns free memory to the system if the use is near the limit. Workers call
    /// this after allocating each [`Budget::step`], which is sooner than the control thread's interval under an
    /// attack.
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

    /// Publishes the size of a thread's heap in bytes.
    pub(crate) fn publish(&self, shard: usize, bytes: i64) {
        if let Some(heap) = self.heaps.get(shard) {
            heap.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// Publishes the size of the heap of the control thread, which must be the caller, and updates the metrics.
    pub(crate) fn publish_control(&self) {
        self.publish(self.heaps.len() - 1, heap::balance());
        self.metrics.heap.set(self.allocated());
        let kept = self.kept.load(Ordering::Relaxed);
        self.metrics
            .kept
            .set(i64::try_from(kept).unwrap_or(i64::MAX));
    }

    /// Returns the published size of all heaps in bytes.
    pub(crate) fn allocated(&self) -> i64 {
        let heaps = self.heaps.iter();
        heaps.map(|heap| heap.0.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of bytes that the heaps may hold under the limit.
    fn usable(&self) -> i64 {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let overhead = self.overhead.load(Ordering::Relaxed);
        limit - overhead.clamp(LEAST_OVERHEAD.min(limit / 2), limit / 2)
    }

    /// Returns the memory pressure. Holders that are being reset are counted until they have ended.
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

    /// Returns the number of bytes to free before requests of large holders are accepted again.
    pub(crate) fn excess(&self) -> i64 {
        self.allocated() - self.usable() / 100 * SHORT
    }

    /// Returns whether the memory in use was near the limit at the last measurement.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedding.load(Ordering::Relaxed)
    }

    /// Counts a rejected request.
    pub(crate) fn count_refused(&self) {
        self.metrics.requests.add_shared(1);
    }

    /// Counts streams and connections that were reset.
    pub(crate) fn count_reset(&self, holders: u64) {
        self.metrics.holders.add_shared(holders);
    }

    /// Returns whether another connection may be accepted.
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

    /// Counts an accepted connection.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed connection.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reserves bytes to buffer a body; returns false if the share for such bodies is used up. The caller must
    /// release the bytes afterwards.
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

    /// Releases reserved bytes.
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
        // Memory that can be returned to the system must not cause rejections.
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
        // A third of the memory in use is outside of the heaps.
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
