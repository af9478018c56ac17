//! `cargo xtask package`: a Debian package and an archive of our three programs, for this machine's architecture.
//!
//! The same sources and the same compiler give the same bytes: times are those of the commit, owners are root, entries
//! are sorted.

mod archive;
mod contents;
mod deb;
mod notices;
mod programs;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use crate::shell::{self, root};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the packages to this folder [default: package, in cargo's target folder].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Profile of cargo's to build with.
    #[arg(long, default_value = "release")]
    profile: String,

    /// Version of the package.
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"), value_parser = version)]
    version: String,
}

/// A version that dpkg accepts, without an epoch and a revision.
fn version(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".+~".contains(c);
    match text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err(
            "the version must begin with a digit, followed by letters, digits, and any of . + ~"
                .to_owned(),
        ),
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match write(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(options: &Options) -> Result<(), String> {
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| shell::target().join("package"));
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let entries = contents::collect(&options.profile)?;
    let time = time();
    let version = &options.version;
    let deb = format!("maglor_{version}_{}.deb", deb::architecture());
    let tar = format!("maglor-{version}-{}-linux", env::consts::ARCH);
    save(&out.join(&deb), &deb::compose(&entries, version, time)?)?;
    let archive = archive::tar_gz(&entries, &format!("{tar}/"), time);
    let archive = archive.map_err(|error| format!("{tar}: {error}"))?;
    save(&out.join(format!("{tar}.tar.gz")), &archive)?;
    checksums(&out, &[&deb, &format!("{tar}.tar.gz")])
}

/// Seconds since 1970 for all entries: `SOURCE_DATE_EPOCH`, or the date of the commit.
fn time() -> u64 {
    let given = env::var("SOURCE_DATE_EPOCH").ok();
    let of_commit = || {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct"]).current_dir(root());
        String::from_utf8(git.output().ok()?.stdout).ok()
    };
    let text = given.or_else(of_commit).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{:>10} {}", bytes.len(), path.display());
    Ok(())
}

/// Writes `SHA256SUMS`, for `sha256sum --check`.
fn checksums(out: &Path, files: &[&str]) -> Result<(), String> {
    let mut command = Command::new("sha256sum");
    let output = command.args(files).current_dir(out).output();
    let output = output.map_err(|error| format!("sha256sum: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    save(&out.join("SHA256SUMS"), &output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_dpkg_accepts() {
        for good in ["0.1.0", "1.0~rc1", "2.0+git20261126"] {
            assert_eq!(version(good).as_deref(), Ok(good));
        }
        for bad in ["", "v1", "1.0-1", "1:2", "1/2", "1 2"] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
