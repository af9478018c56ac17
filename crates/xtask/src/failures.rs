//! Parses failed tests from the output of `cargo test`.
//!
//! A log of all tests is long, and what is kept of it is often its end alone: what failed is said
//! again there, with what it had to say.

use std::collections::BTreeSet;

/// No more lines are repeated.
const LINES: usize = 300;

/// What failed in one run of `cargo test`.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Failures {
    /// How many tests passed.
    pub(crate) passed: usize,
    /// Tests that failed, by the names that their programs give them.
    pub(crate) tests: BTreeSet<String>,
    /// How cargo names the targets that they are in: `-p maglor-proxy --test reload`.
    pub(crate) targets: Vec<String>,
    /// What was printed about them: their own output, and cargo's errors.
    pub(crate) output: Vec<String>,
}

/// Reads the lines of one run as they come.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    failures: Failures,
    at: Place,
}

#[derive(Debug, Default, Eq, PartialEq)]
enum Place {
    /// Where nothing has failed.
    #[default]
    Elsewhere,
    /// In what failed tests of one program have printed, or in the list of their names after it.
    Failed,
    /// After cargo's own error.
    Errors,
}

impl Reader {
    /// Takes the next line, without its end.
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
            // The next program's; what was said before is over.
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

    /// All that was read.
    pub(crate) fn end(self) -> Failures {
        self.failures
    }

    /// `test NAME ... FAILED`; what a test prints itself can stand before the last word.
    fn status(&mut self, line: &str) {
        let name = line.strip_prefix("test ").and_then(|rest| {
            let (name, result) = rest.split_once(" ... ")?;
            result.ends_with("FAILED").then_some(name)
        });
        if let Some(name) = name {
            self.failures.tests.insert(name.into());
        }
        // `---- NAME stdout ----`, which is there even where threads have mixed the lines.
        let name = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            self.failures.tests.insert(name.into());
        }
    }

    /// `test result: FAILED. 2 passed; 1 failed; …`
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

    /// An indented line in backquotes after `error: 2 targets failed:`.
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
