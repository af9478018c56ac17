//! The row of a histogram: the sum in nanoseconds, followed by the count of each bucket.

use super::buckets::Buckets;
use super::cells::Cells;
use super::exemplar::Exemplars;
use super::exposition::{FamilyWriter, Labels};

pub(crate) const SUM: usize = 0;
pub(crate) const FIRST_BUCKET: usize = 1;

/// Returns the number of words in a row.
pub(crate) fn width(buckets: &Buckets) -> usize {
    FIRST_BUCKET + buckets.count()
}

/// Writes a series: cumulative counts, and seconds.
pub(crate) fn write<'l>(
    buckets: &Buckets,
    cells: &Cells,
    exemplars: Option<&Exemplars>,
    labels: &impl Labels<'l>,
    to: &mut FamilyWriter<'_>,
) {
    let counts = bucket_counts(buckets, cells);
    let bounds = buckets.bounds_seconds().chain([f64::INFINITY]);
    let mut cumulative = 0;
    for (bucket, (bound, count)) in bounds.zip(counts).enumerate() {
        cumulative += count;
        let exemplar = exemplars.and_then(|exemplars| exemplars.latest(bucket));
        to.bucket(labels.clone(), bound, cumulative, exemplar.as_ref());
    }
    // The count is the sum of the buckets as read, so that it agrees with them in any case.
    to.totals(labels.clone(), cells.sum(SUM) as f64 / 1e9, cumulative);
}

pub(crate) fn bucket_counts(buckets: &Buckets, cells: &Cells) -> Vec<u64> {
    (0..buckets.count())
        .map(|bucket| cells.sum(FIRST_BUCKET + bucket))
        .collect()
}
