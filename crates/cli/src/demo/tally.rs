//! What is counted while a policy is shown.

use std::time::Duration;

use super::client::Failure;

/// Different reasons of failures that are kept.
const REASONS: usize = 5;

/// Everything about the requests of one policy.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) total: Window,
    /// Since the last look.
    recent: Window,
    failures: u64,
    /// Some of the reasons.
    pub(super) reasons: Vec<String>,
    /// How long requests were sent.
    pub(super) took: Duration,
}

/// Answers during some time.
#[derive(Debug, Default)]
pub(super) struct Window {
    latencies: Vec<Duration>,
    by_server: Vec<usize>,
}

impl Tally {
    pub(super) fn new(servers: usize) -> Self {
        Self {
            total: Window::new(servers),
            recent: Window::new(servers),
            ..Self::default()
        }
    }

    pub(super) fn answered(&mut self, server: usize, latency: Duration) {
        self.total.add(server, latency);
        self.recent.add(server, latency);
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        self.failures += 1;
        let reason = failure.to_string();
        if self.reasons.len() < REASONS && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// What came since the last call.
    pub(super) fn take_recent(&mut self) -> Window {
        let servers = self.recent.by_server.len();
        std::mem::replace(&mut self.recent, Window::new(servers))
    }
}

impl Window {
    fn new(servers: usize) -> Self {
        Self {
            by_server: vec![0; servers],
            ..Self::default()
        }
    }

    fn add(&mut self, server: usize, latency: Duration) {
        self.latencies.push(latency);
        if let Some(count) = self.by_server.get_mut(server) {
            *count += 1;
        }
    }

    pub(super) fn answers(&self) -> usize {
        self.latencies.len()
    }

    pub(super) fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.answers()).ok()?;
        let sum: Duration = self.latencies.iter().sum();
        sum.checked_div(count)
    }

    /// Percentiles by nearest rank, `None` where there was no answer.
    pub(super) fn percentiles<const N: usize>(&self, wanted: [u32; N]) -> [Option<Duration>; N] {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        wanted.map(|percent| {
            let rank = (sorted.len() * percent as usize).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied()
        })
    }

    /// The share of each server in the answers, in percent.
    pub(super) fn shares(&self) -> impl Iterator<Item = f64> {
        let all = self.answers().max(1) as f64;
        let counts = self.by_server.iter();
        counts.map(move |&count| count as f64 / all * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let mut tally = Tally::new(2);
        for millis in (1..=200).rev() {
            tally.answered(usize::from(millis > 50), Duration::from_millis(millis));
        }
        let millis = |percent| tally.total.percentiles([percent])[0].unwrap().as_millis();
        assert_eq!([50, 99, 100].map(millis), [100, 198, 200]);
        assert_eq!(tally.total.mean(), Some(Duration::from_micros(100_500)));
        assert_eq!(Vec::from_iter(tally.total.shares()), [25.0, 75.0]);
        assert_eq!(tally.take_recent().answers(), 200);
        assert_eq!(tally.take_recent().percentiles([50]), [None]);
        assert_eq!(Window::new(1).mean(), None);
    }

    #[test]
    fn all_failures_count_and_few_are_told() {
        let mut tally = Tally::new(1);
        for status in 500..520_u16 {
            let status = http::StatusCode::from_u16(status).unwrap();
            tally.failed(&Failure::Status(status));
            tally.failed(&Failure::Status(status));
        }
        assert_eq!((tally.failures(), tally.reasons.len()), (40, REASONS));
    }
}
