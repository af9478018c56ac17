//! grpc-go's interop client against its interop server through the proxy, and cases of our own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use maglor_testkit::{Authority, Proxy};

use super::report::Report;
use super::setup::{Config, localhost};
use super::tools::{Output, Running};
use super::{Bench, tools};

const VERSION: &str = "1.85.0";

/// Cases of the interop client, by its names.
const CASES: &[&str] = &[
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
];

/// The soaks: thousands of large calls, on one connection and on a new one each.
const SOAKS: &[(&str, &str)] = &[("rpc_soak", "2000"), ("channel_soak", "500")];

const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance grpc` runs grpc-go {VERSION}: `client -server_host 127.0.0.1 \
         -server_port PORT [-use_tls -use_test_ca -ca_file CA] -test_case CASE` against `server`, and \
         `maglor-grpc-check` (crates/xtask/conformance/grpc) against itself; HTTP/2 on both sides \
         of the proxy, downstream in plain text (`h2c`) and with TLS (`tls`)."
    ));
    let tools = Tools::get(&bench.root)?;
    let (interop, interop_address) = tools.interop_server()?;
    let (witness, witness_address) = tools.witness()?;
    let (authority, identity) = localhost();
    let proxy = Config::default()
        .cluster("interop", "http2", &[interop_address])
        .cluster("witness", "http2", &[witness_address])
        .http("h2c", "auto", None, "interop")
        .http("tls", "auto", Some(&identity), "interop")
        .http("witness-h2c", "auto", None, "witness")
        .http("witness-tls", "auto", Some(&identity), "witness")
        .start(bench)?;
    let mut raw = String::new();
    for (down, ca) in [("h2c", None), ("tls", Some(&authority))] {
        for case in CASES {
            let output = tools.interop(&proxy, down, ca, case, &[])?;
            keep(&mut raw, down, case, &output);
            report.case(format!("{down} {case}"), verdict(&output, String::new()));
        }
        for (case, iterations) in SOAKS {
            let output = tools.interop(&proxy, down, ca, case, &soak(iterations))?;
            keep(&mut raw, down, case, &output);
            report.case(
                format!("{down} {case}"),
                verdict(&output, format!("{iterations} calls")),
            );
        }
        let output = tools.check(&proxy, &format!("witness-{down}"), ca)?;
        keep(&mut raw, down, "maglor-grpc-check", &output);
        own_cases(report, down, &output)?;
    }
    report.raw("output.txt", &raw)?;
    drop((interop, witness));
    Ok(())
}

/// Returns the flags of a soak test. A call may take five seconds: correctness is checked, on a
/// machine that may be busy.
fn soak(iterations: &str) -> [String; 4] {
    [
        format!("-soak_iterations={iterations}"),
        "-soak_per_iteration_max_acceptable_latency_ms=5000".to_owned(),
        "-soak_overall_timeout_seconds=50".to_owned(),
        "-soak_num_threads=4".to_owned(),
    ]
}

/// Keeps the end of a client's output: a soak test writes a line for each call.
fn keep(raw: &mut String, down: &str, case: &str, output: &Output) {
    let lines: Vec<_> = output.text.lines().collect();
    let end = lines[lines.len().saturating_sub(30)..].join("\n");
    raw.push_str(&format!("== {down} {case}: {}\n{end}\n", output.ended()));
}

fn verdict(output: &Output, detail: String) -> anyhow::Result<String> {
    ensure!(
        output.success(),
        "{}: {}",
        output.ended(),
        output.last_line()
    );
    Ok(detail)
}

/// Reads the cases from the output of `maglor-grpc-check`.
fn own_cases(report: &mut Report, down: &str, output: &Output) -> anyhow::Result<()> {
    let mut seen = 0;
    for line in output.text.lines() {
        let Some((verdict, rest)) = line.split_once(' ') else {
            continue;
        };
        match (verdict, rest.split_once([' ', ':']).unwrap_or((rest, ""))) {
            ("PASS", (case, time)) => report.pass(format!("{down} {case}"), time),
            ("FAIL", (case, why)) => report.fail(format!("{down} {case}"), why.trim()),
            _ => continue,
        }
        seen += 1;
    }
    ensure!(
        seen > 0,
        "maglor-grpc-check {}: {}",
        output.ended(),
        output.last_line()
    );
    Ok(())
}

struct Tools {
    folder: PathBuf,
}

impl Tools {
    fn get(root: &Path) -> anyhow::Result<Self> {
        let folder = tools::cache(&format!("grpc-go-{VERSION}"))?;
        for name in ["client", "server"] {
            let binary = folder.join(name);
            if !binary.exists() {
                let package = format!("google.golang.org/grpc/interop/{name}");
                tools::go_build(root, "grpc", &package, &binary)?;
            }
        }
        // Our own, which may have changed.
        let check = folder.join("maglor-grpc-check");
        tools::go_build(root, "grpc", "./cmd/maglor-grpc-check", &check)?;
        Ok(Self { folder })
    }

    fn command(&self, name: &str) -> Command {
        Command::new(self.folder.join(name))
    }

    /// Starts the interop server, which cannot choose its port itself.
    fn interop_server(&self) -> anyhow::Result<(Running, SocketAddr)> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = self.command("server");
        command.arg(format!("-port={}", free.port()));
        let running = Running::start(command)?;
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect(free).is_err() {
            ensure!(
                Instant::now() < deadline,
                "the interop server does not listen"
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok((running, free))
    }

    fn witness(&self) -> anyhow::Result<(Running, SocketAddr)> {
        let mut command = self.command("maglor-grpc-check");
        command.args(["-serve", "127.0.0.1:0"]);
        let mut running = Running::start(command)?;
        let line = running.first_line(LIMIT)?;
        let address = line
            .parse()
            .with_context(|| format!("invalid address {line}"))?;
        Ok((running, address))
    }

    fn interop(
        &self,
        proxy: &Proxy,
        listener: &str,
        ca: Option<&Authority>,
        case: &str,
        more: &[String],
    ) -> anyhow::Result<Output> {
        let mut command = self.command("client");
        let port = proxy.listener(listener).port();
        command
            .args(["-server_host", "127.0.0.1", "-server_port"])
            .arg(port.to_string())
            .args(["-test_case", case])
            .args(more);
        if let Some(authority) = ca {
            command
                .args(["-use_tls", "-use_test_ca", "-ca_file"])
                .arg(authority.file());
        }
        tools::run(command, LIMIT).map_err(|error| anyhow!("{case}: {error:#}"))
    }

    fn check(
        &self,
        proxy: &Proxy,
        listener: &str,
        ca: Option<&Authority>,
    ) -> anyhow::Result<Output> {
        let mut command = self.command("maglor-grpc-check");
        command
            .arg("-target")
            .arg(proxy.listener(listener).to_string());
        if let Some(authority) = ca {
            command.arg("-ca").arg(authority.file());
        }
        tools::run(command, LIMIT * 3)
    }
}
