//! A log-linear histogram of durations: constant memory, no allocation a sample.
//!
//! Values are microseconds in tenths (100 ns units). Each power of two is cut in 128 parts, so
//! a percentile is at most 0.8 % above the true value.

use std::time::Duration;

const PRECISION_BITS: u32 = 7;
const PARTS: usize = 1 << PRECISION_BITS;
const UNIT_NANOS: u128 = 100;
/// Powers of two above the linear part: up to 2^36 units, almost two hours.
const OCTAVES: usize = 29;

/// Counts of durations by logarithmic bucket.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; PARTS * (OCTAVES + 1)],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one sample.
    pub fn record(&mut self, sample: Duration) {
        let units = u64::try_from(sample.as_nanos() / UNIT_NANOS).unwrap_or(u64::MAX);
        let slot = slot(units).min(self.counts.len() - 1);
        self.counts[slot] += 1;
        self.total += 1;
        self.max = self.max.max(units);
    }

    /// Returns the number of samples.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the value in microseconds that the fraction `q` of the samples does not exceed.
    pub fn quantile_us(&self, q: f64) -> f64 {
        let rank = ((q * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return micros(upper(slot).min(self.max));
            }
        }
        micros(self.max)
    }

    /// Returns the largest sample in microseconds.
    pub fn max_us(&self) -> f64 {
        micros(self.max)
    }
}

fn micros(units: u64) -> f64 {
    units as f64 * UNIT_NANOS as f64 / 1000.0
}

/// Returns the slot of a value: values below `PARTS` have a slot each; above, there are `PARTS`
/// slots per power of two.
fn slot(units: u64) -> usize {
    if units < PARTS as u64 {
        return units as usize;
    }
    let octave = (u64::BITS - 1 - units.leading_zeros()) - PRECISION_BITS;
    let part = (units >> octave) as usize - PARTS;
    PARTS * (octave as usize + 1) + part
}

/// Returns the largest value of a slot.
fn upper(slot: usize) -> u64 {
    if slot < PARTS {
        return slot as u64;
    }
    let octave = slot / PARTS - 1;
    let part = slot % PARTS;
    (((PARTS + part + 1) as u64) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_slot_within_one_percent() {
        for shift in 0..35 {
            for extra in [0_u64, 1, 3] {
                let value = (1_u64 << shift) + extra;
                let top = upper(slot(value));
                assert!(top >= value, "{value} above {top}");
                assert!(
                    (top - value) as f64 <= 0.008 * value as f64 + 0.5,
                    "{value} {top}"
                );
            }
        }
    }

    #[test]
    fn slots_are_contiguous() {
        for index in 1..PARTS * 20 {
            assert_eq!(slot(upper(index - 1) + 1), index);
        }
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.len(), 1000);
        assert!((histogram.quantile_us(0.5) - 500.0).abs() < 5.0);
        assert!((histogram.quantile_us(0.99) - 990.0).abs() < 9.0);
        assert!((histogram.quantile_us(1.0) - 1000.0).abs() < 0.2);
        assert!((histogram.max_us() - 1000.0).abs() < 0.2);
    }

    #[test]
    fn empty_and_huge_do_not_break() {
        let mut histogram = Histogram::default();
        assert!(histogram.is_empty());
        assert!(histogram.quantile_us(0.5).abs() < f64::EPSILON);
        histogram.record(Duration::from_secs(1_000_000));
        assert_eq!(histogram.len(), 1);
    }
}
