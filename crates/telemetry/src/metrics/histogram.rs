//! Histograms of durations, with fixed buckets.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::buckets::Buckets;
use super::cells::{Cells, add_contended, add_owned};
use super::exemplar::{Exemplar, Exemplars};
use super::family::Family;
use super::histogram_row::{FIRST_BUCKET, SUM, bucket_counts};

/// The histograms with the same name, label names and buckets.
#[derive(Clone, Debug)]
pub struct HistogramFamily {
    pub(crate) family: Arc<Family>,
    pub(crate) buckets: Arc<Buckets>,
}

impl HistogramFamily {
    /// Returns the histogram with these label values, in the order of the family's label names.
    ///
    /// The same values return the same series for as long as a handle to it exists.
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of label names.
    pub fn with(&self, values: &[&str]) -> Histogram {
        Histogram {
            cells: self.family.with(values),
            exemplars: None,
            buckets: Arc::clone(&self.buckets),
        }
    }

    /// Returns the same histogram with the traces of recent requests ([`Histogram::exemplify`]).
    ///
    /// # Panics
    ///
    /// If the number of values is not the number of label names.
    pub fn with_exemplars(&self, values: &[&str]) -> Histogram {
        let (cells, exemplars) = self.family.with_exemplars(values);
        Histogram {
            cells,
            exemplars: Some(exemplars),
            buckets: Arc::clone(&self.buckets),
        }
    }
}

/// A handle to a histogram. Clones refer to the same histogram.
#[derive(Clone, Debug)]
pub struct Histogram {
    cells: Cells,
    exemplars: Option<Arc<Exemplars>>,
    buckets: Arc<Buckets>,
}

impl Histogram {
    /// Counts a duration on the shard of the calling worker. The restriction of [`super::Counter::add`] applies.
    ///
    /// A duration that is negative or not a number counts as zero.
    #[inline]
    pub fn observe(&self, shard: usize, seconds: f64) {
        // The cast saturates, and converts NaN to zero.
        self.observe_nanos(shard, (seconds * 1e9) as u64);
    }

    /// Counts a duration on the shard of the calling worker. The restriction of [`super::Counter::add`] applies.
    #[inline]
    pub fn observe_duration(&self, shard: usize, time: Duration) {
        self.observe_nanos(shard, nanos(time));
    }

    /// Counts a duration in nanoseconds, which is the fastest method, since it needs no floating point.
    #[inline]
    pub fn observe_nanos(&self, shard: usize, nanos: u64) {
        match self.cells.row(shard) {
            Some(row) => self.count(row, nanos, add_owned),
            None => self.count(self.cells.shared(), nanos, add_contended),
        }
    }

    /// Counts a duration from any thread, by atomic additions.
    pub fn observe_shared(&self, time: Duration) {
        self.count(self.cells.shared(), nanos(time), add_contended);
    }

    /// Shows a request that was counted here as the example of its bucket, in OpenMetrics. The restriction of
    /// [`super::Counter::add`] applies; with an index that no worker has, nothing happens, nor without exemplars.
    pub fn exemplify(&self, shard: usize, exemplar: Exemplar) {
        if let Some(exemplars) = &self.exemplars {
            let bucket = self.buckets.index(exemplar.nanos);
            exemplars.put(shard, bucket, exemplar);
        }
    }

    /// Returns the present counts.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            counts: bucket_counts(&self.buckets, &self.cells),
            sum_nanos: self.cells.sum(SUM),
            buckets: Arc::clone(&self.buckets),
        }
    }

    #[inline]
    fn count(&self, row: &[AtomicU64], nanos: u64, add: impl Fn(&AtomicU64, u64)) {
        add(&row[FIRST_BUCKET + self.buckets.index(nanos)], 1);
        add(&row[SUM], nanos);
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    buckets: Arc<Buckets>,
    counts: Vec<u64>,
    sum_nanos: u64,
}

impl Snapshot {
    /// Returns the number of counted durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the counts since an earlier snapshot of the same series, or all counts if there is none. For each bucket
    /// there is its inclusive upper bound (`None` for the last one) and its count.
    pub fn since<'a>(
        &'a self,
        earlier: Option<&'a Self>,
    ) -> impl Iterator<Item = (Option<Duration>, u64)> + 'a {
        self.counts.iter().enumerate().map(move |(bucket, count)| {
            let before = earlier.and_then(|earlier| earlier.counts.get(bucket));
            let counted = count.saturating_sub(before.copied().unwrap_or(0));
            (self.buckets.bound(bucket), counted)
        })
    }

    /// Returns the sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// Returns the duration that a share `q` (0 to 1) of the counted durations does not exceed.
    ///
    /// It is interpolated linearly inside a bucket, as by Prometheus' `histogram_quantile`; for durations above the
    /// highest bound, that bound is returned. `None` if nothing was counted.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (upper, &count) in self.buckets.bounds_seconds().zip(&self.counts) {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                let inside = lower + (upper - lower) * (rank - below) / count;
                return Some(Duration::from_secs_f64(inside));
            }
            below += count;
            lower = upper;
        }
        Some(Duration::from_secs_f64(lower))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
