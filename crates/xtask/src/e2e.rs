//! `cargo xtask e2e`: runs the tests that need a Kubernetes cluster of their own, one after another.
//!
//! They are the ignored tests of programs that `cargo xtask test` builds, too, so nothing is compiled again after it.
//! Like the other tests, the few that fail are retried once: on a busy machine, a kubelet or a browser may be late.
//! The log is long, so the output of failed tests is repeated at its end.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display, Formatter};
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
    let mut failed = Vec::new();
    for program in selected(&built)? {
        failed.extend(tests(program, &[])?);
    }
    if failed.is_empty() {
        return Ok(true);
    }
    let retried = is_retriable(&failed) && again(&failed)?;
    for one in &failed {
        one.print();
    }
    let verdict = match retried {
        true => "passed only when retried",
        false => "FAILED",
    };
    let names: Vec<_> = failed.iter().map(ToString::to_string).collect();
    println!("\n{verdict}: {}", names.join(", "));
    Ok(retried)
}

/// Returns whether the tests that failed are known and few.
fn is_retriable(failed: &[Failed<'_>]) -> bool {
    let known = failed.iter().all(|one| !one.tests.is_empty());
    let count: usize = failed.iter().map(|one| one.tests.len()).sum();
    known && count <= AGAIN
}

/// Runs each of the failed tests in its program alone; returns whether all pass.
fn again(failed: &[Failed<'_>]) -> io::Result<bool> {
    for one in failed {
        println!("\n=== retry alone: {one}");
        let names: Vec<_> = one.tests.keys().cloned().collect();
        if tests(one.program, &names)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns [`PROGRAMS`]; one that is missing is an error, as its tests would not run.
fn selected(built: &[Program]) -> io::Result<Vec<&Program>> {
    let find = |name| {
        let program = built.iter().find(|program| program.name == name);
        program.ok_or_else(|| io::Error::other(format!("no test program: {name}")))
    };
    PROGRAMS.into_iter().map(find).collect()
}

/// A program that failed, and the output of its tests that did; of none if it ended without naming them.
#[derive(Debug)]
struct Failed<'a> {
    program: &'a Program,
    tests: BTreeMap<String, Lines>,
}

impl Failed<'_> {
    fn print(&self) {
        for (name, output) in &self.tests {
            println!("\n=== the first failure of {name}");
            output.iter().for_each(|line| println!("{line}"));
        }
    }
}

impl Display for Failed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.name)?;
        self.tests.keys().try_for_each(|name| write!(f, " {name}"))
    }
}

/// Runs these tests of a program, or all; returns those that failed.
fn tests<'a>(program: &'a Program, names: &[String]) -> io::Result<Option<Failed<'a>>> {
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
        });
    let status = status.map_err(|error| io::Error::other(format!("{}: {error}", program.name)))?;
    if status.success() {
        return Ok(None);
    }
    println!("error: {}: {status}", program.name);
    let tests = log.failed;
    Ok(Some(Failed { program, tests }))
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
    fn a_program_that_names_no_failed_test_is_not_retried() {
        let program = Program::example();
        let failed = |log: &str| Failed {
            program: &program,
            tests: read(log).failed,
        };
        let named = || failed("test a ... FAILED\nfailures:\n    a\n");
        assert!(is_retriable(&[named()]));
        assert!(!is_retriable(&[named(), failed("test b ... killed\n")]));
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
