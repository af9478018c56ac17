//! The row of a histogram: the sum in nanoseconds, followed by the count of each bucket.

use prometheus::proto;

use super::buckets::Buckets;
use super::cells::Cells;

pub(crate) const SUM: usize = 0;
pub(crate) const FIRST_BUCKET: usize = 1;

/// Returns the number of words in a row.
pub(crate) fn width(buckets: &Buckets) -> usize {
    FIRST_BUCKET + buckets.count()
}

/// Converts a series to the form that the `prometheus` crate encodes: cumulative counts, and seconds.
pub(crate) fn render(buckets: &Buckets, cells: &Cells) -> proto::Histogram {
    let counts = bucket_counts(buckets, cells);
    let mut histogram = proto::Histogram::default();
    // The count is the sum of the buckets as read, so that it agrees with them in any case.
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(cells.sum(SUM) as f64 / 1e9);
    let mut cumulative = 0;
    let rendered = buckets.bounds_seconds().zip(counts).map(|(bound, count)| {
        cumulative += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(cumulative);
        bucket
    });
    histogram.set_bucket(rendered.collect());
    histogram
}

pub(crate) fn bucket_counts(buckets: &Buckets, cells: &Cells) -> Vec<u64> {
    (0..buckets.count())
        .map(|bucket| cells.sum(FIRST_BUCKET + bucket))
        .collect()
}
