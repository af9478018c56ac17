//! The results: a line for each case on the terminal, a section for each suite in a file, and one
//! summary of all sections.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

/// Collects the cases of one run.
#[derive(Debug)]
pub(super) struct Report {
    folder: PathBuf,
    suite: &'static str,
    cases: Vec<Case>,
    notes: Vec<String>,
    failed: usize,
}

#[derive(Debug)]
struct Case {
    name: String,
    passed: bool,
    detail: String,
}

/// Returns `benches/results/<date>-conformance`, by the clock of this machine (UTC).
pub(super) fn default_folder(root: &Path) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date = now.split('T').next().unwrap_or_default();
    root.join("benches/results")
        .join(format!("{date}-conformance"))
}

impl Report {
    pub(super) fn new(folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(Self {
            folder,
            suite: "",
            cases: Vec::new(),
            notes: Vec::new(),
            failed: 0,
        })
    }

    /// Starts a suite.
    pub(super) fn begin(&mut self, suite: &'static str) {
        println!("== {suite}");
        self.suite = suite;
        self.cases.clear();
        self.notes.clear();
    }

    pub(super) fn pass(&mut self, name: impl Into<String>, detail: impl Into<String>) {
        self.push(name.into(), true, detail.into());
    }

    pub(super) fn fail(&mut self, name: impl Into<String>, detail: impl Into<String>) {
        self.push(name.into(), false, detail.into());
    }

    /// Records a case, passed with details or failed with the reason.
    pub(super) fn case(&mut self, name: impl Into<String>, result: anyhow::Result<String>) {
        match result {
            Ok(detail) => self.pass(name, detail),
            Err(error) => self.fail(name, format!("{error:#}")),
        }
    }

    /// Adds a note to a suite, such as its command.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn push(&mut self, name: String, passed: bool, detail: String) {
        println!("{} {name}: {detail}", if passed { "ok  " } else { "FAIL" });
        self.failed += usize::from(!passed);
        self.cases.push(Case {
            name,
            passed,
            detail,
        });
    }

    /// Writes the raw output of a tool.
    pub(super) fn raw(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(format!("{}-{name}", self.suite));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Writes the section of the suite.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let passed = self.cases.iter().filter(|case| case.passed).count();
        let all = self.cases.len();
        let mut text = format!("## {}: {passed} of {all} passed\n\n", self.suite);
        for note in &self.notes {
            writeln!(text, "{note}\n")?;
        }
        text.push_str("| case | result | |\n|---|---|---|\n");
        for case in &self.cases {
            let result = if case.passed { "passed" } else { "**failed**" };
            let detail = case.detail.replace('|', "\\|").replace('\n', " ");
            writeln!(text, "| {} | {result} | {detail} |", case.name)?;
        }
        fs::write(self.section(self.suite), text).context("writing a section of the report")
    }

    fn section(&self, suite: &str) -> PathBuf {
        self.folder.join(format!("{suite}.md"))
    }

    /// Merges all sections, including those of earlier runs; returns the number of failures of this
    /// one.
    pub(super) fn summarize(&self, suites: &[&str]) -> anyhow::Result<usize> {
        let mut text = String::from(
            "# Conformance\n\n\
             Made by `cargo xtask conformance` against a binary of the proxy: that of profile \
             `quick` (release with thin LTO), or what `--proxy` names. Everything runs on loopback of one machine; the raw \
             output of the tools is beside this file.\n",
        );
        for suite in suites {
            if let Ok(section) = fs::read_to_string(self.section(suite)) {
                write!(text, "\n{section}")?;
            }
        }
        let path = self.folder.join("summary.md");
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        println!("{} cases failed; see {}", self.failed, path.display());
        Ok(self.failed)
    }
}
