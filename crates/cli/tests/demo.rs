//! `maglor demo` with real proxies: its results, and that it leaves no files or processes.
//!
//! The proxy binary is in the directory of `maglor`, as built in the workspace; without
//! it, it is built first.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{MAGLOR, program};

/// The demo with a separate folder for temporary files.
fn demo(temporary: &Path, arguments: &[&str]) -> Command {
    // The demo takes the proxy from its own directory.
    program("maglor-proxy");
    let mut command = Command::new(MAGLOR);
    command.arg("demo").args(arguments).env("TMPDIR", temporary);
    command
}

/// Processes whose command line has something of the folder.
fn processes(temporary: &Path) -> Vec<u32> {
    let folder = temporary.to_str().unwrap();
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line)
            .contains(folder)
            .then_some(pid)
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| of(entry.ok()?)).collect()
}

fn name(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.unwrap_or_default().trim().to_owned()
}

#[track_caller]
fn assert_nothing_is_left(temporary: &Path) {
    assert_eq!(processes(temporary), [0; 0], "no process is left");
    let left: Vec<PathBuf> = fs::read_dir(temporary)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn signal(signal: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
}

#[test]
fn the_stages_show_what_a_mesh_is_for() {
    let temporary = tempfile::tempdir().unwrap();
    let arguments = ["--for", "8", "--rate", "20", "--format", "json"];
    let output = demo(temporary.path(), &arguments).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(output.status.success(), "{report:#}");
    assert_eq!(report["success"], true);
    assert_eq!(report["proxies"]["count"], 10);

    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 4, "{report:#}");
    assert_eq!(
        (&stages[0]["title"], &stages[0]["failures"]),
        (&"healthy".into(), &0.into())
    );
    for stage in stages {
        assert!(stage["requests"].as_u64().unwrap() > 10, "{stage:#}");
        for edge in stage["edges"].as_array().unwrap() {
            assert!(edge["requests"].as_f64().unwrap() > 10.0, "{edge:#}");
            assert_eq!(edge["mutual_tls_percent"], 100.0, "{edge:#}");
        }
    }
    let slow = &stages[1]["edges"][2];
    assert_eq!(slow["edge"], "productpage → reviews");

    let attempts = report["intruders"].as_array().unwrap();
    let counters: Vec<_> = attempts.iter().map(|attempt| &attempt["counter"]).collect();
    assert_eq!(counters, ["plaintext", "no-certificate", "deny"]);
    for attempt in attempts {
        assert_eq!(attempt["refused"], true, "{attempt:#}");
        assert_eq!(attempt["counted"], true, "{attempt:#}");
    }
    assert_nothing_is_left(temporary.path());
}

#[test]
fn a_proxy_that_dies_is_started_again_and_an_interruption_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let arguments = ["--for", "600", "--rate", "20", "--replicas", "reviews=1"];
    let mut child = demo(temporary.path(), &arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    let mut read_until = |part: &str| {
        while !text.contains(part) {
            let read = lines.read_line(&mut text).unwrap();
            assert!(read > 0, "{part} did not come:\n{text}");
        }
    };
    read_until("healthy\n");
    // The controller is beside the program if it was built.
    let mut proxies = processes(temporary.path());
    proxies.retain(|process| name(*process) == "maglor-proxy");
    assert_eq!(proxies.len(), 8, "an ingress, and 2 + 2 + 1 + 2 replicas");
    signal("-KILL", proxies[3]);
    read_until("was restarted");
    signal("-INT", child.id());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(rest.contains("Ended early."), "{rest}");
    assert_nothing_is_left(temporary.path());
}

#[test]
fn a_killed_demo_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let arguments = ["--for", "600", "--rate", "20"];
    let mut child = demo(temporary.path(), &arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("healthy\n") {
        assert!(lines.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(!processes(temporary.path()).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    let empty = || fs::read_dir(temporary.path()).unwrap().next().is_none();
    while !(empty() && processes(temporary.path()).is_empty()) {
        if killed.elapsed() > Duration::from_secs(20) {
            assert_nothing_is_left(temporary.path());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let temporary = tempfile::tempdir().unwrap();
    let wrong = |arguments: &[&str]| {
        let output = demo(temporary.path(), arguments).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let text = wrong(&["--proxy", "/nowhere/maglor-proxy"]);
    assert_eq!(
        text,
        "maglor demo: --proxy /nowhere/maglor-proxy: no such file\n"
    );
    let text = wrong(&["--fault", "reviews-2:sleepy@5"]);
    assert!(text.contains("slow, errors, kill or heal"), "{text}");
    let text = wrong(&["--fault", "reviews-9:slow@5"]);
    assert!(text.contains("reviews has 3 replicas"), "{text}");
    let text = wrong(&["--policy", "prequal"]);
    assert!(text.contains("write `probe(choices=2)`"), "{text}");
    let text = wrong(&["--replicas", "reviews=0"]);
    assert!(text.contains("from 1 to 16"), "{text}");
    assert_nothing_is_left(temporary.path());
}
