//! The process helper, with a shell script in the place of the proxy.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use maglor_testkit::process::Signal;
use maglor_testkit::{ProxyBuilder, TIMEOUT, Upstream, eventually};
use tempfile::TempDir;

/// A script with the arguments `--config FILE … --ready-file FILE`; `$ready` is the latter.
fn script(dir: &TempDir, body: &str) -> PathBuf {
    let path = dir.path().join("fake-proxy");
    let text = format!(
        "#!/bin/sh\nfor arg; do [ \"$last\" = --ready-file ] && ready=$arg; last=$arg; done\n{body}\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_proxy_gets_ready_reloads_and_ends() {
    let admin = Upstream::start("admin");
    let dir = TempDir::new().unwrap();
    let json = format!(
        r#"{{"admin":"{}","listeners":{{"web":"127.0.0.1:2345"}}}}"#,
        admin.address()
    );
    // It waits without starting anything: a signal that comes while a shell forks may be lost.
    let binary = script(
        &dir,
        &format!(
            "echo \"got $1 $3 $VARIABLE\" >&2; cat \"$2\" >&2\n\
             trap 'echo again; cat \"$2\"' HUP; trap 'kill $!; exit 7' TERM\n\
             exec 1>&2\n\
             sleep 60 &\n\
             echo '{json}' > \"$ready\"\n\
             while :; do wait $!; done"
        ),
    );
    let proxy = ProxyBuilder::new(binary)
        .config("first: 1\n")
        .arg("--extra")
        .env("VARIABLE", "value")
        .start();
    assert_eq!(proxy.listener("web"), "127.0.0.1:2345".parse().unwrap());
    assert_eq!(proxy.listeners().len(), 1);
    assert!(proxy.ready_after() > Duration::ZERO);
    assert_eq!(proxy.admin_get("/status/503").status, 503);
    assert!(proxy.resident_bytes() > 0);
    assert!(proxy.open_files() >= 3);

    proxy.wait_for_log("got --config --extra value\nfirst: 1");
    proxy.replace_config("second: 2\n");
    // Again and again: the shell handles one that comes just before it waits only when it has waited.
    eventually(TIMEOUT, "the script handles the signal", || {
        proxy.signal(Signal::Hangup);
        proxy.stderr().contains("again\nsecond: 2")
    });
    assert_eq!(proxy.terminate().code(), Some(7));
}

#[test]
fn metrics_are_summed() {
    let text = "# HELP m M.\nm{a=\"1\",b=\"x\"} 2\nm{a=\"1\",b=\"y\"} 3\nm{a=\"2\"} 9\nm_other 1\n";
    let admin = Upstream::builder("admin")
        .answer(move |_| Some(maglor_testkit::Answer::text(text)))
        .start();
    let dir = TempDir::new().unwrap();
    let json = format!(r#"{{"admin":"{}","listeners":{{}}}}"#, admin.address());
    let binary = script(&dir, &format!("echo '{json}' > \"$ready\"; exec sleep 60"));
    let proxy = ProxyBuilder::new(binary).start();
    assert_eq!(proxy.metric("m", &["a=\"1\""]), 5.0);
    assert_eq!(proxy.metric("m", &[]), 14.0);
    assert_eq!(proxy.metric("missing", &[]), 0.0);
    proxy.kill();
}

#[test]
fn a_proxy_that_ends_at_once_says_why() {
    let dir = TempDir::new().unwrap();
    let binary = script(&dir, "echo 'no such cluster' >&2; exit 3");
    let failed = ProxyBuilder::new(binary).try_start().unwrap_err();
    assert_eq!(failed.status.unwrap().code(), Some(3));
    assert_eq!(failed.stderr, "no such cluster\n");
    assert!(failed.to_string().contains("no such cluster"));
}
