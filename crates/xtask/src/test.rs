//! `cargo xtask test`: runs all checks that are required before a change is merged.

mod checks;
mod durations;
pub(crate) mod programs;
mod queue;
mod suite;

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use signal_hook::consts::SIGINT;

use crate::failures::Failures;
use crate::tools;

/// The package that uses loom's atomics; like the fuzz packages it is not a member.
const LOOM: &str = "crates/balance/loom/Cargo.toml";
/// With `--quick`, only programs that took less than this in their last run.
const QUICK: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only this step; may be repeated.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
    /// Check format, spelling and warnings, and run the test programs that took less than 5 seconds in their last run.
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Run this many test programs at a time [default: two for each processor].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Step {
    /// Check formatting.
    Fmt,
    /// Check the spelling of documents and comments.
    Spelling,
    /// Compile everything, without warnings of clippy and rustdoc.
    #[value(aliases = ["clippy", "doc"])]
    Build,
    /// Run all tests.
    Test,
    /// Check the concurrent types with loom.
    Loom,
    /// Check dependencies: bans, licences, sources, known vulnerabilities.
    Deny,
    /// Run each fuzz target for a few seconds.
    Fuzz,
}

enum Outcome {
    Passed,
    /// Passed, but these tests only when retried alone.
    PassedAgain(Failures),
    Failed,
    /// Ctrl-C; with what had run.
    Interrupted(String),
    /// Failed, with the reason.
    FailedTests(Failures),
    Skipped(String),
}

/// Runs all steps, even if one fails; Ctrl-C ends the running step, and the summary follows.
pub(crate) fn run(options: &Options) -> ExitCode {
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)) {
        eprintln!("warning: Ctrl-C will end this without a summary: {error}");
    }
    let mut results = Vec::new();
    for step in options.steps() {
        if interrupted.load(Ordering::Relaxed) {
            results.push((step, Outcome::Skipped("interrupted".into()), Duration::ZERO));
            continue;
        }
        println!("\n=== {step}");
        let started = Instant::now();
        let outcome = step.run(options, &interrupted);
        results.push((step, outcome, started.elapsed()));
    }
    summary(&results);
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, outcome, _)| outcome.failed())
        .map(|(step, ..)| step.to_string())
        .collect();
    if interrupted.load(Ordering::Relaxed) {
        println!("interrupted");
        return ExitCode::from(130);
    }
    if failed.is_empty() {
        println!("all steps passed");
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    for step in failed {
        println!("  again: cargo xtask test --only {step}");
    }
    ExitCode::FAILURE
}

fn summary(results: &[(Step, Outcome, Duration)]) {
    for (step, outcome, _) in results {
        outcome.repeat(*step);
    }
    println!("\n=== summary");
    for (step, outcome, took) in results {
        println!(
            "{:<8} {:>7.1} s  {outcome}",
            step.to_string(),
            took.as_secs_f64()
        );
    }
}

impl Options {
    fn steps(&self) -> Vec<Step> {
        let wanted = |step: &Step| match self.quick {
            true => step.is_quick(),
            false => self.only.is_empty() || self.only.contains(step),
        };
        let all = Step::value_variants().iter().copied();
        all.filter(wanted).collect()
    }

    fn jobs(&self) -> usize {
        // About half of the time that a program takes it waits, for sockets and timers.
        let twice = || 2 * thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or_else(twice)
    }
}

impl Step {
    fn is_quick(self) -> bool {
        matches!(self, Self::Fmt | Self::Spelling | Self::Build | Self::Test)
    }

    fn run(self, options: &Options, interrupted: &AtomicBool) -> Outcome {
        match self {
            Self::Fmt => checks::fmt(),
            Self::Build => match programs::check() {
                Outcome::Passed => checks::programs_of_the_demo(),
                other => other,
            },
            Self::Spelling => checks::spelling(),
            Self::Test => {
                if !options.quick {
                    // For the tests of the dashboard's page, which skip themselves without.
                    tools::want_programs(&[("chromium", "chromium"), ("npm", "npm")]);
                }
                let limit = options.quick.then_some(QUICK);
                suite::run(options.jobs(), limit, interrupted)
            }
            Self::Loom => checks::loom(),
            Self::Deny => checks::deny(interrupted),
            Self::Fuzz => checks::fuzz(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Outcome {
    fn failed(&self) -> bool {
        matches!(self, Self::Failed | Self::FailedTests(_))
    }

    /// Repeats the output of failed tests at the end of the log.
    fn repeat(&self, step: Step) {
        let (Self::FailedTests(failures) | Self::PassedAgain(failures)) = self else {
            return;
        };
        println!("\n=== failures in {step}");
        for line in &failures.output {
            println!("{line}");
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::PassedAgain(failures) => {
                let names: Vec<_> = failures.tests.iter().map(String::as_str).collect();
                write!(f, "passed only when retried: {}", names.join(", "))
            }
            Self::Failed | Self::FailedTests(_) => f.write_str("FAILED"),
            Self::Interrupted(when) => write!(f, "interrupted: {when}"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}
