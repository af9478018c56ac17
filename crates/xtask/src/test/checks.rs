//! The steps that are one command each, or a few.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{LOOM, Outcome};
use crate::fuzz;
use crate::shell::{Cargo, Ended};
use crate::spelling;
use crate::tools;

/// The seconds for which each fuzz target runs here; `cargo xtask fuzz` runs them longer.
const SMOKE: u64 = 5;
/// The time limit for downloading the database of advisories.
const ADVISORIES: Duration = Duration::from_secs(120);
/// The time limit of loom on CI.
const LOOM_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Runs commands; all of them have to succeed.
pub(super) fn all(commands: impl IntoIterator<Item = Cargo>) -> Outcome {
    let mut outcome = Outcome::Passed;
    for command in commands {
        println!("{command}");
        if !command.succeeds() {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

/// Checks the programs of `cargo xtask demo`, which builds them without Kubernetes: features of a workspace are unified,
/// so no other step compiles them so.
pub(super) fn programs_of_the_demo() -> Outcome {
    let clippy = Cargo::new("clippy").args([
        "--locked",
        "--package",
        "maglor-controller",
        "--package",
        "maglor-cli",
        "--no-default-features",
        "--lib",
        "--bins",
        "--",
        "-D",
        "warnings",
    ]);
    all([clippy])
}

/// Checks the concurrent types with loom.
pub(super) fn loom() -> Outcome {
    all([Cargo::new("test")
        .args(["--release", "--locked", "--test", "guards"])
        .args(["--manifest-path", LOOM, "--target-dir", "target/loom"])
        .at_most(LOOM_LIMIT)])
}

/// Checks the format of members, of the fuzz packages and of loom's, which are not members.
pub(super) fn fmt() -> Outcome {
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

pub(super) fn deny(interrupted: &AtomicBool) -> Outcome {
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
    match (outcome, advisories(check(&["advisories"]), interrupted)) {
        (Outcome::Passed, advisories) => advisories,
        (outcome, _) => outcome,
    }
}

/// Without the tool, which is built from the package registry, a change can still be tested; CI requires it.
pub(super) fn spelling() -> Outcome {
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
fn advisories(command: Cargo, interrupted: &AtomicBool) -> Outcome {
    println!("{command}");
    match command.output_within(ADVISORIES, interrupted) {
        Ok(Ended::Exited { status, .. }) if status.success() => Outcome::Passed,
        Ok(Ended::Exited { output, .. })
            if !output.contains("failed to fetch advisory database") =>
        {
            eprintln!("{output}");
            Outcome::Failed
        }
        Ok(Ended::Interrupted) => Outcome::Interrupted("advisories".into()),
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

pub(super) fn fuzz() -> Outcome {
    if let Err(missing) = tools::fuzzing() {
        return Outcome::Skipped(missing);
    }
    if fuzz::fuzz(&fuzz::targets(), SMOKE).is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}
