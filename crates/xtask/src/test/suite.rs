//! Runs all test programs and the tests of the documentation, and retries the few that fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Outcome;
use super::durations::Durations;
use super::programs::{self, Program};
use super::queue::{self, Finished, Job};
use crate::failures::{AGAIN, Failures, Reader};
use crate::shell::Cargo;

/// The programs whose durations the summary prints.
const SLOWEST: usize = 8;
/// The job of the tests in documentation comments.
const DOC_TESTS: &str = "--doc";

/// Runs all tests, `at_once` programs at a time; `limit`: only programs that took less than that in the last run.
///
/// If few tests fail, each is retried once, alone. They use real sockets and real time, so other load on the machine
/// can stall one for seconds. A test that passes only when retried is reported as flaky at the end and needs a fix.
pub(super) fn run(at_once: usize, limit: Option<Duration>, interrupted: &AtomicBool) -> Outcome {
    let built = programs::build_modules().and_then(|built| Ok((built, programs::cargo_test()?)));
    let (programs, doc_tests) = match built {
        Ok((Some(programs), doc_tests)) => (programs, doc_tests.arg("--doc")),
        Ok((None, _)) => return Outcome::Failed,
        Err(error) => {
            eprintln!("error: cargo test: {error}");
            return Outcome::Failed;
        }
    };
    let mut durations = Durations::read();
    durations
        .retain(|name| name == DOC_TESTS || programs.iter().any(|program| program.name == name));
    let jobs = jobs(&programs, doc_tests, &durations, limit);
    let (count, left_out) = (jobs.len(), programs.len() + 1 - jobs.len());
    println!(
        "{count} test programs and modules, {at_once} at a time; left out as slow: {left_out}"
    );
    let mut report = Report::default();
    queue::run(jobs, at_once, interrupted, |finished| {
        report.add(&finished, count);
        durations.set(&finished.name, finished.took);
    });
    durations.write();
    report.print(&durations);
    if interrupted.load(Ordering::Relaxed) {
        return Outcome::Interrupted(format!("{} of {count} programs had run", report.finished));
    }
    if report.failures.targets.is_empty() {
        return Outcome::Passed;
    }
    report.retry(&programs, interrupted)
}

/// Returns what to run, the fastest first.
fn jobs(
    programs: &[Program],
    doc_tests: Cargo,
    durations: &Durations,
    limit: Option<Duration>,
) -> Vec<Job> {
    let doc_tests = Job {
        name: DOC_TESTS.into(),
        command: doc_tests,
    };
    let programs = programs.iter().map(|program| Job {
        name: program.name.clone(),
        command: program.command(),
    });
    let mut jobs: Vec<_> = programs
        .chain([doc_tests])
        .map(|job| (durations.expected(&job.name), job))
        .filter(|(expected, _)| limit.is_none_or(|limit| *expected < limit))
        .collect();
    jobs.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.name.cmp(&other.name)));
    jobs.into_iter().map(|(_, job)| job).collect()
}

/// What has run so far.
#[derive(Default)]
struct Report {
    finished: usize,
    failures: Failures,
    /// The failed tests of each program that failed.
    failed: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn add(&mut self, finished: &Finished, count: usize) {
        self.finished += 1;
        let mut reader = Reader::default();
        for line in finished.output.lines() {
            reader.line(line);
        }
        let found = reader.end();
        let verdict = if finished.passed { "" } else { "FAILED " };
        println!(
            "[{:>3}/{count}] {:>6.1} s  {verdict}{} ({} passed)",
            self.finished,
            finished.took.as_secs_f64(),
            finished.name,
            found.passed
        );
        self.failures.passed += found.passed;
        if finished.passed {
            return;
        }
        print!("{}", finished.output);
        let heading = format!("cargo test {}", finished.name);
        self.failures.output.push(heading);
        if found.output.is_empty() {
            // It was killed, or did not start: its last lines show where.
            let lines: Vec<_> = finished.output.lines().collect();
            let last = lines.iter().rev().take(20).rev();
            self.failures.output.extend(last.map(|line| (*line).into()));
        }
        self.failures.output.extend(found.output);
        self.failures.targets.push(finished.name.clone());
        let tests: Vec<_> = found.tests.iter().cloned().collect();
        self.failures.tests.extend(found.tests);
        self.failed.insert(finished.name.clone(), tests);
    }

    fn print(&self, durations: &Durations) {
        let failed = self.failures.tests.len();
        println!("{} tests passed, {failed} failed", self.failures.passed);
        println!("slowest: {}", durations.slowest(SLOWEST).join(", "));
    }

    /// Runs the failed tests again, one after another, unless there are many.
    fn retry(self, programs: &[Program], interrupted: &AtomicBool) -> Outcome {
        let nameless = self.failed.values().any(Vec::is_empty);
        if nameless || self.failures.tests.len() > AGAIN {
            return Outcome::FailedTests(self.failures);
        }
        let mut passed = true;
        for (name, tests) in &self.failed {
            let Some(program) = programs.iter().find(|program| program.name == *name) else {
                return Outcome::FailedTests(self.failures);
            };
            println!("retry alone: {name} {}", tests.join(" "));
            let job = Job {
                name: name.clone(),
                command: program.only(tests).arg("--test-threads=1"),
            };
            queue::run(vec![job], 1, interrupted, |finished| {
                print!("{}", finished.output);
                passed &= finished.passed;
            });
        }
        if passed && !interrupted.load(Ordering::Relaxed) {
            Outcome::PassedAgain(self.failures)
        } else {
            Outcome::FailedTests(self.failures)
        }
    }
}
