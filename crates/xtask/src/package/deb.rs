//! The format of Debian packages (deb(5)): an ar archive of two tar archives, composed without Debian's tools.

use std::env;
use std::fs;

use super::archive::{Entry, tar_gz};
use crate::shell::root;

const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];

/// Debian's name for the architecture of this machine.
pub(crate) fn architecture() -> &'static str {
    match env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

/// The package with these files, and the scripts of `deploy/package`.
pub(crate) fn compose(entries: &[Entry], version: &str, time: u64) -> Result<Vec<u8>, String> {
    let failed = |error| format!("the package cannot be composed: {error}");
    let control = control_files(entries, version)?;
    let control = tar_gz(&control, "", time).map_err(failed)?;
    let data = tar_gz(entries, "", time).map_err(failed)?;
    let members: [(&str, &[u8]); 3] = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ];
    Ok(ar(&members, time))
}

fn control_files(entries: &[Entry], version: &str) -> Result<Vec<Entry>, String> {
    let file = |path: &str, mode, bytes| Entry {
        path: path.to_owned(),
        mode,
        bytes,
    };
    let mut files = vec![
        file("conffiles", 0o644, conffiles(entries).into_bytes()),
        file("control", 0o644, control(entries, version).into_bytes()),
    ];
    for name in SCRIPTS {
        let path = root().join("deploy/package").join(name);
        let script = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        files.push(file(name, 0o755, script));
    }
    Ok(files)
}

/// What an administrator changes is kept at an upgrade.
fn conffiles(entries: &[Entry]) -> String {
    let mut lines = String::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.path.starts_with("etc/"))
    {
        lines.push_str(&format!("/{}\n", entry.path));
    }
    lines
}

fn control(entries: &[Entry], version: &str) -> String {
    let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
    format!(
        "Package: maglor\n\
         Version: {version}\n\
         Architecture: {}\n\
         Maintainer: The Maglor authors <maintainers@maglor.invalid>\n\
         Installed-Size: {}\n\
         Depends: init-system-helpers (>= 1.54~)\n\
         Section: net\n\
         Priority: optional\n\
         Homepage: {}\n\
         Description: service mesh and reverse proxy\n \
         maglor-proxy balances HTTP/1.1, HTTP/2, gRPC, WebSocket and TCP over servers, as a\n \
         service of this machine or as a sidecar. maglor-controller configures the proxies\n \
         of a mesh, and maglor is the command line.\n",
        architecture(),
        bytes.div_ceil(1024),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

/// An ar archive; its members begin at even positions.
fn ar(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        // Name, time, user, group, mode, size.
        let size = bytes.len();
        let header = format!(
            "{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0, 0, "100644"
        );
        archive.extend(header.as_bytes());
        archive.extend(*bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_ar_have_headers_of_sixty_bytes_at_even_positions() {
        let archive = ar(&[("one", b"abc"), ("two", b"")], 5);
        let text = String::from_utf8_lossy(&archive);
        let header =
            |name, size| format!("{name:<16}5           0     0     100644  {size:<10}`\n");
        assert_eq!(
            text,
            format!("!<arch>\n{}abc\n{}", header("one", 3), header("two", 0))
        );
    }

    #[test]
    fn only_configuration_is_kept_at_an_upgrade() {
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            mode: 0o644,
            bytes: vec![0; 1025],
        };
        let entries = [entry("etc/maglor/proxy.yaml"), entry("usr/bin/maglor")];
        assert_eq!(conffiles(&entries), "/etc/maglor/proxy.yaml\n");
        let control = control(&entries, "1.0");
        assert!(control.contains("\nVersion: 1.0\n"), "{control}");
        assert!(control.contains("\nInstalled-Size: 3\n"), "{control}");
        assert!(control.contains("\n maglor-proxy balances"), "{control}");
    }
}
