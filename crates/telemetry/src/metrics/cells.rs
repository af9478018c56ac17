//! The memory of one series: a row of words for each worker, and a shared row for all other threads.
//!
//! Invariant: only worker `w` writes to the row of worker `w`. Any thread may write to the shared row, which is
//! therefore changed only by atomic read-modify-write operations.
//!
//! Memory orderings are relaxed throughout: each word is a statistic of its own, and no other data is published through
//! it. A reader may see the words of one series at slightly different times.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The number of words in a cache line, by which rows of different workers are separated at least.
const LINE: usize = 64 / size_of::<AtomicU64>();

/// The width of rows and the distance between them, for all series of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    workers: usize,
    width: usize,
    /// The distance between rows, in words.
    stride: usize,
}

impl Layout {
    /// Computes the layout of `workers` rows of `width` words each, and the shared row.
    ///
    /// With a single worker, rows are not padded: the shared row is written so rarely that saving half of the memory is
    /// more important.
    pub(crate) fn new(workers: usize, width: usize) -> Self {
        let stride = if workers <= 1 {
            width
        } else {
            width.next_multiple_of(LINE)
        };
        Self {
            workers,
            width,
            stride,
        }
    }

    pub(crate) fn workers(self) -> usize {
        self.workers
    }

    /// Allocates a new series, whose words are zero.
    pub(crate) fn allocate(self) -> Cells {
        let words = self.stride * self.workers + self.width;
        Cells {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            layout: Row {
                width: self.width,
                stride: self.stride,
            },
        }
    }

    /// Returns the series for which `words` were allocated; `None` if it no longer exists.
    pub(crate) fn revive(self, words: &Weak<[AtomicU64]>) -> Option<Cells> {
        Some(Cells {
            words: words.upgrade()?,
            layout: Row {
                width: self.width,
                stride: self.stride,
            },
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Row {
    width: usize,
    stride: usize,
}

/// A handle to the words of one series.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    words: Arc<[AtomicU64]>,
    layout: Row,
}

impl Cells {
    /// Returns a weak reference, which the family keeps.
    pub(crate) fn downgrade(&self) -> Weak<[AtomicU64]> {
        Arc::downgrade(&self.words)
    }

    /// Returns the row of a worker; `None` if no worker has this index.
    #[inline]
    pub(crate) fn row(&self, shard: usize) -> Option<&[AtomicU64]> {
        // The rows of the workers come first, the shared row is the last one.
        let start = shard.checked_mul(self.layout.stride)?;
        let end = start.checked_add(self.layout.stride)?;
        if end > self.words.len() - self.layout.width {
            return None;
        }
        self.words.get(start..end)
    }

    /// Returns the row that any thread may change, only by atomic operations.
    pub(crate) fn shared(&self) -> &[AtomicU64] {
        &self.words[self.words.len() - self.layout.width..]
    }

    /// Returns the sum of word `index` over all rows, with wrapping.
    pub(crate) fn sum(&self, index: usize) -> u64 {
        let shared_start = self.words.len() - self.layout.width;
        self.words[..shared_start]
            .chunks_exact(self.layout.stride)
            .map(|row| row[index].load(Relaxed))
            .fold(self.shared()[index].load(Relaxed), u64::wrapping_add)
    }
}

/// Adds to a word that only the calling thread writes, without a locked instruction.
#[inline]
pub(crate) fn add_owned(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Adds to a word that any thread may write.
#[inline]
pub(crate) fn add_contended(word: &AtomicU64, n: u64) {
    word.fetch_add(n, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_workers_do_not_share_a_cache_line() {
        let cells = Layout::new(3, 1).allocate();
        let address = |shard| std::ptr::from_ref(&cells.row(shard).unwrap()[0]).addr();
        assert!(address(1) - address(0) >= 64);
        assert!(address(2) - address(1) >= 64);
        assert!(std::ptr::from_ref(&cells.shared()[0]).addr() - address(2) >= 64);
    }

    #[test]
    fn an_index_that_no_worker_has_has_no_row() {
        let cells = Layout::new(2, 20).allocate();
        assert!(cells.row(1).is_some());
        assert!(cells.row(2).is_none());
        assert!(cells.row(usize::MAX).is_none());
        let cells = Layout::new(1, 1).allocate();
        assert!(cells.row(0).is_some());
        assert!(cells.row(1).is_none());
        assert!(Layout::new(0, 1).allocate().row(0).is_none());
    }

    #[test]
    fn the_sum_covers_every_row() {
        let cells = Layout::new(3, 2).allocate();
        for shard in 0..3 {
            add_owned(&cells.row(shard).unwrap()[1], 10);
        }
        add_contended(&cells.shared()[1], 1);
        assert_eq!(cells.sum(1), 31);
        assert_eq!(cells.sum(0), 0);
    }
}
