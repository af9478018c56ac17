//! WebSocket through the proxy: frames of 1 MB in plain text and over TLS, and Autobahn's cases.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use maglor_testkit::{Proxy, Upstream, pattern};
use serde_json::Value;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

use super::client::{Stream, Target, Version};
use super::report::Report;
use super::setup::{Config, localhost};
use super::{Bench, load, tools};

const MEGABYTE: usize = 1_000_000;
const LIMIT: Duration = Duration::from_secs(60);
const KOSOKU: &str = "0.1.0";

pub(super) fn run(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    report.note(format!(
        "`cargo xtask conformance websocket`: an echo server behind the proxy; every message is \
         compared. The `autobahn` cases are the fuzzing client of kosoku {KOSOKU}, which runs \
         the Autobahn TestSuite's cases: `kosoku -m fuzzingclient -x '12.*' -x '13.*' \
         127.0.0.1:PORT`; 12 and 13 are about compression, which the echo does not offer."
    ));
    let upstream = Upstream::start("origin");
    let (authority, identity) = localhost();
    let mut config = Config::default().cluster("web", "http1", &[upstream.address()]);
    // The fuzzing client requests `/`.
    config.routes =
        "{match: {path: {exact: /}}, cluster: web, timeout: 0s, rewrite: {path: /ws}}, ".to_owned();
    let proxy = config
        .http("plain", "auto", None, "web")
        .http("tls", "auto", Some(&identity), "web")
        .start(bench)?;
    for name in ["plain", "tls"] {
        let tls = (name == "tls").then(|| authority.client_config(None, &["http/1.1"]));
        let target = Target {
            address: proxy.listener(name),
            tls,
            version: Version::Http1,
        };
        for case in [Case::Large, Case::Many, Case::Huge, Case::Control] {
            let result = load::runtime()?.block_on(async {
                tokio::time::timeout(LIMIT, case.run(&target))
                    .await
                    .context("the case took too long")?
            });
            report.case(format!("{name} {}", case.name()), result);
        }
    }
    autobahn(report, &proxy)
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Large,
    Many,
    Huge,
    Control,
}

type Socket = WebSocketStream<Box<dyn Stream>>;

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Large => "64 frames of 1 MB",
            Self::Many => "4 frames of 1 MB on each of 32 connections at once",
            Self::Huge => "a frame of 16 MB",
            Self::Control => "text, ping, close code and reason",
        }
    }

    async fn run(self, target: &Target) -> anyhow::Result<String> {
        match self {
            Self::Large => echo_frames(target, 64, MEGABYTE).await,
            Self::Huge => echo_frames(target, 1, 16 * MEGABYTE).await,
            Self::Many => {
                let each = (0..32).map(|_| echo_frames(target, 4, MEGABYTE));
                for result in futures_util::future::join_all(each).await {
                    result?;
                }
                Ok("all messages echoed unchanged".to_owned())
            }
            Self::Control => control(target).await,
        }
    }
}

/// Opens a WebSocket to the echo.
pub(super) async fn open(target: &Target) -> anyhow::Result<Socket> {
    let config = WebSocketConfig::default()
        .max_frame_size(Some(64 << 20))
        .max_message_size(Some(64 << 20));
    let stream = target.stream().await?;
    let opened =
        tokio_tungstenite::client_async_with_config("ws://localhost/ws", stream, Some(config));
    Ok(opened.await.context("handshake")?.0)
}

/// Sends a message and compares the echo.
pub(super) async fn echo(socket: &mut Socket, message: Message) -> anyhow::Result<()> {
    socket.send(message.clone()).await.context("sending")?;
    let answer = socket
        .next()
        .await
        .context("closed")?
        .context("receiving")?;
    ensure!(
        answer == message,
        "received {} bytes for {} bytes sent",
        answer.len(),
        message.len()
    );
    Ok(())
}

/// Closes a WebSocket gracefully: a close frame from each side, then the end of the stream.
pub(super) async fn close(mut socket: Socket) -> anyhow::Result<()> {
    let code = CloseCode::Library(4001);
    let reason = "enough".into();
    socket
        .close(Some(CloseFrame { code, reason }))
        .await
        .context("closing")?;
    match socket
        .next()
        .await
        .context("no close frame received")?
        .context("receiving the close frame")?
    {
        Message::Close(Some(frame)) if frame.code == code => {}
        other => bail!("expected a close frame, received {other:?}"),
    }
    ensure!(
        socket.next().await.is_none(),
        "data received after the close frame"
    );
    Ok(())
}

async fn echo_frames(target: &Target, count: usize, bytes: usize) -> anyhow::Result<String> {
    let mut socket = open(target).await?;
    let data = Bytes::from(pattern::bytes(bytes + count));
    for i in 0..count {
        echo(&mut socket, Message::Binary(data.slice(i..i + bytes))).await?;
    }
    close(socket).await?;
    Ok("all messages echoed unchanged".to_owned())
}

async fn control(target: &Target) -> anyhow::Result<String> {
    let mut socket = open(target).await?;
    echo(&mut socket, Message::text("grüße 😈")).await?;
    echo(&mut socket, Message::text("")).await?;
    socket
        .send(Message::Ping(Bytes::from_static(b"are you there")))
        .await?;
    let pong = socket.next().await.context("closed")??;
    ensure!(
        pong == Message::Pong(Bytes::from_static(b"are you there")),
        "{pong:?}"
    );
    close(socket).await?;
    Ok("as sent".to_owned())
}

/// Runs all cases of the fuzzing client, if Python can install it.
fn autobahn(report: &mut Report, proxy: &Proxy) -> anyhow::Result<()> {
    let folder = tools::cache(&format!("kosoku-{KOSOKU}"))?;
    if !folder.join("kosoku").exists() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(&folder)
            .arg(format!("kosoku=={KOSOKU}"));
        let output = tools::run(pip, Duration::from_secs(300));
        if !output.is_ok_and(|output| output.success()) {
            report.note("Autobahn's cases were not run: kosoku cannot be installed here.");
            return Ok(());
        }
    }
    let results = tempfile::tempdir()?;
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", &folder)
        .args([
            "-c",
            "from kosoku._cli import main; main()",
            "-m",
            "fuzzingclient",
            "-x",
            "12.*",
            "-x",
            "13.*",
            "-o",
        ])
        .arg(results.path())
        .arg(proxy.listener("plain").to_string());
    let output = tools::run(command, Duration::from_secs(600))?;
    let index = std::fs::read(results.path().join("index.json"));
    let index = index.with_context(|| format!("{}: {}", output.ended(), output.last_line()))?;
    judge(report, &index)
}

/// Counts the verdicts, and lists the failures.
fn judge(report: &mut Report, index: &[u8]) -> anyhow::Result<()> {
    let index: Value = serde_json::from_slice(index)?;
    let agents = index
        .as_object()
        .context("the report of the agents is not an object")?;
    let mut raw = String::from("case,behavior,close\n");
    let mut failed = Vec::new();
    let mut counts = BTreeMap::<&str, usize>::new();
    for (case, result) in agents.values().filter_map(Value::as_object).flatten() {
        let field = |name| result.get(name).and_then(Value::as_str).unwrap_or("?");
        let (behavior, close) = (field("behavior"), field("behaviorClose"));
        raw.push_str(&format!("{case},{behavior},{close}\n"));
        *counts.entry(behavior).or_default() += 1;
        let good = ["OK", "INFORMATIONAL", "NON-STRICT"];
        if !good.contains(&behavior) || !good.contains(&close) {
            failed.push(case.as_str());
        }
    }
    report.raw("autobahn.csv", &raw)?;
    let counts: Vec<_> = counts
        .iter()
        .map(|(name, n)| format!("{n} {name}"))
        .collect();
    let counts = counts.join(", ");
    match failed.is_empty() && !raw.is_empty() {
        true => report.pass("plain autobahn", counts),
        false => report.fail("plain autobahn", format!("{counts}; {}", failed.join(" "))),
    }
    Ok(())
}
