//! Statistics of the demo, by stage.

use std::time::{Duration, Instant};

use super::flow::Flows;
use super::intruders::Attempt;
use crate::demo::client::Failure;
use crate::demo::latencies::Latencies;

/// The number of different failure reasons that are kept.
const REASONS: usize = 5;

/// A stage with its statistics.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) title: String,
    started: Instant,
    pub(super) took: Duration,
    /// The requests sent during the stage, whenever they ended.
    pub(super) pages: Pages,
    /// The counts of the proxies during the stage.
    pub(super) flows: Flows,
    /// Some of the failure reasons.
    pub(super) reasons: Vec<String>,
}

/// The responses to clients of the ingress.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) latencies: Latencies,
    pub(super) failures: u64,
}

impl Pages {
    pub(super) fn count(&self) -> u64 {
        self.latencies.count() as u64 + self.failures
    }

    /// Returns the share of 200 responses, in percent; 100 without any requests.
    pub(super) fn success(&self) -> f64 {
        match self.count() {
            0 => 100.0,
            all => self.latencies.count() as f64 / all as f64 * 100.0,
        }
    }
}

/// All stages so far, and the statistics since the last frame.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) stages: Vec<Stage>,
    pub(super) attempts: Vec<Attempt>,
    /// Whether it was stopped early.
    pub(super) ended_early: bool,
    recent: (Pages, Flows),
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            stages: Vec::new(),
            attempts: Vec::new(),
            ended_early: false,
            recent: (Pages::default(), Flows::new()),
        }
    }

    /// Ends the present stage and begins another one.
    pub(super) fn begin(&mut self, title: String) {
        self.end();
        self.stages.push(Stage {
            title,
            started: Instant::now(),
            took: Duration::ZERO,
            pages: Pages::default(),
            flows: Flows::new(),
            reasons: Vec::new(),
        });
    }

    /// Ends the last stage, if it has not ended.
    pub(super) fn end(&mut self) {
        let last = self.stages.last_mut();
        if let Some(stage) = last.filter(|stage| stage.took.is_zero()) {
            stage.took = stage.started.elapsed();
        }
    }

    /// Records the outcome of a page requested during the stage of this index.
    pub(super) fn page(&mut self, stage: usize, outcome: Result<Duration, &Failure>) {
        let Some(stage) = self.stages.get_mut(stage) else {
            return;
        };
        let recent = &mut self.recent.0;
        match outcome {
            Ok(latency) => {
                stage.pages.latencies.add(latency);
                recent.latencies.add(latency);
            }
            Err(failure) => {
                stage.pages.failures += 1;
                recent.failures += 1;
                let reason = failure.to_string();
                if stage.reasons.len() < REASONS && !stage.reasons.contains(&reason) {
                    stage.reasons.push(reason);
                }
            }
        }
    }

    /// Adds the counts of the proxies since the last time.
    pub(super) fn flows(&mut self, flows: &Flows) {
        self.recent.1.merge(flows);
        if let Some(stage) = self.stages.last_mut() {
            stage.flows.merge(flows);
        }
    }

    /// Returns and resets the statistics since the last call.
    pub(super) fn take_recent(&mut self) -> (Pages, Flows) {
        std::mem::replace(&mut self.recent, (Pages::default(), Flows::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_for_the_stage_in_which_it_was_asked_for() {
        let mut record = Record::new();
        record.begin("healthy".into());
        record.begin("a fault".into());
        record.page(0, Ok(Duration::from_millis(5)));
        record.page(1, Err(&Failure::Timeout));
        record.page(1, Err(&Failure::Timeout));
        record.page(1, Ok(Duration::from_millis(7)));
        let [healthy, fault] = &record.stages[..] else {
            unreachable!("there are two")
        };
        assert_eq!((healthy.pages.count(), healthy.pages.success()), (1, 100.0));
        assert_eq!((fault.pages.count(), fault.pages.failures), (3, 2));
        assert_eq!(fault.reasons, ["timeout after 15s"]);
        assert_eq!(record.take_recent().0.count(), 4);
        assert_eq!(record.take_recent().0.count(), 0);
        assert_eq!(Pages::default().success(), 100.0);
    }
}
