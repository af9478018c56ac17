//! Parses failed tests from the output of `cargo test`.
//!
//! A log of all tests is long, and often only its end is kept: failures are repeated there, with
//! their output.

use std::collections::BTreeSet;

/// The maximum number of failed tests that are retried.
pub(crate) const AGAIN: usize = 3;
/// The maximum number of repeated lines.
const LINES: usize = 300;

/// The failures in one run of `cargo test`.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Failures {
    /// The number of passed tests.
    pub(crate) passed: usize,
    /// The failed tests, by the names in their programs.
    pub(crate) tests: BTreeSet<String>,
    /// Cargo's names of their targets: `-p maglor-proxy --test reload`.
    pub(crate) targets: Vec<String>,
    /// The output about them: their own, and cargo's errors.
    pub(crate) output: Vec<String>,
}

/// A parser of the lines of one run.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    failures: Failures,
    at: Place,
}

#[derive(Debug, Default, Eq, PartialEq)]
enum Place {
    /// Outside of failures.
    #[default]
    Elsewhere,
    /// In the output of failed tests of one program, or in the following list of their names.
    Failed,
    /// After cargo's own error.
    Errors,
}

impl Reader {
    /// Processes the next line, without its end.
    pub(crate) fn line(&mut self, line: &str) {
        match line.trim_end() {
            "failures:" => self.at = Place::Failed,
            line if line.starts_with("test result: ") => {
                self.passed(line);
                if self.at == Place::Failed {
                    self.keep(line);
                }
                self.at = Place::Elsewhere;
            }
            line if line.starts_with("error: ") || line.starts_with("error[") => {
                self.at = Place::Errors;
                self.keep(line);
            }
            // The next program begins; the previous output is complete.
            line if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") => {
                self.at = Place::Elsewhere;
            }
            line if self.at == Place::Elsewhere => self.status(line),
            line => {
                self.status(line);
                self.target(line);
                self.keep(line);
            }
        }
    }

    /// Returns the failures.
    pub(crate) fn end(self) -> Failures {
        self.failures
    }

    /// Parses `test NAME ... FAILED`; output of a test can stand before the last word.
    fn status(&mut self, line: &str) {
        let name = line.strip_prefix("test ").and_then(|rest| {
            let (name, result) = rest.split_once(" ... ")?;
            result.ends_with("FAILED").then_some(name)
        });
        if let Some(name) = name {
            self.failures.tests.insert(name.into());
        }
        // `---- NAME stdout ----`, which exists even if threads have mixed the lines.
        let name = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            self.failures.tests.insert(name.into());
        }
    }

    /// Parses `test result: FAILED. 2 passed; 1 failed; …`
    fn passed(&mut self, line: &str) {
        let number = line.split("; ").next().and_then(|part| {
            let words: Vec<_> = part.split(' ').collect();
            words
                .get(words.len().checked_sub(2)?)?
                .parse::<usize>()
                .ok()
        });
        self.failures.passed += number.unwrap_or(0);
    }

    /// Parses an indented line in backquotes after `error: 2 targets failed:`.
    fn target(&mut self, line: &str) {
        let name = line.strip_prefix("    `").and_then(|l| l.strip_suffix('`'));
        if let (Place::Errors, Some(name)) = (&self.at, name) {
            self.failures.targets.push(name.into());
        }
    }

    fn keep(&mut self, line: &str) {
        if self.failures.output.len() < LINES {
            self.failures.output.push(line.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running tests/reload.rs (target/debug/deps/reload-0123)

running 3 tests
test keeps ... ok
test reload::holds ... FAILED
test renames ... ok

failures:

---- reload::holds stdout ----
thread 'reload::holds' panicked at proxy/tests/reload.rs:5:9:
504 where 200 was wanted

failures:
    reload::holds

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

error: test failed, to rerun pass `-p maglor-proxy --test reload`
     Running tests/queue.rs (target/debug/deps/queue-0123)
test fills ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

error: 1 target failed:
    `-p maglor-proxy --test reload`
";

    fn read(log: &str) -> Failures {
        let mut reader = Reader::default();
        for line in log.lines() {
            reader.line(line);
        }
        reader.end()
    }

    #[test]
    fn failed_tests_are_found_with_what_they_said() {
        let failures = read(LOG);
        assert_eq!(failures.tests, BTreeSet::from(["reload::holds".into()]));
        assert_eq!(failures.passed, 3);
        assert_eq!(failures.targets, ["-p maglor-proxy --test reload"]);
        let output = failures.output.join("\n");
        assert!(
            output.contains("504 where 200 was wanted"),
            "what it said is kept"
        );
        let passed = ["test keeps", "test fills"];
        assert!(
            !passed.iter().any(|name| output.contains(name)),
            "what passed is not: {output}"
        );
    }

    #[test]
    fn a_program_that_does_not_compile_has_no_tests() {
        let failures = read("error[E0425]: cannot find value `x`\n --> src/lib.rs:1:1\n");
        assert_eq!(failures.tests, BTreeSet::new());
        assert_eq!(
            failures.output,
            ["error[E0425]: cannot find value `x`", " --> src/lib.rs:1:1"]
        );
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let long = format!("failures:\n{}", "again\n".repeat(10 * LINES));
        assert_eq!(read(&long).output.len(), LINES);
    }
}
