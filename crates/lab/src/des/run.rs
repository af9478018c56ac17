//! Executes runs in parallel, with the same results on any number of threads.
//!
//! The unit of work is one run of one scenario. It depends only on its seed; results are combined
//! in the order of the scenarios, not in that of their completion.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::cluster::Cluster;
use super::outcome::{Outcome, Run};
use super::scenario::{Scenario, ScenarioError};

impl Scenario {
    /// Simulates all runs on this thread.
    ///
    /// # Errors
    ///
    /// If the scenario is invalid.
    pub fn simulate(&self) -> Result<Outcome, ScenarioError> {
        let mut outcomes = simulate_all(std::slice::from_ref(self), NonZeroUsize::MIN, &|_, _| {})?;
        // One scenario has one outcome.
        Ok(outcomes.remove(0))
    }

    fn run(&self, number: u32) -> Run {
        Cluster::new(self, number).run()
    }
}

/// Returns the number of threads that this machine runs at once.
#[must_use]
pub fn threads() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Simulates scenarios; `progress` receives the number of finished runs and of all runs. The
/// outcomes are in the order of the scenarios.
///
/// # Errors
///
/// If one of them is invalid; nothing is simulated then.
pub fn simulate_all(
    scenarios: &[Scenario],
    threads: NonZeroUsize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Outcome>, ScenarioError> {
    for scenario in scenarios {
        scenario.check()?;
    }
    let work: Vec<(usize, u32)> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(at, scenario)| (0..scenario.runs).map(move |run| (at, run)))
        .collect();
    let results: Vec<Mutex<Option<Run>>> = work.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let labour = || {
        // Relaxed: the counters order nothing; results are passed through locks.
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((scenario, run)) = work.get(at) else {
                return;
            };
            let result = scenarios[*scenario].run(*run);
            *results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, work.len());
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.get().min(work.len()) {
            scope.spawn(labour);
        }
        labour();
    });
    let mut results = results
        .into_iter()
        .filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner));
    let outcome = |scenario: &Scenario| {
        let runs: Vec<Run> = results.by_ref().take(scenario.runs as usize).collect();
        Outcome::of(&runs, scenario.servers)
    };
    Ok(scenarios.iter().map(outcome).collect())
}
