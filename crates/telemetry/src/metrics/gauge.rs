//! Gauges: values that increase and decrease.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::cells::{Cells, add_contended, add_owned};
use super::family::Family;

/// The gauges with the same name and label names.
#[derive(Clone, Debug)]
pub struct GaugeFamily(pub(crate) Arc<Family>);

impl GaugeFamily {
    /// Returns the gauge with these label values, in the order of the family's label names.
    ///
    /// The same values return the same series for as long as a handle to it exists.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of label names.
    pub fn with(&self, values: &[&str]) -> Gauge {
        Gauge(self.0.with(values))
    }
}

/// A handle to a gauge. Clones refer to the same gauge.
///
/// A gauge is either changed by workers ([`Gauge::add`], [`Gauge::sub`]) or set by a control thread ([`Gauge::set`]).
/// Its value is the sum of both parts: setting it does not undo what workers have added.
#[derive(Clone, Debug)]
pub struct Gauge(Cells);

impl Gauge {
    /// Adds `n` on the shard of the calling worker. The restriction of [`super::Counter::add`] applies.
    ///
    /// A value that was added on one shard may be subtracted on another, since only the sum counts.
    #[inline]
    pub fn add(&self, shard: usize, n: i64) {
        match self.0.row(shard) {
            Some(row) => add_owned(&row[0], n.cast_unsigned()),
            None => self.add_shared(n),
        }
    }

    /// Subtracts `n` on the shard of the calling worker.
    #[inline]
    pub fn sub(&self, shard: usize, n: i64) {
        self.add(shard, n.wrapping_neg());
    }

    /// Adds one on the shard of the calling worker.
    #[inline]
    pub fn inc(&self, shard: usize) {
        self.add(shard, 1);
    }

    /// Subtracts one on the shard of the calling worker.
    #[inline]
    pub fn dec(&self, shard: usize) {
        self.add(shard, -1);
    }

    /// Adds `n` from any thread, by an atomic addition.
    pub fn add_shared(&self, n: i64) {
        add_contended(&self.0.shared()[0], n.cast_unsigned());
    }

    /// Sets the shared part of the value, from any thread.
    pub fn set(&self, value: i64) {
        self.0.shared()[0].store(value.cast_unsigned(), Relaxed);
    }

    /// Returns the sum of all shards.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.sum(0).cast_signed()
    }
}
