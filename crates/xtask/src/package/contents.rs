//! The files of the packages, and their places in the system.

use std::fs;
use std::path::Path;

use super::archive::{Entry, gzip};
use super::{notices, programs};
use crate::shell::{root, target};

const PROGRAMS: [&str; 3] = ["maglor", "maglor-controller", "maglor-proxy"];

/// Files of `deploy/package`, and where they are installed.
const FILES: [(&str, &str); 4] = [
    ("README", "usr/share/doc/maglor/README"),
    ("copyright", "usr/share/doc/maglor/copyright"),
    (
        "maglor-proxy.service",
        "usr/lib/systemd/system/maglor-proxy.service",
    ),
    ("proxy.yaml", "etc/maglor/proxy.yaml"),
];

/// Builds the programs in a profile, and returns all files, sorted by path.
pub(crate) fn collect(profile: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    // First: in the same profile it has the place of the proxy that is shipped.
    let manual = target().join("package-manual");
    programs::write_manual(&programs::build_tools(profile)?, &manual)?;
    share(&manual, "usr/share", &mut entries)?;
    let folder = programs::build_proxy(profile, &[])?;
    for name in PROGRAMS {
        let program = folder.join(name);
        entries.push(file(&program, format!("usr/bin/{name}"), 0o755)?);
    }
    for (name, place) in FILES {
        let path = root().join("deploy/package").join(name);
        entries.push(file(&path, place.to_owned(), 0o644)?);
    }
    let notices = notices::collect(&PROGRAMS)?;
    entries.push(compressed(
        "usr/share/doc/maglor/THIRD-PARTY",
        notices.as_bytes(),
    )?);
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Adds the files of a folder and those below it; man pages are compressed, as Debian's are.
fn share(folder: &Path, place: &str, entries: &mut Vec<Entry>) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", folder.display());
    for found in fs::read_dir(folder).map_err(failed)? {
        let found = found.map_err(failed)?;
        let path = found.path();
        let place = format!("{place}/{}", found.file_name().to_string_lossy());
        if path.is_dir() {
            share(&path, &place, entries)?;
        } else if place.contains("/man/") {
            entries.push(compressed(&place, &read(&path)?)?);
        } else {
            entries.push(file(&path, place, 0o644)?);
        }
    }
    Ok(())
}

fn file(from: &Path, path: String, mode: u32) -> Result<Entry, String> {
    let bytes = read(from)?;
    Ok(Entry { path, mode, bytes })
}

fn compressed(place: &str, bytes: &[u8]) -> Result<Entry, String> {
    Ok(Entry {
        path: format!("{place}.gz"),
        mode: 0o644,
        bytes: gzip(bytes).map_err(|error| format!("{place}: {error}"))?,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
