//! Static builds of our programs, as `crates/cluster/src/binaries.rs` makes them for images: in the same folder with the
//! same flags, so that what is built for one is there for the other.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shell::{Cargo, target};

/// The proxy writes its man pages with this feature only, and in this profile: it is not shipped.
const MANUAL: &[&str] = &["--features", "manual"];

/// Builds a program in a profile of cargo's.
pub(crate) fn build(name: &str, profile: &str) -> Result<PathBuf, String> {
    build_with(name, profile, &[])
}

fn build_with(name: &str, profile: &str, more: &[&str]) -> Result<PathBuf, String> {
    let package = if name == "maglor" { "maglor-cli" } else { name };
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let folder = target().join("static");
    // One package at a time: features that one needs do not get into the others.
    let built = Cargo::new("build")
        .args(["--locked", "--package", package, "--bin", name])
        .args(["--profile", profile, "--target", &triple])
        .args(more)
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C strip=debuginfo",
        )
        .env("CARGO_TARGET_DIR", &folder)
        .succeeds();
    if !built {
        return Err(format!("{name} was not built"));
    }
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(folder.join(triple).join(profile).join(name))
}

/// Writes man pages and completion scripts of all programs below `folder`, which has them alone then.
pub(crate) fn write_manual(maglor: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    run(Command::new(maglor).arg("manual").arg(folder))?;
    let proxy = build_with("maglor-proxy", "dev", MANUAL)?;
    run(Command::new(proxy).env("MAGLOR_MANUAL", folder))
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}
