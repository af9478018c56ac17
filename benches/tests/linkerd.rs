//! The comparison with a real linkerd2-proxy, behind a redirection, with the stand-in for its control plane.
//!
//! It runs if `MAGLOR_LINKERD` is the path of the binary, as root.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");
const LINE: &str = "--quick --only bare --rounds 1 --parts footprint,load --filter h1-64B-64c";

/// Compares with the bare forwarder, which needs no installation. Returns whether linkerd2-proxy took part.
fn compare(linkerd: &OsStr, more: &[&str], out: &Path) -> bool {
    let mut command = Command::new(COMPARE);
    command.args(LINE.split(' ')).args(more);
    command.arg("--linkerd").arg(linkerd).arg("--out").arg(out);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if let Some(reason) = text.lines().find(|line| line.starts_with("skipped: ")) {
        println!("{reason}");
        assert_eq!(output.status.code(), Some(1), "{text}");
        return false;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    true
}

/// Returns a column of the runs of linkerd2-proxy in a part.
fn column(out: &Path, part: &str, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(out.join("raw.csv")).unwrap();
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = rows.next().unwrap();
    let at = |name| names.iter().position(|column| *column == name).unwrap();
    let (phase, subject, column) = (at("phase"), at("subject"), at(name));
    rows.filter(|row| row[phase] == part && row[subject] == "linkerd")
        .map(|row| row[column].parse().unwrap())
        .collect()
}

#[test]
fn linkerd2_proxy_is_compared_alone_and_as_a_pair() {
    let Some(linkerd) = std::env::var_os("MAGLOR_LINKERD") else {
        println!("skipped: MAGLOR_LINKERD is not set to the path of a linkerd2-proxy");
        return;
    };
    for more in [&[][..], &["--pair"]] {
        let out = tempfile::tempdir().unwrap();
        if !compare(&linkerd, more, out.path()) {
            return;
        }
        // A closed and an open loop.
        assert_eq!(column(out.path(), "load", "errors"), [0.0, 0.0]);
        let requests = column(out.path(), "load", "requests");
        assert!(requests.iter().all(|count| *count > 100.0), "{requests:?}");
        let shares = column(out.path(), "footprint", "anonymous_closed_kb");
        assert!(shares.len() == 1 && shares[0] > 100.0, "{shares:?}");
    }
}

#[test]
fn a_missing_binary_names_the_option() {
    let output = Command::new(COMPARE)
        .args("--quick --only bare --linkerd /nonexistent".split(' '))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--linkerd"), "{text}");
}
