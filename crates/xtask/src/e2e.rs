//! `cargo xtask e2e`: runs the tests that need a Kubernetes cluster of their own, one after another.
//!
//! They are the ignored tests of programs that `cargo xtask test` builds, too, so nothing is compiled again after it.
//! Like the other tests, the few that fail are retried once: on a busy machine, a kubelet or a browser may be late.
//! The log is long, so the output of failed tests is repeated at its end.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::ExitCode;

use crate::failures::AGAIN;
use crate::test::programs::{self, Program};
use crate::tools;

/// The programs with these tests, in order. Others have ignored tests, too, which measure or take long.
const PROGRAMS: [&str; 4] = [
    "-p maglor-cli --test main",
    "-p maglor-controller --test main",
    "-p maglor-testkit --test main",
    "-p maglor-xtask --test package",
];
/// The number of lines of a failed test that are repeated: its last ones.
const LINES: usize = 120;

pub(crate) fn run() -> ExitCode {
    // Without them, the tests of packages and of the dashboard skip themselves, and print that they do.
    tools::want_programs(&[("mmdebstrap", "mmdebstrap"), ("chromium", "chromium")]);
    match passed() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn passed() -> io::Result<bool> {
    let Some(built) = programs::build()? else {
        return Ok(false);
    };
    let programs = selected(&built)?;
    let (passed, failed) = tests(&programs, &[])?;
    if passed {
        return Ok(true);
    }
    let names: Vec<_> = failed.keys().cloned().collect();
    let retried = if names.is_empty() || names.len() > AGAIN {
        false
    } else {
        println!("\n=== retry alone: {}", names.join(" "));
        tests(&programs, &names)?.0
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

/// Returns [`PROGRAMS`]; one that is missing is an error, as its tests would not run.
fn selected(built: &[Program]) -> io::Result<Vec<&Program>> {
    let find = |name| {
        let program = built.iter().find(|program| program.name == name);
        program.ok_or_else(|| io::Error::other(format!("no test program: {name}")))
    };
    PROGRAMS.into_iter().map(find).collect()
}

/// Runs these tests of the programs, or all; returns whether they pass, and the output of those that fail.
fn tests(programs: &[&Program], names: &[String]) -> io::Result<(bool, BTreeMap<String, Lines>)> {
    let (mut passed, mut failed) = (true, BTreeMap::new());
    for program in programs {
        println!("\n=== {}", program.name);
        let command = match names {
            [] => program.command(),
            _ => program.only(names),
        };
        let mut log = Log::default();
        let status = command
            .args(["--ignored", "--nocapture", "--test-threads=1"])
            .status_printing_both(|line| {
                println!("{line}");
                log.line(line);
            })?;
        if !status.success() {
            println!("error: {}: {status}", program.name);
            passed = false;
        }
        failed.extend(log.failed);
    }
    Ok((passed, failed))
}

/// The last lines of a test.
type Lines = VecDeque<String>;

/// Reads the output of a test program that runs one test at a time and does not capture its output.
#[derive(Debug, Default)]
struct Log {
    /// Its tests, in order.
    tests: Vec<(String, Lines)>,
    /// Whether the names of failed tests follow.
    listed: bool,
    failed: BTreeMap<String, Lines>,
}

impl Log {
    fn line(&mut self, line: &str) {
        if line == "failures:" {
            self.listed = true;
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
        let log = "
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
