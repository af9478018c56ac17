//! Downloads the projects with the samples, at fixed commits.

use std::path::{Path, PathBuf};

use crate::shell::Cargo;
use crate::tools;

/// The folder, address, commit, and parts of each project.
const PROJECTS: [(&str, &str, &str, &[&str]); 3] = [
    (
        "istio",
        "https://github.com/istio/istio",
        "86c9f01fd735fb01d8192f5bcaf0d424afb7f14c",
        &["/samples/"],
    ),
    (
        "istio-api",
        "https://github.com/istio/api",
        "b8f8791d9653b2edc77a071d48887e582cfe84bf",
        &["*.proto"],
    ),
    (
        "gateway-api",
        "https://github.com/kubernetes-sigs/gateway-api",
        "4564255ac2c35d582249b3cdf261bdf51c8bca32",
        &["/examples/", "/conformance/"],
    ),
];

/// Returns the folder with the samples of all projects, cached or downloaded.
pub(super) fn fetch() -> Result<PathBuf, String> {
    let commits: Vec<&str> = PROJECTS
        .iter()
        .map(|(_, _, commit, _)| &commit[..8])
        .collect();
    let folder = tools::cache()?.join(format!("samples-{}", commits.join("-")));
    for (name, address, commit, parts) in PROJECTS {
        let project = folder.join(name);
        // The last step of a project creates this file: an interrupted download is repeated.
        let done = folder.join(format!("{name}.done"));
        if done.exists() {
            continue;
        }
        eprintln!("fetching {address} at {commit}");
        checkout(&project, address, commit, parts)?;
        std::fs::write(&done, commit).map_err(|error| format!("{}: {error}", done.display()))?;
    }
    Ok(folder)
}

fn checkout(folder: &Path, address: &str, commit: &str, parts: &[&str]) -> Result<(), String> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let git = |arguments: &[&str]| {
        let git = Cargo::program("git", "git").arg("-C").arg(folder);
        let command = git.args(arguments);
        let shown = command.to_string();
        command
            .succeeds()
            .then_some(())
            .ok_or_else(|| format!("failed: {shown}"))
    };
    git(&["init", "--quiet"])?;
    git(&["remote", "add", "origin", address])?;
    git(&[&["sparse-checkout", "set", "--no-cone"], parts].concat())?;
    // Only the selected parts.
    git(&[
        "fetch",
        "--quiet",
        "--depth=1",
        "--filter=blob:none",
        "origin",
        commit,
    ])?;
    git(&["checkout", "--quiet", "FETCH_HEAD"])
}
