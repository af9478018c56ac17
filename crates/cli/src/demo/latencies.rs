//! Latencies of requests, and their statistics.

use std::time::Duration;

/// Latencies in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.count()).ok()?;
        let sum: Duration = self.0.iter().sum();
        sum.checked_div(count)
    }

    /// Returns percentiles by nearest rank, `None` if there was no response.
    pub(super) fn percentiles<const N: usize>(&self, wanted: [u32; N]) -> [Option<Duration>; N] {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        wanted.map(|percent| {
            let rank = (sorted.len() * percent as usize).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied()
        })
    }
}

/// Formats a latency for tables, in ten characters.
pub(super) fn millis(time: Option<Duration>) -> String {
    match time {
        Some(time) => format!("{:>7.1} ms", time.as_secs_f64() * 1e3),
        None => format!("{:>7} ms", "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let mut latencies = Latencies::default();
        assert_eq!(
            (latencies.mean(), latencies.percentiles([50])),
            (None, [None])
        );
        for millis in (1..=200).rev() {
            latencies.add(Duration::from_millis(millis));
        }
        let millis = |percent| latencies.percentiles([percent])[0].unwrap().as_millis();
        assert_eq!([50, 99, 100].map(millis), [100, 198, 200]);
        assert_eq!(latencies.mean(), Some(Duration::from_micros(100_500)));
    }
}
