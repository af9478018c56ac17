//! Static builds of our programs, as `crates/testkit/src/cluster/binaries.rs` makes them for images: in the same folder, and in
//! the profile `dev` with the same flags, so that what is built for one is there for the other.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shell::{Cargo, target};

/// The proxy writes its man pages with this feature only, which is not in the one that is shipped.
const MANUAL: &[&str] = &["--features", "manual"];

/// Builds the command line and the controller, and returns the folder of all programs.
pub(crate) fn build_tools(profile: &str) -> Result<PathBuf, String> {
    let packages = ["--package", "maglor-cli", "--package", "maglor-controller"];
    let binaries = ["--bin", "maglor", "--bin", "maglor-controller"];
    build(profile, &[packages, binaries].concat())
}

/// Builds the proxy alone: no feature of a crate is in it that only the others need.
pub(crate) fn build_proxy(profile: &str, more: &[&str]) -> Result<PathBuf, String> {
    let proxy = ["--package", "maglor-proxy", "--bin", "maglor-proxy"];
    build(profile, &[&proxy, more].concat())
}

fn build(profile: &str, what: &[&str]) -> Result<PathBuf, String> {
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let folder = target().join("static");
    // Flags override the profile, and that of releases strips symbols, too.
    let flags = match profile {
        "dev" => "-C target-feature=+crt-static -C strip=debuginfo",
        _ => "-C target-feature=+crt-static",
    };
    let built = Cargo::new("build")
        .args(["--locked", "--profile", profile, "--target", &triple])
        .args(what)
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", &folder)
        .succeeds();
    if !built {
        return Err("the programs could not be built".to_owned());
    }
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(folder.join(triple).join(profile))
}

/// Writes man pages and completion scripts of all programs below `folder`, which has them alone then.
pub(crate) fn write_manual(tools: &Path, folder: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    run(Command::new(tools.join("maglor")).arg("manual").arg(folder))?;
    let proxy = build_proxy("dev", MANUAL)?.join("maglor-proxy");
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
