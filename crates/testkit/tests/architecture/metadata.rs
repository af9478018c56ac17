//! Cargo's metadata of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .find(|dir| dir.join("Cargo.lock").exists())
        .expect("the workspace has a lock file")
        .to_owned()
}

/// For each package of the workspace: which others it depends on, dev-dependencies left out.
pub(crate) fn workspace_edges() -> BTreeMap<String, BTreeSet<String>> {
    let packages = packages();
    let names: BTreeSet<&str> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"].as_array().expect("dependencies");
            let uses = uses
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(name)
                .filter(|used| names.contains(used))
                .map(str::to_owned)
                .collect();
            (name(package).to_owned(), uses)
        })
        .collect()
}

/// For each package of the workspace: its folder, and what its sources call its dependencies of all kinds.
pub(crate) fn dependencies() -> Vec<(String, PathBuf, BTreeSet<String>)> {
    let of = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let all = package["dependencies"].as_array().expect("dependencies");
        let named = all
            .iter()
            .map(|one| one["rename"].as_str().unwrap_or(name(one)).to_owned());
        let folder = manifest.parent().expect("a folder").to_owned();
        (name(package).to_owned(), folder, named.collect())
    };
    packages().iter().map(of).collect()
}

/// What cargo builds of a package for tests.
pub(crate) struct Targets {
    pub(crate) folder: PathBuf,
    /// The files that are programs of tests.
    pub(crate) tests: BTreeSet<PathBuf>,
    /// The files of libraries and programs whose own tests are turned off.
    pub(crate) untested: Vec<PathBuf>,
    /// Whether examples of the library are tested, if it has a library.
    pub(crate) doctest: Option<bool>,
}

/// Those of each package of the workspace.
pub(crate) fn targets() -> Vec<Targets> {
    let of = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let targets = package["targets"].as_array().expect("targets");
        let is = |target: &&Value, kind: &str| target["kind"][0] == kind;
        let file = |target: &Value| PathBuf::from(target["src_path"].as_str().expect("a path"));
        let tests = targets.iter().filter(|target| is(target, "test"));
        let library = targets.iter().find(|target| is(target, "lib"));
        let tested = targets
            .iter()
            .filter(|target| is(target, "lib") || is(target, "bin"));
        Targets {
            folder: manifest.parent().expect("a folder").to_owned(),
            tests: tests.map(file).collect(),
            untested: tested
                .filter(|target| target["test"] == false)
                .map(file)
                .collect(),
            doctest: library.map(|library| library["doctest"] == true),
        }
    };
    packages().iter().map(of).collect()
}

fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    let mut metadata: Value = serde_json::from_str(&text).expect("cargo metadata prints JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        _ => panic!("cargo metadata lists packages"),
    }
}

/// The packages that a package is made of, as `cargo tree` resolves them for this platform.
///
/// Not from `cargo metadata`: it shows optional dependencies that are not enabled.
pub(crate) struct Linked {
    /// Depth in the tree and name, in the order of the tree; repeated entries have no
    /// branches the second time.
    lines: Vec<(usize, String)>,
}

impl Linked {
    /// `None` if the workspace does not have the package. `flags` select its features.
    pub(crate) fn of(package: &str, flags: &[&str]) -> Option<Self> {
        if !workspace_edges().contains_key(package) {
            return None;
        }
        let args = "tree --locked --edges normal --prefix depth --package";
        let flags = flags.iter().copied();
        let args: Vec<_> = args.split(' ').chain([package]).chain(flags).collect();
        let lines = cargo(&args).lines().map(parse_line).collect();
        Some(Self { lines })
    }

    /// Names of all packages, including the requested one.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.lines.iter().map(|(_, name)| name.as_str()).collect()
    }

    /// Names of the packages on a way to one, if it is linked.
    pub(crate) fn way_to(&self, target: &str) -> Option<Vec<&str>> {
        let at = self.lines.iter().position(|(_, name)| name == target)?;
        let mut depth = self.lines[at].0;
        let mut way = vec![self.lines[at].1.as_str()];
        for (above, name) in self.lines[..at].iter().rev() {
            if *above < depth {
                depth = *above;
                way.push(name);
            }
        }
        way.reverse();
        Some(way)
    }
}

/// `12serde v1.0.0 (*)` is serde at depth 12.
fn parse_line(line: &str) -> (usize, String) {
    let digits = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let (depth, rest) = line.split_at(digits);
    let name = rest.split(' ').next().unwrap_or_default();
    (depth.parse().expect("a depth"), name.to_owned())
}

fn name(value: &Value) -> &str {
    value["name"].as_str().expect("a name")
}

fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(args)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("cargo prints text")
}
