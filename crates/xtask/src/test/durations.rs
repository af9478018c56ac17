//! How long test programs took in their last runs, which orders the next one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::shell;

/// What a program is expected to take that has not run here yet: most are faster.
const UNKNOWN: Duration = Duration::from_secs(3);
/// Durations by the names of programs.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Durations(BTreeMap<String, Duration>);

impl Durations {
    /// Reads those of the last runs in this target folder; without them, or if the file is damaged, nothing is known.
    pub(super) fn read() -> Self {
        Self::parse(&fs::read_to_string(file()).unwrap_or_default())
    }

    /// Keeps them for the next run; without them, its order is worse, which is no reason to fail.
    pub(super) fn write(&self) {
        let lines = self
            .0
            .iter()
            .map(|(name, took)| format!("{} {name}\n", took.as_millis()));
        let _ = fs::write(file(), lines.collect::<String>());
    }

    pub(super) fn set(&mut self, name: &str, took: Duration) {
        self.0.insert(name.into(), took);
    }

    /// Forgets the programs that do not exist any more.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    /// Returns what `name` took in its last run, or a guess.
    pub(super) fn expected(&self, name: &str) -> Duration {
        self.0.get(name).copied().unwrap_or(UNKNOWN)
    }

    /// Returns the slowest programs with their durations.
    pub(super) fn slowest(&self, count: usize) -> Vec<String> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, took)| std::cmp::Reverse(**took));
        all.iter()
            .take(count)
            .map(|(name, took)| format!("{name} {:.0} s", took.as_secs_f64()))
            .collect()
    }

    /// Lines of milliseconds and a name.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (millis, name) = line.split_once(' ')?;
            Some((name.into(), Duration::from_millis(millis.parse().ok()?)))
        };
        Self(text.lines().filter_map(line).collect())
    }
}

fn file() -> PathBuf {
    shell::target().join("test-durations.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_unknown() {
        let durations = Durations::parse("1500 -p a --lib\nx -p b --lib\n\n20 -p c --test d\n");
        assert_eq!(
            durations.expected("-p a --lib"),
            Duration::from_millis(1500)
        );
        assert_eq!(durations.expected("-p b --lib"), UNKNOWN);
        assert_eq!(durations.slowest(1), ["-p a --lib 2 s"]);
    }

    #[test]
    fn renamed_programs_are_forgotten() {
        let mut durations = Durations::parse("1500 -p a --lib\n20 -p c --test d\n");
        durations.retain(|name| name == "-p c --test d");
        assert_eq!(durations.slowest(2), ["-p c --test d 0 s"]);
    }
}
