//! Builds the documentation of items from what clippy has checked.
//!
//! `cargo doc` by itself would check a third of the dependencies and all packages a second time: without the features
//! that tests enable, and without clippy. So examples are documented too, since with them dependencies have these
//! features, and packages are checked by the program and the arguments that `cargo clippy` sets. If those differ, this
//! only takes longer.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Outcome;
use super::checks;
use crate::shell::Cargo;

/// Documents libraries, programs and examples, with `features`.
pub(super) fn run(features: &[&str]) -> Outcome {
    let (programs, driver) = match programs().and_then(|programs| Ok((programs, driver()?))) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("error: {error}");
            return Outcome::Failed;
        }
    };
    let programs = programs.iter().flat_map(|name| ["--bin", name]);
    let arguments = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";
    checks::all([Cargo::new("doc")
        .args(features)
        .args(["--no-deps", "--locked", "--lib", "--examples"])
        .args(programs)
        .env("RUSTDOCFLAGS", "-D warnings")
        .env("RUSTC_WORKSPACE_WRAPPER", driver)
        .env("CLIPPY_ARGS", arguments)])
}

/// Returns the programs of the workspace that have a page of their own.
fn programs() -> io::Result<Vec<String>> {
    let metadata = ["--no-deps", "--format-version", "1", "--locked"];
    let text = line_of(Cargo::new("metadata").args(metadata))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages.flat_map(documented).collect())
}

/// Returns the programs of a package, except one that has the name of its library: so does its page.
fn documented(package: &Value) -> Vec<String> {
    let targets = || package["targets"].as_array().into_iter().flatten();
    let name = |target: &Value| target["name"].as_str().unwrap_or_default().to_owned();
    let libraries: Vec<_> = targets()
        .filter(|target| target["kind"][0] == "lib")
        .map(name)
        .collect();
    targets()
        .filter(|target| target["kind"][0] == "bin")
        .map(name)
        .filter(|program| !libraries.contains(&program.replace('-', "_")))
        .collect()
}

/// Returns the compiler that `cargo clippy` calls, by the path that it finds.
fn driver() -> io::Result<PathBuf> {
    let sysroot = line_of(Cargo::program("rustc", "rustc").args(["--print", "sysroot"]))?;
    Ok(Path::new(&sysroot)
        .canonicalize()?
        .join("bin/clippy-driver"))
}

/// Returns the line that a command prints.
fn line_of(command: Cargo) -> io::Result<String> {
    let name = command.to_string();
    let mut printed = None;
    let succeeded = command.succeeds_printing(|line| printed = Some(line.to_owned()))?;
    printed
        .filter(|_| succeeded)
        .ok_or_else(|| io::Error::other(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_a_library_of_their_name_are_documented() {
        let target = |kind: &str, name: &str| serde_json::json!({"kind": [kind], "name": name});
        let targets = [
            target("lib", "maglor_demo"),
            target("bin", "maglor-demo"),
            target("bin", "another"),
            target("test", "help"),
        ];
        let package = serde_json::json!({ "targets": targets });
        assert_eq!(documented(&package), ["another"]);
    }
}
