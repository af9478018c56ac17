//! The results: a table, all findings, and the files that are selected for a manual check.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The result for a file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Verdict {
    /// It has resources for the mesh, and all of them would apply.
    Whole,
    /// It would apply except for the reported fields.
    Named,
    /// One of its resources would not be accepted by the API server.
    Refused,
    /// It has no resources for the mesh.
    Other,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Named => "named",
            Self::Refused => "refused",
            Self::Other => "other",
        }
    }
}

/// The output of `maglor analyze` for a file.
#[derive(Debug)]
pub(super) struct Outcome {
    verdict: Verdict,
    resources: usize,
    /// `LINE: SEVERITY: RESOURCE: MESSAGE (REASON)`.
    findings: Vec<String>,
}

/// Returns the number of resources for the mesh, from the last line of `maglor analyze`.
pub(super) fn resources(text: &str) -> usize {
    let last = text.lines().last().and_then(|line| line.split(' ').next());
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl Outcome {
    pub(super) fn read(text: &str, resources: usize) -> Self {
        let own = text
            .lines()
            .filter_map(|line| line.strip_prefix("sample.yaml:"));
        let findings: Vec<String> = own.map(str::to_owned).collect();
        let is_error = |finding: &String| finding.contains(": error: ");
        let verdict = if findings.iter().any(is_error) {
            Verdict::Refused
        } else if !findings.is_empty() {
            Verdict::Named
        } else if resources > 0 {
            Verdict::Whole
        } else {
            Verdict::Other
        };
        Self {
            verdict,
            resources,
            findings,
        }
    }

    /// Returns the reasons of its findings with their numbers: `UnsupportedValue 2`.
    fn reasons(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in &self.findings {
            let reason = finding.rsplit_once('(').map(|(_, reason)| reason);
            *counts
                .entry(reason.unwrap_or_default().trim_end_matches(')'))
                .or_default() += 1;
        }
        let each = counts
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// All files and their findings.
#[derive(Debug, Default)]
pub(super) struct Report {
    files: Vec<(String, Outcome)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &str, outcome: Outcome) {
        self.files.push((name.to_owned(), outcome));
    }

    /// Returns the number of files of each part by verdict.
    pub(super) fn summary(&self) -> String {
        let part = |name: &str| name.split('/').take(2).collect::<Vec<_>>().join("/");
        let part = |name: &str| match name.split('/').next() {
            Some("istio-api") => "istio-api (comments)".to_owned(),
            _ => part(name),
        };
        let mut counts: BTreeMap<String, BTreeMap<Verdict, usize>> = BTreeMap::new();
        for (name, outcome) in &self.files {
            for row in [part(name), "together".to_owned()] {
                *counts
                    .entry(row)
                    .or_default()
                    .entry(outcome.verdict)
                    .or_default() += 1;
            }
        }
        let verdicts = [
            Verdict::Whole,
            Verdict::Named,
            Verdict::Refused,
            Verdict::Other,
        ];
        let mut text = "| samples | files | whole | named | refused | other |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
        for (row, counts) in &counts {
            let all: usize = counts.values().sum();
            let each = verdicts.map(|one| counts.get(&one).copied().unwrap_or(0).to_string());
            let _ = writeln!(text, "| {row} | {all} | {} |", each.join(" | "));
        }
        text
    }

    pub(super) fn write(&self, out: &Path, cases: usize, seed: u64) -> Result<(), String> {
        let mut table = format!(
            "{}\n| file | | resources | findings |\n| --- | --- | --- | --- |\n",
            self.summary()
        );
        let mut findings = String::new();
        for (name, outcome) in &self.files {
            let (verdict, resources) = (outcome.verdict.name(), outcome.resources);
            let _ = writeln!(
                table,
                "| {name} | {verdict} | {resources} | {} |",
                outcome.reasons()
            );
            for finding in &outcome.findings {
                let _ = writeln!(findings, "{name}:{finding}");
            }
        }
        let mut chosen = format!("# {cases} files, seed {seed}\n");
        for at in choose(self.files.len(), cases, seed) {
            let (name, outcome) = &self.files[at];
            let _ = write!(chosen, "\n{name}: {}\n", outcome.verdict.name());
            for finding in &outcome.findings {
                let _ = writeln!(chosen, "  {finding}");
            }
        }
        for (name, text) in [
            ("table.md", table),
            ("findings.txt", findings),
            ("cases.txt", chosen),
        ] {
            let path = out.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns different numbers below `all`, sorted; the same for the same seed (SplitMix64).
fn choose(all: usize, cases: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut left: Vec<usize> = (0..all).collect();
    let mut chosen = Vec::new();
    while chosen.len() < cases && !left.is_empty() {
        let length = u64::try_from(left.len()).unwrap_or(u64::MAX);
        let at = usize::try_from(next() % length).unwrap_or(0);
        chosen.push(left.swap_remove(at));
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_judged_by_its_own_findings() {
        let text = "beside-0.yaml:1: error: Service a: x (Invalid)\nsample.yaml:3: warning: VirtualService a/b: y: z (PartiallySupported)\n2 resources, 0 of other kinds: 1 errors, 1 warnings\n";
        let outcome = Outcome::read(text, 1);
        assert_eq!(outcome.verdict, Verdict::Named);
        assert_eq!(outcome.reasons(), "PartiallySupported 1");
        assert_eq!(resources(text), 2);
        assert_eq!(Outcome::read("", 1).verdict, Verdict::Whole);
        assert_eq!(Outcome::read("", 0).verdict, Verdict::Other);
    }

    #[test]
    fn a_choice_is_repeatable_and_without_repeats() {
        let chosen = choose(100, 40, 1);
        assert_eq!(chosen, choose(100, 40, 1));
        assert_ne!(chosen, choose(100, 40, 2));
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]) && chosen.len() == 40);
        assert_eq!(choose(3, 40, 1), [0, 1, 2]);
    }
}
