//! Static builds of our own programs, for images.
//!
//! The programs are linked with the C library of the GNU target. Such a program must not resolve names with that
//! library; the proxy has its own resolver.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::error::{At as _, ClusterError};

/// Our programs, with the packages that contain them.
const PROGRAMS: [(&str, &str); 5] = [
    ("maglor", "maglor-cli"),
    ("maglor-app", "maglor-testkit"),
    ("maglor-controller", "maglor-controller"),
    ("maglor-demo", "maglor-cli"),
    ("maglor-proxy", "maglor-proxy"),
];

/// Returns the file of a static program: `what` if it is the path of one, or a build of our program with this name,
/// with a Cargo profile.
///
/// # Errors
///
/// There is no such file or program, the program cannot be built, or it needs shared libraries.
pub fn static_program(what: &str, profile: &str) -> Result<PathBuf, ClusterError> {
    let path = Path::new(what);
    let path = if path.is_file() {
        path.to_owned()
    } else {
        build(what, profile)?
    };
    let program = fs::read(&path).at(&path)?;
    if interpreter(&program) {
        return Err(ClusterError::Invalid {
            field: "BINARY",
            reason: format!(
                "{} needs shared libraries; build it with RUSTFLAGS='-C target-feature=+crt-static' \
                 and --target, or with CGO_ENABLED=0",
                path.display()
            ),
        });
    }
    Ok(path)
}

fn build(program: &str, profile: &str) -> Result<PathBuf, ClusterError> {
    let Some((_, package)) = PROGRAMS.iter().find(|(name, _)| *name == program) else {
        let known: Vec<_> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        return Err(ClusterError::Invalid {
            field: "BINARY",
            reason: format!(
                "{program} is neither a file nor one of {}",
                known.join(", ")
            ),
        });
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).unwrap_or(here);
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    // A separate folder: other flags in the same one would rebuild everything each time.
    let folder = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = root.join(folder).join("static");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--package", package, "--bin", program]);
    cargo.args(["--profile", profile, "--target", &target]);
    // A sidecar is copied to each node: without debug information it has a fifth of the size.
    cargo.env(
        "RUSTFLAGS",
        "-C target-feature=+crt-static -C strip=debuginfo",
    );
    cargo.env("CARGO_TARGET_DIR", &folder).current_dir(root);
    let status = cargo.status();
    if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Err(ClusterError::Command {
            command: format!("cargo build --package {package} --bin {program}"),
            detail: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
        });
    }
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(folder.join(target).join(profile).join(program))
}

/// Returns whether a 64-bit ELF file needs a dynamic linker: it has a program header of type `PT_INTERP` (System V ABI,
/// ch. 5).
fn interpreter(file: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..)?.get(..bytes)?;
        let digits = field.iter().rev();
        Some(digits.fold(0, |sum, byte| (sum << 8) | usize::from(*byte)))
    };
    let find = || {
        let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        let mut headers = (0..count).map(|index| number(table.checked_add(index * size)?, 4));
        Some(headers.any(|kind| kind == Some(3)))
    };
    file.starts_with(b"\x7fELF\x02\x01") && find().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_shared_libraries_is_distinguished() {
        // Tests are linked dynamically.
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(interpreter(&own));
        assert!(!interpreter(&own[..64]), "a header alone");
        assert!(!interpreter(b"#!/bin/sh"));
        assert!(!interpreter(b""));
        let mut absurd = own[..64].to_vec();
        absurd[0x20..0x28].fill(0xff);
        absurd[0x36..0x3a].fill(0xff);
        assert!(!interpreter(&absurd), "a table beyond all addresses");
    }

    #[test]
    fn what_is_neither_a_file_nor_ours_is_refused_with_what_is() {
        let error = static_program("maglor-nothing", "dev").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("maglor-proxy"), "{text}");
    }
}
