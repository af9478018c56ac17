//! `maglor-proxy sidecar`: a sidecar, configured by flags and by the control plane.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use maglor_config::raw::TimeSpan;
use maglor_config::sidecar::Sidecar;

use super::member::{MemberArgs, time};
use super::running::RunningArgs;

const HELP: &str = "\
The control plane configures the inbound side for the workload POD_NAMESPACE/POD_NAME (mutual TLS,
protocols of ports, authorization), and each service when the application first calls it. Until it has
responded, clients are rejected and /ready returns 503; while it is unavailable, the last configuration
stays in effect. `maglor-proxy init` redirects connections to the proxy.

Examples:
  In a pod, as configured by the injector:
    maglor-proxy init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \\
                      --skip-inbound-ports 15020
    maglor-proxy sidecar

  Print the equivalent file for --config:
    maglor-proxy sidecar --pod-namespace shop --pod-name cart-1 --plain-text --print-config

  On one machine, without Kubernetes and without redirection: the application listens on
  127.0.0.1:8080, clients call it at 127.0.0.2:15006, and it calls other services through
  127.0.0.2:15001 (http_proxy=http://127.0.0.2:15001). See docs/sidecar.md.
    maglor-controller --folder resources --listen 127.0.0.1:15010
    maglor-proxy sidecar --control-plane 127.0.0.1:15010 --plain-text --bind 127.0.0.2 \\
                         --pod-namespace shop --pod-name cart-1 --application 127.0.0.1:8080";

/// Run as the sidecar of one application, configured by the control plane.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct SidecarArgs {
    #[command(flatten)]
    member: MemberArgs,

    /// Port of the listener for connections to the application.
    #[arg(long, value_name = "PORT", default_value_t = 15006)]
    inbound_port: u16,

    /// Port of the listener for connections from the application.
    #[arg(long, value_name = "PORT", default_value_t = 15001)]
    outbound_port: u16,

    /// Address of the application, if connections are not redirected to the proxy. [default: loopback,
    /// with the port that the client connected to]
    #[arg(long, value_name = "ADDR")]
    application: Option<SocketAddr>,

    /// Minimum time that outbound connections continue at shutdown. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    outbound_grace: Option<TimeSpan>,

    /// Health probe that GET /probe/NAME of the admin server sends to the application over loopback:
    /// http:PORT/PATH, tcp:PORT or grpc:PORT/SERVICE. For kubelets, which do not support mutual TLS.
    #[arg(long = "probe", value_name = "NAME=QUESTION", value_parser = probe)]
    probes: Vec<(String, String)>,

    #[command(flatten)]
    running: RunningArgs,
}

fn probe(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, question) =
        pair.ok_or("write NAME=QUESTION, such as web/liveness=http:8080/healthz")?;
    Ok((name.to_owned(), question.to_owned()))
}

impl SidecarArgs {
    pub(super) fn run(self) -> ExitCode {
        let member = match self.member.read("sidecar", self.running.memory_budget) {
            Ok(member) => member,
            Err(code) => return code,
        };
        let sidecar = Sidecar {
            member,
            inbound_port: self.inbound_port,
            outbound_port: self.outbound_port,
            application: self.application,
            outbound_grace: self.outbound_grace,
            probes: self.probes.into_iter().collect(),
        };
        self.running.run(sidecar.load(), None)
    }
}
