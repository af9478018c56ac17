//! Programs that are not part of Rust: found, installed where possible, or requested from the user.

use std::env;
use std::path::{Path, PathBuf};

use crate::shell::Cargo;

/// A program on the package registry, in the version that our configuration of it is written for.
struct Pinned {
    package: &'static str,
    version: &'static str,
    /// The name of the program.
    program: &'static str,
    features: &'static [&'static str],
}

const CARGO_DENY: Pinned = Pinned {
    package: "cargo-deny",
    version: "0.20.2",
    program: "cargo-deny",
    features: &[],
};
/// Without its web server, which doubles the time of its build.
const MDBOOK: Pinned = Pinned {
    package: "mdbook",
    version: "0.5.4",
    program: "mdbook",
    features: &["--no-default-features", "--features", "search"],
};
const TYPOS: Pinned = Pinned {
    package: "typos-cli",
    version: "1.52.0",
    program: "typos",
    features: &[],
};

/// Returns cargo-deny of the version that `deny.toml` is written for.
pub(crate) fn cargo_deny() -> Result<PathBuf, String> {
    CARGO_DENY.installed()
}

/// mdBook, which makes the documentation site.
pub(crate) fn mdbook() -> Result<PathBuf, String> {
    MDBOOK.installed()
}

/// typos, whose exceptions are in `_typos.toml`.
pub(crate) fn typos() -> Result<PathBuf, String> {
    TYPOS.installed()
}

impl Pinned {
    /// Taken from the cache, or built into it: `$XDG_CACHE_HOME/maglor` or `~/.cache/maglor`.
    fn installed(&self) -> Result<PathBuf, String> {
        let (package, version) = (self.package, self.version);
        let folder = cache()?.join(format!("{package}-{version}"));
        let binary = folder.join("bin").join(self.program);
        if binary.exists() {
            return Ok(binary);
        }
        eprintln!("{package} {version} is built once, in a few minutes.");
        let built = Cargo::new("install")
            .args(["--quiet", "--locked", "--version", version, package])
            .args(self.features)
            .arg("--root")
            .arg(&folder)
            .succeeds();
        if built {
            Ok(binary)
        } else {
            Err(format!(
                "{package} is missing and could not be built; cargo install --locked {package}@{version} --root {}",
                folder.display()
            ))
        }
    }
}

/// Checks that fuzz targets can be built; the error is one line.
pub(crate) fn fuzzing() -> Result<(), String> {
    let rustup = |arguments: &[&str]| Cargo::program("rustup", "rustup").args(arguments);
    if !rustup(&["run", "nightly", "rustc", "--version"]).succeeds_quietly() {
        return Err("nightly Rust is missing: rustup toolchain install nightly".into());
    }
    if !Cargo::fuzz("--version").succeeds_quietly() && !Cargo::fuzz("help").succeeds_quietly() {
        return Err("cargo-fuzz is missing: cargo install --locked cargo-fuzz".into());
    }
    Ok(())
}

/// Checks for programs, given with their Debian packages; prints what to install if that is not
/// possible here.
pub(crate) fn want_programs(programs: &[(&str, &str)]) {
    let missing = programs
        .iter()
        .filter(|(program, _)| find(program).is_none());
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return;
    }
    let apt = |arguments: &[&str]| {
        Cargo::program("apt-get", "apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments)
    };
    let install = [&["install", "-y", "--no-install-recommends"][..], &packages].concat();
    let installed = may_install() && apt(&["update", "-qq"]).succeeds() && apt(&install).succeeds();
    if !installed {
        eprintln!(
            "Missing; on Debian or Ubuntu: sudo apt-get install -y --no-install-recommends {}",
            packages.join(" ")
        );
    }
}

/// Returns whether this is root on a system with apt.
fn may_install() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    root && find("apt-get").is_some()
}

/// Returns the path of a program; Debian keeps servers out of the path of users.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut places = env::split_paths(&path).chain(more);
    places.find_map(|place| Some(place.join(program)).filter(|path| path.is_file()))
}

/// Returns the folder for downloads and builds that are kept.
pub(crate) fn cache() -> Result<PathBuf, String> {
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => Path::new(&env::var_os("HOME").ok_or("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("maglor"))
}
