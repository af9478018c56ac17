//! grpc-go's client of our controller, and the program with the Go peers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use serde_json::json;

use super::super::report::Report;
use super::super::tools::{self, Running};
use super::controller::{Controller, NAME, Speaks};
use super::peer::{Counts, Peer, Script};
use super::{Asker, LIMIT};

/// Contains the versions, so that another version is rebuilt.
const FOLDER: &str = "xds-grpc-1.82.0-go-control-plane-0.14.0";

/// Builds `maglor-xds-check`; Go caches what has not changed.
pub(super) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let binary = tools::cache(FOLDER)?.join("maglor-xds-check");
    tools::go_build(root, "xds", "./cmd/maglor-xds-check", &binary)?;
    Ok(binary)
}

pub(super) fn run(controller: &Path, check: &Path, report: &mut Report) -> anyhow::Result<()> {
    let mut command = Command::new(check);
    command.args(["backends", "4"]);
    let mut backends = Running::start(command)?;
    let line = backends.first_line(LIMIT)?;
    let servers: Vec<SocketAddr> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let servers: [SocketAddr; 4] = servers
        .try_into()
        .map_err(|all| anyhow!("expected four servers, found {all:?}"))?;
    let mut controller = Controller::start(controller, Speaks::Grpc)?;
    controller.endpoints("web", &servers[..2])?;
    controller.endpoints("other", &servers[3..])?;
    controller.run()?;
    let asker = Asker::new()?;
    let mut command = Command::new(check);
    command
        .args(["client", NAME])
        .env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap(controller.listen));
    let (running, address) = start(command)?;
    let mut peer = Client {
        address,
        asker: &asker,
    };
    Script {
        name: "grpc-go",
        controller: &mut controller,
        peer: &mut peer,
        servers,
        asker: &asker,
    }
    .run(report);
    report.raw("grpc-go.txt", &running.text()?)
}

/// Starts a program that prints its control address.
pub(super) fn start(command: Command) -> anyhow::Result<(Running, SocketAddr)> {
    let mut running = Running::start(command)?;
    let line = running.first_line(LIMIT)?;
    let address = line
        .parse()
        .with_context(|| format!("invalid address {line}"))?;
    Ok((running, address))
}

/// Returns the bootstrap configuration (gRFC A27); the node's id contains the client's namespace.
fn bootstrap(control: SocketAddr) -> String {
    json!({
        "xds_servers": [{
            "server_uri": control.to_string(),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": {"id": "shop/grpc-go", "cluster": "test"},
    })
    .to_string()
}

struct Client<'a> {
    address: SocketAddr,
    asker: &'a Asker,
}

impl Peer for Client<'_> {
    fn requests(&mut self, count: u32) -> anyhow::Result<Counts> {
        let made = self
            .asker
            .json(self.address, &format!("/calls?n={count}"))?;
        let peers = made["peers"].as_object().context("no `peers`")?;
        let mut counts = Counts {
            failed: u32::try_from(made["failed"].as_u64().unwrap_or(0))?,
            why: made["error"].as_str().unwrap_or_default().to_owned(),
            ..Counts::default()
        };
        for (address, calls) in peers {
            let calls = u32::try_from(calls.as_u64().unwrap_or(0))?;
            counts.answered.insert(address.parse()?, calls);
        }
        Ok(counts)
    }
}
