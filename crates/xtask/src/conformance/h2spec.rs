//! h2spec 2.2.1: its generic, http2 and hpack cases, each also strict.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use maglor_testkit::Upstream;

use super::report::Report;
use super::setup::{Config, localhost};
use super::{Bench, tools};

const VERSION: &str = "2.2.1";

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance h2spec` runs `h2spec -h 127.0.0.1 -p PORT [-t -k] [--strict]`, \
         version {VERSION}. `auto` takes HTTP/1.1 and h2c on one port, `h2c` only HTTP/2, `tls` \
         both by ALPN; `h1` and `h2` say what the proxy speaks to its server."
    ));
    let h2spec = binary(&bench.root)?;
    let upstream = Upstream::start("origin");
    let (_authority, identity) = localhost();
    let servers = [upstream.address()];
    let mut config = Config::default()
        .cluster("h1", "http1", &servers)
        .cluster("h2", "http2", &servers);
    for cluster in ["h1", "h2"] {
        config = config
            .http(&format!("auto-{cluster}"), "auto", None, cluster)
            .http(&format!("h2c-{cluster}"), "http2", None, cluster)
            .http(&format!("tls-{cluster}"), "auto", Some(&identity), cluster);
    }
    let proxy = config.start(bench)?;
    for (name, &address) in proxy.listeners() {
        for strict in [false, true] {
            let mode = if strict { "-strict" } else { "" };
            let result = against(&h2spec, address, name.starts_with("tls"), strict);
            let (text, verdict) = result?;
            // Strict mode includes all cases of the other mode.
            if strict || verdict.is_err() {
                report.raw(&format!("{name}{mode}.txt"), &text)?;
            }
            report.case(format!("{name}{mode}"), verdict);
        }
    }
    Ok(())
}

fn binary(root: &Path) -> anyhow::Result<PathBuf> {
    let binary = tools::cache(&format!("h2spec-{VERSION}"))?.join("h2spec");
    if !binary.exists() {
        let package = "github.com/summerwind/h2spec/cmd/h2spec";
        tools::go_build(root, "h2spec", package, &binary)?;
    }
    Ok(binary)
}

/// Runs all cases; returns the raw output, and the result.
fn against(
    h2spec: &Path,
    address: SocketAddr,
    tls: bool,
    strict: bool,
) -> anyhow::Result<(String, anyhow::Result<String>)> {
    let mut command = Command::new(h2spec);
    command
        .args(["--host", "127.0.0.1", "--path", "/bytes/100", "--port"])
        .arg(address.port().to_string());
    if tls {
        command.args(["--tls", "--insecure"]);
    }
    if strict {
        command.arg("--strict");
    }
    let output = tools::run(command, Duration::from_secs(300)).context("h2spec")?;
    let last = output.last_line().to_owned();
    let verdict = if output.success() && last.ends_with(" 0 failed") {
        Ok(last)
    } else {
        let failures = output.text.split("Failures:").nth(1).unwrap_or_default();
        let named = failures.lines().filter(|line| line.contains('×'));
        let named: Vec<_> = named.map(str::trim).collect();
        Err(anyhow::anyhow!(
            "{last}; {}; {}",
            output.ended(),
            named.join("; ")
        ))
    };
    Ok((output.text, verdict))
}
