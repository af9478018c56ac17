//! A declared budget of memory, and what is done to stay within it.
//!
//! Three things grow with what clients do: connections, bodies that are kept to be sent again, and whatever
//! requests hold while they are under way. The first two have shares of the budget that are never exceeded. The
//! third is watched: when memory in use comes near the budget, nothing new is taken in (requests get 503 with
//! `retry-after`, connections wait in the backlog) until it has fallen again. What is under way goes on.
//!
//! In use is what only this process has in memory: neither the pages of its program file, which the system can
//! drop, nor the socket buffers of the kernel.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use maglor_telemetry::{Counter, Gauge};

/// What the process needs without any client: tables, certificates, stacks.
const BASE: u64 = 6 << 20;
/// What a connection is reckoned with: it needs about this much while it is busy, far less when idle.
const CONNECTION: u64 = 16 << 10;
/// Connections that are allowed however small the budget.
const LEAST_CONNECTIONS: u64 = 64;
/// Share of the budget, in percent, that bodies kept for a repetition may take.
const KEPT: u64 = 20;
/// Nothing new is taken in above the first of these percentages, until the use is below the second.
const SHED: u64 = 90;
const RELAX: u64 = 80;

/// See the module's documentation. All accesses are `Relaxed`: limits that are passed by one are passed by
/// one.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In bytes; `u64::MAX` = none.
    limit: AtomicU64,
    shedding: AtomicBool,
    connections: AtomicU64,
    kept: AtomicU64,
    metrics: Metrics,
}

/// What is counted of it.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) limit: Gauge,
    pub(crate) used: Gauge,
    /// Requests answered with 503.
    pub(crate) requests: Counter,
    /// Times that accepting had to wait.
    pub(crate) connections: Counter,
    /// Bodies that were not kept.
    pub(crate) bodies: Counter,
}

impl Budget {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            limit: AtomicU64::new(u64::MAX),
            shedding: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            kept: AtomicU64::new(0),
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

    /// Looks at the memory in use; to be called some times a second. Whether free memory should be given
    /// back to the system now.
    pub(crate) fn watch(&self, used: impl FnOnce() -> Option<u64>) -> bool {
        let Some((limit, used)) = self.limit().and_then(|limit| Some((limit, used()?))) else {
            return false;
        };
        self.metrics
            .used
            .set(i64::try_from(used).unwrap_or(i64::MAX));
        let percent = used.saturating_mul(100) / limit.max(1);
        let before = self.shedding.load(Ordering::Relaxed);
        let shedding = percent >= if before { RELAX } else { SHED };
        if shedding != before {
            self.shedding.store(shedding, Ordering::Relaxed);
            if shedding {
                tracing::warn!(used, limit, "memory budget: nothing new is taken in");
            } else {
                tracing::info!(used, limit, "memory budget: relaxed");
            }
        }
        percent >= RELAX
    }

    /// Whether a request has to be turned away, which is counted.
    #[inline]
    pub(crate) fn sheds(&self) -> bool {
        let sheds = self.shedding.load(Ordering::Relaxed);
        if sheds {
            self.metrics.requests.add_shared(1);
        }
        sheds
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

    /// Asks for so many more bytes of a body to be kept; whoever gets them gives them back.
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

    /// Gives back what was kept.
    pub(crate) fn release(&self, bytes: usize) {
        self.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::in_use;

    const MIB: u64 = 1 << 20;

    fn budget(limit: Option<u64>) -> Budget {
        let budget = Budget::new(crate::metrics::Metrics::new(1).memory());
        budget.set(limit);
        budget
    }

    #[test]
    fn nothing_new_is_taken_in_near_the_limit_until_it_is_far_again() {
        let budget = budget(Some(100 * MIB));
        for (used, purge, sheds) in [
            (50, false, false),
            (85, true, false),
            (90, true, true),
            (81, true, true),
            (79, false, false),
            (85, true, false),
        ] {
            assert_eq!(budget.watch(|| Some(used * MIB)), purge, "{used}");
            assert_eq!(budget.sheds(), sheds, "{used}");
            assert_eq!(budget.has_room(), !sheds, "{used}");
        }
        assert!(budget.watch(|| Some(99 * MIB)) && budget.sheds());
        budget.set(None);
        assert!(!budget.sheds() && !budget.watch(|| Some(999 * MIB)));
    }

    #[test]
    fn connections_and_kept_bodies_have_their_shares() {
        let small = budget(Some(8 * MIB));
        (0..128).for_each(|_| small.connected());
        assert!(!small.has_room(), "(8 − 6) MiB / 16 KiB");
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
    fn the_system_says_what_is_in_use() {
        let _alone = crate::memory::MEASURING.blocking_lock();
        let before = in_use().unwrap();
        let block = vec![1_u8; 64 << 20];
        let with = in_use().unwrap();
        assert!(with >= before + (60 << 20), "{before} {with} {}", block[7]);
    }
}
