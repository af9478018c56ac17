//! Whether a result is older than the code that it measures, by the history of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of all results.
pub(super) const RESULTS: &str = "benches/results";

/// The code that results measure, by a word of the folder's name; all others measure [`DATA_PATH`].
const MEASURED: [(&str, &[&str]); 8] = [
    (
        "autoscale",
        &["crates/lab/src/autoscale", "crates/service-graph/src"],
    ),
    ("control", CONTROL_PLANE),
    ("dashboard", &["controller/src"]),
    ("distribution", CONTROL_PLANE),
    ("h3", SIMULATOR),
    ("placement", &["crates/service-graph/src"]),
    ("reconnect", CONTROL_PLANE),
    ("weights", SIMULATOR),
];
/// A request passes this code. The control thread and the command line are not part of it.
const DATA_PATH: &[&str] = &[
    "crates/balance/src",
    "crates/config/src/normal_path.rs",
    "proxy/src",
    ":(exclude)proxy/src/cli",
    ":(exclude)proxy/src/control",
];
const CONTROL_PLANE: &[&str] = &["controller/src", "crates/xds/src"];
/// Without the command line.
const SIMULATOR: &[&str] = &[
    "crates/balance/src",
    "crates/lab/src",
    ":(exclude)crates/lab/src/commands",
    ":(exclude)crates/lab/src/main.rs",
];
/// Tests are not measured.
const NO_TESTS: [&str; 2] = [":(exclude,glob)**/tests.rs", ":(exclude,glob)**/tests/**"];
/// The row of a table that names the measured commit.
const COMMIT: &str = "| commit";

/// A result, compared with the code of now.
#[derive(Debug, Clone, Copy, Eq, PartialEq)]
pub(super) enum Age {
    /// Only comments and tests have changed since.
    Current,
    Older,
    /// The history does not reach back to the result, or there is none.
    Unknown,
}

/// The ages of results in one working tree.
#[derive(Debug)]
pub(super) struct Ages {
    root: PathBuf,
}

impl Ages {
    pub(super) fn of(root: &Path) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// Returns the age of a folder of results; uncommitted changes of the code count.
    pub(super) fn age(&self, folder: &str) -> Age {
        let Some(base) = self.measured(folder).or_else(|| self.added(folder)) else {
            return Age::Unknown;
        };
        let mut arguments = vec!["diff", "-U0", "-I", "^[[:space:]]*//"];
        arguments.extend(["--ignore-blank-lines", "--no-color", &base, "--"]);
        arguments.extend(code(folder).iter().chain(&NO_TESTS));
        match self.git(&arguments) {
            Some(diff) if diff.lines().any(|line| line.starts_with("@@")) => Age::Older,
            Some(_) => Age::Current,
            None => Age::Unknown,
        }
    }

    /// The commit that the results name, if the repository has it and nothing was changed in it.
    fn measured(&self, folder: &str) -> Option<String> {
        let folder = self.root.join(RESULTS).join(folder);
        let texts = ["summary.md", "README.md"].map(|name| fs::read_to_string(folder.join(name)));
        let texts = texts.into_iter().flatten().collect::<String>();
        let row = texts.lines().find(|line| line.starts_with(COMMIT))?;
        let commit = row.split('|').nth(2)?.trim();
        if commit.len() < 7 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.git(&["cat-file", "-e", &format!("{commit}^{{commit}}")])?;
        Some(commit.to_owned())
    }

    /// The commit that added the results, or the current one if they are not committed.
    ///
    /// A commit without a parent, as in a shallow clone, adds all files and so dates none.
    fn added(&self, folder: &str) -> Option<String> {
        let path = format!("{RESULTS}/{folder}");
        let log = self.git(&["log", "--diff-filter=A", "--format=%H", "--", &path])?;
        let commit = log.lines().last().unwrap_or("HEAD");
        self.git(&["rev-parse", "--verify", "--quiet", &format!("{commit}^")])?;
        Some(commit.to_owned())
    }

    /// The output of git, if it is installed, the folder is a repository and the command succeeds.
    fn git(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("git");
        let output = command.arg("-C").arg(&self.root).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The paths of the code that a folder of results measures, as arguments of git.
fn code(folder: &str) -> &'static [&'static str] {
    let mut words = folder.split('-');
    let found = words.find_map(|word| MEASURED.iter().find(|(name, _)| *name == word));
    found.map_or(DATA_PATH, |(_, paths)| paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository whose first commit has a README only.
    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Self {
            let repository = Self(tempfile::tempdir().unwrap());
            repository.git(&["init", "--quiet"]);
            repository.commit("README.md", "# A");
            repository
        }

        fn root(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn commit(&self, path: &str, text: &str) {
            self.write(path, text);
            self.git(&["add", "."]);
            self.git(&["commit", "--quiet", "-m", path]);
        }

        fn git(&self, arguments: &[&str]) -> String {
            let name = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            let mut git = Command::new("git");
            let output = git.arg("-C").arg(self.root()).args(name).args(arguments);
            let output = output.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        fn age(&self, folder: &str) -> Age {
            Ages::of(self.root()).age(folder)
        }
    }

    #[test]
    fn results_age_by_changes_of_the_code_that_they_measure() {
        let repository = Repository::new();
        repository.commit("proxy/src/http/a.rs", "fn a() {}\n");
        repository.commit("benches/results/2026-01-01-mesh/summary.md", "# A");
        repository.commit("benches/results/2026-01-01-placement/README.md", "# B");
        assert_eq!(repository.age("2026-01-01-mesh"), Age::Current);

        repository.commit("proxy/src/http/a.rs", "// Why.\nfn a() {}\n");
        repository.commit("proxy/src/control/b.rs", "fn b() {}\n");
        repository.commit("proxy/src/http/tests/c.rs", "fn c() {}\n");
        repository.commit("benches/results/2026-01-01-mesh/summary.md", "# B");
        assert_eq!(repository.age("2026-01-01-mesh"), Age::Current);

        repository.write("proxy/src/http/a.rs", "fn a() -> u8 { 1 }\n");
        assert_eq!(repository.age("2026-01-01-mesh"), Age::Older);
        assert_eq!(repository.age("2026-01-01-placement"), Age::Current);
    }

    #[test]
    fn a_named_commit_precedes_that_of_the_results() {
        let repository = Repository::new();
        repository.commit("proxy/src/a.rs", "fn a() {}\n");
        let measured = repository.git(&["rev-parse", "--short=12", "HEAD"]);
        repository.commit("proxy/src/a.rs", "fn a() -> u8 { 1 }\n");
        let row = format!("| what | here |\n| commit |   {measured} |\n");
        repository.commit("benches/results/2026-01-01/summary.md", &row);
        assert_eq!(repository.age("2026-01-01"), Age::Older);

        // A changed working tree was measured: its commit is not the measured code.
        let row = row.replace(&measured, &format!("{measured}-dirty"));
        repository.commit("benches/results/2026-01-02/summary.md", &row);
        assert_eq!(repository.age("2026-01-02"), Age::Current);
    }

    #[test]
    fn without_history_the_age_is_unknown() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(Ages::of(empty.path()).age("2026-01-01"), Age::Unknown);
        let repository = Repository::new();
        repository.write("benches/results/2026-01-01/summary.md", "# A");
        repository.write("proxy/src/a.rs", "fn a() {}\n");
        repository.git(&["add", "."]);
        repository.git(&["commit", "--quiet", "--amend", "-m", "all at once"]);
        assert_eq!(repository.age("2026-01-01"), Age::Unknown);
    }
}
