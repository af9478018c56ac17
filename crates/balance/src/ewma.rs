//! The peak-sensitive moving average of an endpoint's latency, lock-free.
//!
//! A sample above the average replaces it at once; a sample below it pulls it down with time
//! constant `decay`; without samples it decays towards zero, so that an endpoint which was slow
//! gets another chance. This is the estimator of Finagle, tower and Linkerd.
//!
//! Invariant: value and time change together, because both live in one atomic word.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Time;

/// The resolution of time: steps of 2^16 ns = 65.536 µs, so 32 bits span 78 hours.
const STEP_BITS: u32 = 16;

/// The maximum lag of one thread's clock behind another's, in steps: 69 s. Only this part of the span counts as the
/// past. If half of the span did, an average would not decay for 39 of 78 idle hours.
const LAG: u32 = 1 << 20;

/// Latency in nanoseconds as `f32` (relative error 6·10⁻⁸) in the upper half, the time of the last
/// update in steps of 65.536 µs modulo 2^32 in the lower. Zero means "no sample yet".
#[derive(Debug, Default)]
pub(crate) struct PeakEwma(AtomicU64);

impl PeakEwma {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds a sample. Samples within one step of 65 µs are merged to their maximum: within so short a time, the weight
    /// of a lower one would be less than the word's precision.
    pub(crate) fn observe(&self, latency: Duration, decay: Duration, now: Time) {
        let sample = (latency.as_nanos() as f32).max(1.0);
        let next = |word: u64| {
            let (average, elapsed) = decode(word, now);
            let updated = if sample >= average {
                sample
            } else {
                let keep = retained(elapsed, decay);
                (average * keep + sample * (1.0 - keep)).max(1.0)
            };
            // A sample that arrives late (another thread's clock was ahead) must not turn time
            // back.
            let step = if elapsed == Duration::ZERO && word != 0 {
                word as u32
            } else {
                step_of(now)
            };
            Some(u64::from(updated.to_bits()) << 32 | u64::from(step))
        };
        // Relaxed: the word is complete in itself and publishes nothing else.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Returns the average as of `now` in nanoseconds, without modifying it; `None` before the first sample.
    pub(crate) fn read(&self, decay: Duration, now: Time) -> Option<f32> {
        // Relaxed: see `observe`.
        let word = self.0.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let (average, elapsed) = decode(word, now);
        Some(average * retained(elapsed, decay))
    }
}

fn step_of(now: Time) -> u32 {
    (now.as_nanos() >> STEP_BITS) as u32
}

/// Decodes the stored average and the time since its update. A time within [`LAG`] of the whole range comes from a
/// clock that lags, and counts as zero.
fn decode(word: u64, now: Time) -> (f32, Duration) {
    let average = f32::from_bits((word >> 32) as u32);
    let steps = step_of(now).wrapping_sub(word as u32);
    let steps = if steps > u32::MAX - LAG { 0 } else { steps };
    (average, Duration::from_nanos(u64::from(steps) << STEP_BITS))
}

/// Returns the share of the old value that is left after `elapsed`: e^(−elapsed/decay); 0 if `decay` is zero.
fn retained(elapsed: Duration, decay: Duration) -> f32 {
    if decay.is_zero() {
        return 0.0;
    }
    if elapsed.is_zero() {
        return 1.0;
    }
    (-(elapsed.as_secs_f32() / decay.as_secs_f32())).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn read_ms(e: &PeakEwma, now: Time) -> f32 {
        e.read(DECAY, now).unwrap() / 1e6
    }

    #[test]
    fn a_peak_is_taken_at_once_and_decays() {
        let e = PeakEwma::new();
        assert_eq!(e.read(DECAY, at(0)), None);
        e.observe(Duration::from_millis(10), DECAY, at(1000));
        e.observe(Duration::from_millis(11), DECAY, at(1000));
        assert!((read_ms(&e, at(1000)) - 11.0).abs() < 1e-3);
        e.observe(Duration::from_millis(50), DECAY, at(1001));
        assert!((read_ms(&e, at(1001)) - 50.0).abs() < 1e-3);
        let later = read_ms(&e, at(11_001));
        assert!((later - 50.0 * (-1.0_f32).exp()).abs() < 0.01, "{later}");
        // Reading changes nothing.
        assert!((read_ms(&e, at(1001)) - 50.0).abs() < 1e-3);
    }

    #[test]
    fn a_lower_sample_pulls_by_its_time() {
        let e = PeakEwma::new();
        e.observe(Duration::from_millis(50), DECAY, at(0));
        e.observe(Duration::from_millis(10), DECAY, at(10_000));
        let expected = 50.0 * (-1.0_f32).exp() + 10.0 * (1.0 - (-1.0_f32).exp());
        assert!((read_ms(&e, at(10_000)) - expected).abs() < 0.01);
    }

    #[test]
    fn an_average_goes_on_decaying_over_a_weekend() {
        for hours in [1, 38, 40, 63, 77] {
            let e = PeakEwma::new();
            e.observe(Duration::from_secs(5), DECAY, at(1000));
            let monday = at(1000 + hours * 3_600_000);
            assert!(read_ms(&e, monday) < 1.0, "{hours} h");
            e.observe(Duration::from_millis(10), DECAY, monday);
            let latest = read_ms(&e, monday);
            assert!((latest - 10.0).abs() < 0.01, "{hours} h: {latest}");
        }
    }

    #[test]
    fn a_lagging_clock_is_harmless() {
        let e = PeakEwma::new();
        e.observe(Duration::from_millis(20), DECAY, at(5000));
        e.observe(Duration::from_millis(1), DECAY, at(4000));
        assert!((read_ms(&e, at(4000)) - 20.0).abs() < 1e-3);
        assert!((read_ms(&e, at(5000)) - 20.0).abs() < 1e-3);
    }
}
