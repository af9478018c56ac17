//! `cargo xtask test`: runs all checks that are required before a change is merged.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::failures::{Failures, Reader};
use crate::fuzz;
use crate::shell::Cargo;
use crate::spelling;
use crate::tools;

/// The suites of `cargo xtask conformance` are checked with the rest.
const ALL: [&str; 3] = ["--workspace", "--features", "maglor-xtask/conformance"];
/// The package that uses loom's atomics; like the fuzz packages it is not a member.
const LOOM: &str = "crates/balance/loom/Cargo.toml";
/// The seconds for which each fuzz target runs here; `cargo xtask fuzz` runs them longer.
const SMOKE: u64 = 5;
/// The time limit of the tests on CI: a test that hangs fails with its name in the output.
const TESTS: Duration = Duration::from_secs(45 * 60);
/// The maximum number of failed tests that are retried.
const AGAIN: usize = 3;
/// The time limit for downloading the database of advisories.
const ADVISORIES: Duration = Duration::from_secs(120);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only this step; may be repeated.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Step {
    /// Check formatting.
    Fmt,
    /// Run clippy.
    Clippy,
    /// Build the documentation without warnings.
    Doc,
    /// Check the spelling of documents and comments.
    Spelling,
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
    /// Failed, with the reason.
    FailedTests(Failures),
    Skipped(String),
}

/// Runs all steps, even if one fails.
pub(crate) fn run(options: &Options) -> ExitCode {
    let wanted = |step: &Step| options.only.is_empty() || options.only.contains(step);
    let steps: Vec<_> = Step::value_variants()
        .iter()
        .copied()
        .filter(wanted)
        .collect();
    let mut results = Vec::new();
    for step in steps {
        println!("\n=== {step}");
        let started = Instant::now();
        let outcome = step.run();
        results.push((step, outcome, started.elapsed()));
    }
    for (step, outcome, _) in &results {
        outcome.repeat(*step);
    }
    println!("\n=== summary");
    for (step, outcome, took) in &results {
        println!(
            "{:<8} {:>7.1} s  {outcome}",
            step.to_string(),
            took.as_secs_f64()
        );
    }
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, outcome, _)| outcome.failed())
        .map(|(step, ..)| step.to_string())
        .collect();
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

impl Step {
    fn run(self) -> Outcome {
        match self {
            Self::Fmt => fmt(),
            Self::Clippy => all([Cargo::new("clippy").args(ALL).args([
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ])]),
            Self::Doc => all([Cargo::new("doc")
                .args(ALL)
                .args(["--no-deps", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings")]),
            Self::Spelling => check_spelling(),
            Self::Test => tests(),
            Self::Loom => all([Cargo::new("test")
                .args(["--release", "--locked", "--test", "guards"])
                .args(["--manifest-path", LOOM, "--target-dir", "target/loom"])
                .at_most(TESTS)]),
            Self::Deny => deny(),
            Self::Fuzz => smoke(),
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
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// Runs commands; all of them have to succeed.
fn all(commands: impl IntoIterator<Item = Cargo>) -> Outcome {
    let mut outcome = Outcome::Passed;
    for command in commands {
        println!("{command}");
        if !command.succeeds() {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

/// All tests in parallel; if few fail, each is retried once, alone.
///
/// They use real sockets and real time, so other load on the machine can stall one for seconds. A test that passes
/// only when retried is reported as flaky at the end and needs a fix.
fn tests() -> Outcome {
    let run = |what: &[&str], names: &[&str]| {
        let command = Cargo::new("test").args(ALL);
        let command = command.args(["--locked", "--no-fail-fast"]).args(what);
        let alone: &[&str] = if names.is_empty() {
            &[]
        } else {
            &["--", "--exact", "--test-threads=1"]
        };
        command_of_tests(command.args(alone).args(names).at_most(TESTS))
    };
    let (passed, failures) = match run(&[], &[]) {
        Ok(ran) => ran,
        Err(error) => {
            eprintln!("error: cargo test: {error}");
            return Outcome::Failed;
        }
    };
    if passed {
        return Outcome::Passed;
    }
    let names: Vec<_> = failures.tests.iter().map(String::as_str).collect();
    // With the whole workspace, because its dependencies would otherwise be built with other
    // features.
    let targets = failures.targets.iter().filter_map(|t| t.split_once("--"));
    let targets: Vec<_> = targets.map(|(_, target)| format!("--{target}")).collect();
    let targets: Vec<_> = targets.iter().flat_map(|t| t.split(' ')).collect();
    if names.is_empty() || names.len() > AGAIN || targets.is_empty() {
        return Outcome::FailedTests(failures);
    }
    match run(&targets, &names) {
        // Names that do not exist would pass, too.
        Ok((true, again)) if again.passed >= names.len() => Outcome::PassedAgain(failures),
        _ => Outcome::FailedTests(failures),
    }
}

/// Runs and prints tests; returns whether they passed, and the failures.
fn command_of_tests(command: Cargo) -> io::Result<(bool, Failures)> {
    println!("{command}");
    let mut reader = Reader::default();
    let passed = command.succeeds_saying(|line| {
        println!("{line}");
        reader.line(line);
    })?;
    Ok((passed, reader.end()))
}

/// Checks the format of members, of the fuzz packages and of loom's, which are not members.
fn fmt() -> Outcome {
    let fuzz = fuzz::folders().into_iter();
    let others = fuzz.map(|folder| folder.join("Cargo.toml"));
    let others = others.chain([LOOM.into()]).map(|manifest| {
        Cargo::new("fmt")
            .arg("--check")
            .arg("--manifest-path")
            .arg(manifest)
    });
    let members = Cargo::new("fmt").args(["--all", "--check"]);
    all(std::iter::once(members).chain(others))
}

fn deny() -> Outcome {
    let binary = match tools::cargo_deny() {
        Ok(binary) => binary,
        Err(missing) => {
            eprintln!("{missing}");
            return Outcome::Failed;
        }
    };
    let check = |what: &[&str]| {
        Cargo::program(&binary, "cargo-deny")
            .args(["--locked", "--workspace", "check"])
            .args(what)
    };
    let outcome = all([check(&["bans", "licenses", "sources"])]);
    match (outcome, advisories(check(&["advisories"]))) {
        (Outcome::Passed, advisories) => advisories,
        (outcome, _) => outcome,
    }
}

/// Without the tool, which is built from the package registry, a change can still be tested; CI requires it.
fn check_spelling() -> Outcome {
    let checked = match tools::typos() {
        Err(missing) if std::env::var_os("CI").is_none() => return Outcome::Skipped(missing),
        typos => typos.and_then(|typos| spelling::check(&typos)),
    };
    match checked {
        Ok(()) => Outcome::Passed,
        Err(error) => {
            eprintln!("{error}");
            Outcome::Failed
        }
    }
}

/// Checks for known vulnerabilities. Their database is on the network; without it the check is
/// skipped.
fn advisories(command: Cargo) -> Outcome {
    println!("{command}");
    match command.errors_within(ADVISORIES) {
        Ok((Some(status), _)) if status.success() => Outcome::Passed,
        Ok((Some(_), text)) if !text.contains("failed to fetch advisory database") => {
            eprintln!("{text}");
            Outcome::Failed
        }
        Ok(_) => {
            println!("advisories: skipped, their database cannot be reached from here");
            Outcome::Passed
        }
        Err(error) => {
            eprintln!("cargo-deny: {error}");
            Outcome::Failed
        }
    }
}

fn smoke() -> Outcome {
    if let Err(missing) = tools::fuzzing() {
        return Outcome::Skipped(missing);
    }
    if fuzz::fuzz(&fuzz::targets(), SMOKE).is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}
