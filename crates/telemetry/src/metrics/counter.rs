//! Counters: values that only increase.

use std::sync::Arc;

use super::cells::{Cells, add_contended, add_owned};
use super::family::Family;

/// The counters with the same name and label names.
#[derive(Clone, Debug)]
pub struct CounterFamily(pub(crate) Arc<Family>);

impl CounterFamily {
    /// Returns the counter with these label values, in the order of the family's label names.
    ///
    /// The same values return the same series for as long as a handle to it exists.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of label names.
    pub fn with(&self, values: &[&str]) -> Counter {
        Counter(self.0.with(values))
    }
}

/// A handle to a counter. Clones refer to the same counter.
#[derive(Clone, Debug)]
pub struct Counter(Cells);

impl Counter {
    /// Adds `n` on the shard of the calling worker.
    ///
    /// Only the worker with this index may pass it; if another thread did, counts would be lost, but nothing worse
    /// would happen. With an index that no worker has, it is equivalent to [`Counter::add_shared`].
    #[inline]
    pub fn add(&self, shard: usize, n: u64) {
        match self.0.row(shard) {
            Some(row) => add_owned(&row[0], n),
            None => self.add_shared(n),
        }
    }

    /// Adds one on the shard of the calling worker; see [`Counter::add`].
    #[inline]
    pub fn inc(&self, shard: usize) {
        self.add(shard, 1);
    }

    /// Adds `n` from any thread, by an atomic addition.
    pub fn add_shared(&self, n: u64) {
        add_contended(&self.0.shared()[0], n);
    }

    /// Returns the sum of all shards.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.sum(0)
    }
}
