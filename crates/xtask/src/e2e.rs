//! `cargo xtask e2e`: runs the tests that need a Kubernetes cluster of their own, one after another.
//!
//! Like the other tests, the few that fail are retried once: on a busy machine, a kubelet or a browser may be late.
//! The log is long, so the output of failed tests is repeated at its end.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::ExitCode;

use crate::compiler;
use crate::failures::AGAIN;
use crate::shell::Cargo;
use crate::tools;

/// The number of lines of a failed test that are repeated: its last ones.
const LINES: usize = 120;

pub(crate) fn run() -> ExitCode {
    // Without them, the tests of packages and of the dashboard skip themselves, and print that they do.
    tools::want_programs(&[("mmdebstrap", "mmdebstrap"), ("chromium", "chromium")]);
    match passed() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn passed() -> io::Result<bool> {
    let (passed, failed) = tests(&[])?;
    if passed {
        return Ok(true);
    }
    let names: Vec<_> = failed.keys().map(String::as_str).collect();
    let retried = if names.is_empty() || names.len() > AGAIN {
        false
    } else {
        println!("\n=== retry alone: {}", names.join(" "));
        tests(&names)?.0
    };
    for (name, output) in &failed {
        println!("\n=== the first failure of {name}");
        output.iter().for_each(|line| println!("{line}"));
    }
    let verdict = match retried {
        true => "passed only when retried",
        false => "FAILED",
    };
    println!("\n{verdict}: {}", names.join(", "));
    Ok(retried)
}

/// Runs these tests, or all; returns whether they pass, and the output of those that fail.
fn tests(names: &[&str]) -> io::Result<(bool, BTreeMap<String, Lines>)> {
    let exact = if names.is_empty() {
        None
    } else {
        Some("--exact")
    };
    // Compiled like `cargo xtask test`, so that nothing is compiled again after it.
    let command = compiler::with_warnings(Cargo::new("test"))?
        .args(["--locked", "--no-fail-fast"])
        .args(["-p", "maglor-testkit", "-p", "maglor-controller"])
        .args(["-p", "maglor-cli", "-p", "maglor-xtask"])
        .args(["--test", "main", "--test", "package"])
        .args(["--", "--ignored", "--nocapture", "--test-threads=1"])
        .args(exact)
        .args(names);
    let mut log = Log::default();
    let passed = command.succeeds_printing_both(|line| {
        println!("{line}");
        log.line(line);
    })?;
    Ok((passed, log.failed))
}

/// The last lines of a test.
type Lines = VecDeque<String>;

/// Reads the output of test programs that run one test at a time and do not capture its output.
#[derive(Debug, Default)]
struct Log {
    /// The tests of the running program, in order.
    tests: Vec<(String, Lines)>,
    /// Whether the names of failed tests follow.
    listed: bool,
    failed: BTreeMap<String, Lines>,
}

impl Log {
    fn line(&mut self, line: &str) {
        if line == "failures:" {
            self.listed = true;
        } else if line.trim_start().starts_with("Running ") {
            self.tests.clear();
            self.listed = false;
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.listed) {
            let lines = self.tests.iter().find(|(test, _)| test == name);
            self.failed.extend(lines.cloned());
        } else {
            self.keep(line);
        }
    }

    fn keep(&mut self, line: &str) {
        let begun = line
            .strip_prefix("test ")
            .and_then(|l| l.split_once(" ... "));
        if let Some((name, _)) = begun {
            self.tests.push((name.to_owned(), Lines::new()));
        }
        if let Some((_, lines)) = self.tests.last_mut() {
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Log {
        let mut read = Log::default();
        log.lines().for_each(|line| read.line(line));
        read
    }

    #[test]
    fn failed_tests_are_found_with_their_output() {
        let log = "     Running tests/main.rs (target/debug/deps/main-0123)

running 2 tests
test mesh::meets ... ready after 1 s
ok
test dashboard::shows ... ready after 2 s

thread 'dashboard::shows' panicked at viewer.rs:1:1:
not shown
FAILED

failures:

failures:
    dashboard::shows

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.10s

error: test failed, to rerun pass `-p maglor-testkit --test main`
     Running tests/main.rs (target/debug/deps/main-4567)
test kubernetes::works ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

error: 1 target failed:
    `-p maglor-testkit --test main`
";
        let failed = read(log).failed;
        let names: Vec<_> = failed.keys().collect();
        assert_eq!(names, ["dashboard::shows"]);
        let output: Vec<_> = failed["dashboard::shows"].iter().collect();
        assert_eq!(output[0], "test dashboard::shows ... ready after 2 s");
        assert!(output.iter().any(|line| *line == "not shown"));
        assert!(!output.iter().any(|line| line.contains("after 1 s")));
    }

    #[test]
    fn the_last_lines_of_a_test_are_kept() {
        let lines: String = (0..500).map(|n| format!("{n}\n")).collect();
        let log = format!("test a ... \n{lines}FAILED\nfailures:\n    a\n");
        let failed = read(&log).failed;
        assert_eq!(failed["a"].len(), LINES);
        assert_eq!(failed["a"].back().map(String::as_str), Some("FAILED"));
    }
}
