//! Statistics of a policy.

use std::time::Duration;

use crate::demo::client::Failure;
use crate::demo::latencies::Latencies;

/// The number of different failure reasons that are kept.
const REASONS: usize = 5;

/// The statistics of the requests of one policy.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) total: Window,
    /// The statistics since the last frame.
    recent: Window,
    failures: u64,
    /// Some of the failure reasons.
    pub(super) reasons: Vec<String>,
    /// The time during which requests were sent.
    pub(super) took: Duration,
}

/// The responses during an interval.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) latencies: Latencies,
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

    /// Returns and resets the statistics since the last call.
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
        self.latencies.add(latency);
        if let Some(count) = self.by_server.get_mut(server) {
            *count += 1;
        }
    }

    pub(super) fn answers(&self) -> usize {
        self.latencies.count()
    }

    /// Returns the share of each server in the responses, in percent.
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
    fn answers_are_shared_out_among_servers() {
        let mut tally = Tally::new(2);
        for millis in 1..=200 {
            tally.answered(usize::from(millis > 50), Duration::from_millis(millis));
        }
        assert_eq!(Vec::from_iter(tally.total.shares()), [25.0, 75.0]);
        assert_eq!(tally.take_recent().answers(), 200);
        assert_eq!(tally.take_recent().answers(), 0);
    }

    #[test]
    fn all_failures_count_and_few_are_shown() {
        let mut tally = Tally::new(1);
        for status in 500..520_u16 {
            let status = http::StatusCode::from_u16(status).unwrap();
            tally.failed(&Failure::Status(status));
            tally.failed(&Failure::Status(status));
        }
        assert_eq!((tally.failures(), tally.reasons.len()), (40, REASONS));
    }
}
