//! Builds everything in the workspace once, with the same features for all, and names the test programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Outcome;
use crate::compiler;
use crate::shell::Cargo;

/// The suites of `cargo xtask conformance` are built with the rest.
const ALL: [&str; 3] = ["--workspace", "--features", "maglor-xtask/conformance"];
/// The program with all tests of a package that has many files of them: one module a file.
const MERGED: &str = "main";

/// A test program that cargo built, or one of its modules.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Program {
    /// Its package and target, as arguments of `cargo test`: `-p maglor-proxy --test flood_fairness`, and a module as a
    /// filter: `-p maglor-proxy --test main reload::`.
    pub(crate) name: String,
    /// The executable.
    file: PathBuf,
    /// The folder of its package, in which cargo runs it.
    folder: PathBuf,
    /// The tests to run; none: all of the executable.
    tests: Vec<String>,
}

impl Program {
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            name: "-p maglor-testkit --test main".into(),
            file: "main".into(),
            folder: ".".into(),
            tests: Vec::new(),
        }
    }

    /// Returns the command that runs it.
    pub(crate) fn command(&self) -> Cargo {
        match self.tests.is_empty() {
            true => self.executable(),
            false => self.only(&self.tests),
        }
    }

    /// Returns the command that runs only these of its tests.
    pub(crate) fn only(&self, tests: &[String]) -> Cargo {
        self.executable().arg("--exact").args(tests)
    }

    fn executable(&self) -> Cargo {
        Cargo::program(&self.file, &self.file.display().to_string()).folder(&self.folder)
    }

    /// Returns its modules if it is a merged program. Each is run as a program: in a process of its own, with a
    /// duration of its own, at the same time as the others.
    fn modules(self) -> io::Result<Vec<Self>> {
        if !self.name.ends_with(&format!("--test {MERGED}")) {
            return Ok(vec![self]);
        }
        let list = Command::new(&self.file)
            .args(["--list", "--format=terse"])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !list.status.success() {
            let message = format!("{} --list: {}", self.file.display(), list.status);
            return Err(io::Error::other(message));
        }
        Ok(self.split(&String::from_utf8_lossy(&list.stdout)))
    }

    /// Returns its modules by the list of its tests.
    fn split(self, list: &str) -> Vec<Self> {
        let mut modules = BTreeMap::<_, Vec<_>>::new();
        let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
        for test in tests {
            let module = test.split_once("::").map_or("", |(module, _)| module);
            modules.entry(module).or_default().push(test.to_owned());
        }
        let module = |(module, tests)| Self {
            name: format!("{} {module}::", self.name),
            tests,
            ..self.clone()
        };
        modules.into_iter().map(module).collect()
    }
}

/// What a build has produced.
#[derive(Debug, Default)]
struct Build {
    /// Whether everything compiles.
    compiles: bool,
    programs: Vec<Program>,
    /// The warnings and errors of the compiler, clippy and rustdoc.
    diagnostics: BTreeSet<String>,
}

impl Build {
    fn print(&self) {
        for diagnostic in &self.diagnostics {
            eprintln!("{diagnostic}");
        }
        eprintln!("{} warnings and errors", self.diagnostics.len());
    }
}

/// Builds everything; fails if anything does not compile or has a warning.
pub(super) fn check() -> Outcome {
    match run() {
        Ok(build) if build.compiles && build.diagnostics.is_empty() => Outcome::Passed,
        Ok(build) => {
            build.print();
            Outcome::Failed
        }
        Err(error) => {
            eprintln!("error: cargo test: {error}");
            Outcome::Failed
        }
    }
}

/// Builds all test programs; `None`: they do not compile.
pub(crate) fn build() -> io::Result<Option<Vec<Program>>> {
    let build = run()?;
    if !build.compiles {
        build.print();
        return Ok(None);
    }
    Ok(Some(build.programs))
}

/// Builds all test programs, and returns merged ones as their modules; `None`: they do not compile.
pub(super) fn build_modules() -> io::Result<Option<Vec<Program>>> {
    let Some(programs) = build()? else {
        return Ok(None);
    };
    let modules: io::Result<Vec<_>> = programs.into_iter().map(Program::modules).collect();
    Ok(Some(modules?.concat()))
}

/// Returns the subcommand of cargo with which both the programs and the tests of the documentation are built.
pub(super) fn cargo_test() -> io::Result<Cargo> {
    Ok(compiler::with_warnings(Cargo::new("test"))?
        .args(ALL)
        .arg("--locked"))
}

fn run() -> io::Result<Build> {
    let format = match io::stderr().is_terminal() {
        true => "json-diagnostic-rendered-ansi",
        false => "json",
    };
    let command = cargo_test()?
        .args(["--all-targets", "--no-run", "--no-fail-fast"])
        .args(["--message-format", format]);
    println!("{command}");
    let mut build = Build::default();
    build.compiles = command.succeeds_printing(|line| {
        if let Ok(message) = serde_json::from_str::<Value>(line) {
            build.programs.extend(program(&message));
            build.diagnostics.extend(diagnostic(&message));
        }
    })?;
    Ok(build)
}

/// Returns the text of a warning or an error. Only the packages of the workspace have any.
fn diagnostic(message: &Value) -> Option<String> {
    let is_diagnostic = message["reason"] == "compiler-message";
    // The last one is a count.
    let is_about_code = message["message"]["spans"]
        .as_array()
        .is_some_and(|spans| !spans.is_empty());
    let is_error = message["message"]["level"] == "error";
    let text = message["message"]["rendered"].as_str()?;
    (is_diagnostic && (is_about_code || is_error)).then(|| text.to_owned())
}

/// Returns the test program of a message of cargo, if it is about one.
fn program(message: &Value) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let file = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let target = &message["target"];
    let (kind, name) = (target["kind"][0].as_str()?, target["name"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    let package = package(message["package_id"].as_str()?)?;
    let what = match kind {
        // They measure.
        "bench" => return None,
        "test" | "bin" | "example" => format!("--{kind} {name}"),
        _ => "--lib".into(),
    };
    Some(Program {
        name: format!("-p {package} {what}"),
        file: file.into(),
        folder,
        tests: Vec::new(),
    })
}

/// Returns the name in a package id: `path+file:///…/crates/x#maglor-x@0.1.0` or `…/maglor-x#0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (path, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, kind: &str, test: bool) -> Value {
        serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": id,
            "manifest_path": "/w/proxy/Cargo.toml",
            "target": {"kind": [kind], "name": "reload"},
            "profile": {"test": test},
            "executable": "/w/target/debug/deps/reload-01",
        })
    }

    #[test]
    fn test_programs_are_named_as_on_the_command_line() {
        let cases = [
            (
                "path+file:///w/proxy#maglor-proxy@0.1.0",
                "test",
                "-p maglor-proxy --test reload",
            ),
            ("path+file:///w/maglor-x#0.1.0", "lib", "-p maglor-x --lib"),
            (
                "path+file:///w/maglor-x#0.1.0",
                "bin",
                "-p maglor-x --bin reload",
            ),
        ];
        for (id, kind, name) in cases {
            let program = program(&message(id, kind, true)).unwrap();
            assert_eq!(program.name, name);
            assert_eq!(program.folder, PathBuf::from("/w/proxy"));
        }
    }

    #[test]
    fn a_merged_program_is_run_by_modules() {
        let id = "path+file:///w/proxy#maglor-proxy@0.1.0";
        let mut message = message(id, "test", true);
        message["target"]["name"] = MERGED.into();
        let merged = program(&message).unwrap();
        let list =
            "http1::a: test\nhttp1::deep::b: test\nhttp1_limits::a: test\nhttp1::c: benchmark\n";
        let modules = merged.split(list);
        let found: Vec<_> = modules
            .iter()
            .map(|module| (module.name.as_str(), module.tests.join(" ")))
            .collect();
        let expected = [
            (
                "-p maglor-proxy --test main http1::",
                "http1::a http1::deep::b",
            ),
            (
                "-p maglor-proxy --test main http1_limits::",
                "http1_limits::a",
            ),
        ];
        assert_eq!(found, expected.map(|(name, tests)| (name, tests.into())));
        let command = modules[0].command().to_string();
        assert_eq!(
            command,
            "/w/target/debug/deps/reload-01 --exact http1::a http1::deep::b"
        );
    }

    #[test]
    fn programs_that_are_no_tests_are_left_out() {
        let id = "path+file:///w/proxy#maglor-proxy@0.1.0";
        assert_eq!(program(&message(id, "bin", false)), None);
        assert_eq!(program(&message(id, "bench", true)), None);
        let end = serde_json::json!({"reason": "build-finished", "success": true});
        assert_eq!(program(&end), None);
    }
}
