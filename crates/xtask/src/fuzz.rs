//! `cargo xtask fuzz`: the fuzz targets of every package, one after another.
//!
//! A package's targets are in its folder `fuzz`, which is not a member of the workspace: it needs a
//! nightly compiler. Inputs worth keeping are in `fuzz/seeds/TARGET`, tokens of its language in
//! `fuzz/TARGET.dict`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::shell::{self, Cargo};
use crate::tools;

/// The maximum length of inputs, so that many fit into a second.
const LONGEST_INPUT: &str = "-max_len=16384";
/// The fuzzer reports memory use above this.
const MEMORY: &str = "-rss_limit_mb=2048";
/// Only findings are printed, not coverage, which would be thousands of lines.
const QUIET: &str = "-verbosity=0";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run time of each target, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,

    /// Only the target with this name.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// A fuzz target.
#[derive(Debug)]
pub(crate) struct Target {
    /// The folder `fuzz` that contains it, relative to the workspace.
    folder: PathBuf,
    name: String,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if let Err(missing) = tools::fuzzing() {
        eprintln!("error: {missing}");
        return ExitCode::FAILURE;
    }
    let wanted =
        |target: &Target| options.targets.is_empty() || options.targets.contains(&target.name);
    let targets: Vec<_> = targets().into_iter().filter(wanted).collect();
    if targets.is_empty() {
        eprintln!("error: unknown fuzz target");
        return ExitCode::FAILURE;
    }
    let failed = fuzz(&targets, options.seconds);
    if failed.is_empty() {
        println!(
            "{} fuzz targets clean for {} s each",
            targets.len(),
            options.seconds
        );
        return ExitCode::SUCCESS;
    }
    eprintln!("error: fuzz targets failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Runs targets; returns the names of those that failed.
pub(crate) fn fuzz(targets: &[Target], seconds: u64) -> Vec<String> {
    let mut failed = Vec::new();
    for target in targets {
        println!("--- fuzz {} for {seconds} s", target.name);
        if !target.run(seconds) {
            failed.push(target.name.clone());
        }
    }
    failed
}

/// Returns every fuzz target of the workspace, by folder and name.
pub(crate) fn targets() -> Vec<Target> {
    let mut targets: Vec<_> = folders()
        .iter()
        .flat_map(|folder| in_folder(folder))
        .collect();
    targets.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    targets
}

/// Returns the folders of fuzz packages, relative to the workspace.
pub(crate) fn folders() -> Vec<PathBuf> {
    let root = shell::root();
    let list = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let members = list(&root).into_iter().chain(list(&root.join("crates")));
    let fuzz = members.map(|member| member.join("fuzz"));
    let packages = fuzz.filter(|folder| folder.join("Cargo.toml").is_file());
    packages
        .filter_map(|folder| folder.strip_prefix(&root).map(Path::to_owned).ok())
        .collect()
}

/// Returns the targets in a folder: files in `fuzz_targets`, or folders with a `main.rs`.
fn in_folder(folder: &Path) -> Vec<Target> {
    let sources = shell::root().join(folder).join("fuzz_targets");
    let entries = std::fs::read_dir(sources).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let targets = paths.filter(|path| {
        path.extension().is_some_and(|kind| kind == "rs") || path.join("main.rs").is_file()
    });
    let names = targets.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    names
        .map(|name| Target {
            folder: folder.to_owned(),
            name,
        })
        .collect()
}

impl Target {
    fn run(&self, seconds: u64) -> bool {
        let root = shell::root();
        let corpus = self.folder.join("corpus").join(&self.name);
        let seeds = self.folder.join("seeds").join(&self.name);
        // New inputs go to the first folder; it must exist.
        if let Err(error) = std::fs::create_dir_all(root.join(&corpus)) {
            eprintln!("error: {}: {error}", corpus.display());
            return false;
        }
        // One folder for all packages: most of their dependencies are the same.
        let built = shell::target().join("fuzz");
        let mut command = Cargo::fuzz("run").arg("--target-dir").arg(built);
        command = command.arg("--fuzz-dir").arg(&self.folder);
        command = command.arg(&self.name).arg(root.join(&corpus));
        if root.join(&seeds).is_dir() {
            command = command.arg(root.join(&seeds));
        }
        let limit = format!("-max_total_time={seconds}");
        command = command.args(["--", &limit, LONGEST_INPUT, MEMORY, QUIET]);
        let words = self.folder.join(format!("{}.dict", self.name));
        if root.join(&words).is_file() {
            command = command.arg(format!("-dict={}", root.join(&words).display()));
        }
        command.succeeds()
    }
}
