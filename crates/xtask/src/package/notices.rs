//! The licences of the crates that are linked, whose texts go with the binaries: most licences ask for that.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::root;

/// Beginnings of the names of files with licences.
const FILES: [&str; 5] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE"];

/// A list of the crates that are linked into these programs, then each text once, with the crates it is of.
pub(crate) fn collect(programs: &[&str]) -> Result<String, String> {
    let crates = linked(programs)?;
    let sources = sources();
    let mut texts = BTreeMap::<String, Vec<&str>>::new();
    let mut all = String::from("Crates that the programs are linked with:\n\n");
    for (name, licence) in &crates {
        // A String can be written to.
        let _ = writeln!(all, "{name}: {licence}");
        let folder = name.replacen(" v", "-", 1);
        for text in texts_of(&sources, &folder) {
            texts.entry(text).or_default().push(name);
        }
    }
    for (text, names) in texts {
        let names = names.join(", ");
        let _ = write!(all, "\n{:=<80}\n{names}:\n\n{}\n", "", text.trim_end());
    }
    Ok(all)
}

/// Names with versions, and licences, as cargo prints them.
fn linked(programs: &[&str]) -> Result<BTreeSet<(String, String)>, String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "tree",
        "--locked",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
    ]);
    cargo.args(["--format", "{p}\t{l}"]).current_dir(root());
    for name in programs {
        let package = if *name == "maglor" {
            "maglor-cli"
        } else {
            name
        };
        cargo.args(["--package", package]);
    }
    let output = cargo
        .output()
        .map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(parse).collect())
}

/// `tokio v1.54.1<TAB>MIT`; ours have a path after the version.
fn parse(line: &str) -> Option<(String, String)> {
    let (name, licence) = line.split_once('\t')?;
    let name = name.trim_end_matches(" (proc-macro)");
    let licence = licence.trim_end_matches(" (*)");
    (!name.contains('(')).then(|| (name.to_owned(), licence.to_owned()))
}

/// The folders that cargo unpacks crates into, one for each registry.
fn sources() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    let registries = registries.into_iter().flatten().flatten();
    registries.map(|registry| registry.path()).collect()
}

fn texts_of(sources: &[PathBuf], folder: &str) -> Vec<String> {
    let folders = sources.iter().map(|source| source.join(folder));
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_uppercase();
        FILES.iter().any(|start| name.starts_with(start))
    };
    let mut files: Vec<_> = files.map(|file| file.path()).filter(is_licence).collect();
    files.sort();
    let texts = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.map(|text| text.replace("\r\n", "\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_packages_are_left_out() {
        let some = |name: &str, licence: &str| Some((name.to_owned(), licence.to_owned()));
        assert_eq!(
            parse("tokio v1.54.1\tMIT (*)"),
            some("tokio v1.54.1", "MIT")
        );
        let of_macros = parse("serde_derive v1.0.0 (proc-macro)\tMIT OR Apache-2.0");
        assert_eq!(of_macros, some("serde_derive v1.0.0", "MIT OR Apache-2.0"));
        assert_eq!(parse("maglor-xds v0.1.0 (/folder)\tApache-2.0"), None);
    }
}
