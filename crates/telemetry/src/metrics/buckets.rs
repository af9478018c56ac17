//! Bucket bounds of a histogram, and the search for the bucket of a value.
//!
//! Values are whole nanoseconds. The search consists of one table look-up by the position of the highest bit, and a
//! comparison with each bound that has its highest bit at the same position: at most two comparisons if bounds are a
//! factor of two apart.

use std::time::Duration;

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// The upper bounds of the buckets of a histogram.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// The inclusive upper bounds in nanoseconds, strictly increasing. `+Inf` is implied.
    bounds: Box<[u64]>,
    /// For each bit length of a value, the index of the first bound that is not below all values of this length.
    first: [u8; 65],
}

/// The reason why bounds are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BucketsError {
    /// There are no bounds.
    #[error("a histogram needs at least one bucket")]
    Empty,
    /// A bound is not a finite number of at least one nanosecond.
    #[error("bucket bound {0} is not a time between 1 ns and 500 years")]
    OutOfRange(f64),
    /// There are more than 64 bounds.
    #[error("{0} buckets are too many, a histogram has at most 64")]
    TooMany(usize),
    /// A bound is not above the previous one.
    #[error("bucket bound {0} is not above the one before it")]
    Unordered(f64),
}

impl Buckets {
    /// Returns bounds for request latencies: 18 bounds from 100 µs to 60 s, a factor of 2 to 3 apart.
    #[must_use]
    pub fn latency() -> Self {
        const MICROS: [u64; 18] = [
            100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
            1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
        ];
        Self::from_nanos(MICROS.iter().map(|micros| micros * 1000).collect())
    }

    /// Creates bounds in seconds, for example `[0.001, 0.01, 0.1]`.
    ///
    /// # Errors
    ///
    /// [`BucketsError`] unless there are 1 to 64 increasing bounds of at least a nanosecond.
    pub fn seconds(bounds: &[f64]) -> Result<Self, BucketsError> {
        if bounds.is_empty() {
            return Err(BucketsError::Empty);
        }
        if bounds.len() > 64 {
            return Err(BucketsError::TooMany(bounds.len()));
        }
        let mut nanos = Vec::with_capacity(bounds.len());
        for &bound in bounds {
            let value = (bound * SECOND).round();
            if !(1.0..=500.0 * 365.0 * 86_400.0 * SECOND).contains(&value) {
                return Err(BucketsError::OutOfRange(bound));
            }
            let value = value as u64;
            if nanos.last().is_some_and(|&last| value <= last) {
                return Err(BucketsError::Unordered(bound));
            }
            nanos.push(value);
        }
        Ok(Self::from_nanos(nanos))
    }

    fn from_nanos(bounds: Vec<u64>) -> Self {
        let mut first = [0; 65];
        for (bits, entry) in first.iter_mut().enumerate() {
            let smallest = if bits == 0 { 0 } else { 1 << (bits - 1) };
            // At most 64 bounds, so the index fits.
            *entry = bounds.partition_point(|&bound| bound < smallest) as u8;
        }
        Self {
            bounds: bounds.into_boxed_slice(),
            first,
        }
    }

    /// Returns the number of buckets, including the last one, which has no bound (`+Inf`).
    pub(crate) fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// Returns the index of the bucket of a value.
    #[inline]
    pub(crate) fn index(&self, nanos: u64) -> usize {
        let bits = (u64::BITS - nanos.leading_zeros()) as usize;
        let mut index = usize::from(self.first[bits]);
        while let Some(&bound) = self.bounds.get(index)
            && bound < nanos
        {
            index += 1;
        }
        index
    }

    /// Returns the upper bound of a bucket; `None` for the last one, which has none.
    pub(crate) fn bound(&self, bucket: usize) -> Option<Duration> {
        self.bounds.get(bucket).copied().map(Duration::from_nanos)
    }

    /// Returns the bounds in seconds, as exposed.
    pub(crate) fn bounds_seconds(&self) -> impl Iterator<Item = f64> {
        // The division rounds to the nearest number, so that 250 µs is shown as 0.00025.
        self.bounds.iter().map(|&nanos| nanos as f64 / SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_agrees_with_a_plain_one() {
        for buckets in [
            Buckets::latency(),
            Buckets::seconds(&[1e-9, 2e-9, 3e-9, 4e-9, 5e-9, 1.0]).unwrap(),
        ] {
            let plain = |nanos| {
                buckets
                    .bounds
                    .iter()
                    .filter(|&&bound| bound < nanos)
                    .count()
            };
            let edges = (0..64).map(|bit| 1u64 << bit);
            for value in edges.chain(buckets.bounds.iter().copied()).chain([0]) {
                for nanos in [
                    value.saturating_sub(1),
                    value,
                    value.saturating_add(1),
                    u64::MAX,
                ] {
                    assert_eq!(buckets.index(nanos), plain(nanos), "{nanos} ns");
                }
            }
        }
    }

    #[test]
    fn bounds_are_shown_without_noise() {
        let shown: Vec<_> = Buckets::latency()
            .bounds_seconds()
            .map(|b| b.to_string())
            .collect();
        assert_eq!(shown[..4], ["0.0001", "0.00025", "0.0005", "0.001"]);
        assert_eq!(shown[16..], ["30", "60"]);
        assert!(shown.len() <= 20);
    }

    #[test]
    fn bad_bounds_are_refused() {
        let error = |bounds: &[f64]| Buckets::seconds(bounds).unwrap_err();
        assert_eq!(error(&[]), BucketsError::Empty);
        assert_eq!(error(&[0.0]), BucketsError::OutOfRange(0.0));
        assert_eq!(error(&[-1.0]), BucketsError::OutOfRange(-1.0));
        assert!(matches!(error(&[f64::NAN]), BucketsError::OutOfRange(_)));
        assert!(matches!(
            error(&[f64::INFINITY]),
            BucketsError::OutOfRange(_)
        ));
        assert_eq!(error(&[1.0, 1.0]), BucketsError::Unordered(1.0));
        assert_eq!(error(&[1.0; 65]), BucketsError::TooMany(65));
    }
}
