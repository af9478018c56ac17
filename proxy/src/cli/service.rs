//! `maglor-proxy service`: a proxy in front of a service of the mesh.

use std::process::ExitCode;

use clap::Args;
use maglor_config::proxy_service::{Forward, ProxyService};

use super::member::MemberArgs;
use super::running::RunningArgs;

const HELP: &str = "\
Each port forwards to one service. The control plane configures its endpoints, its load balancing policy
and its other settings, and updates them without a restart; /ready returns 503 until they have been
received. The proxies of a ProxyService run this command (docs/proxy-service.md). Without Kubernetes, use
a configuration file: `maglor plan proxy-service config`.

Example:
  Forward port 8080 to port 80 (HTTP) of the Service web-target in namespace shop:
    maglor-proxy service --control-plane 10.0.0.1:15010 --plain-text \\
                         --pod-namespace shop --pod-name web-1 \\
                         --forward 8080=http/web-target.shop.svc.cluster.local:80";

/// Run in front of a service and balance its requests, configured by the control plane.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct ServiceArgs {
    #[command(flatten)]
    member: MemberArgs,

    /// Port to listen on, its protocol (http, http2 or tcp), and the service to forward to; may be repeated.
    /// Without --forward, the control plane configures the ports (needs --cache-dir).
    #[arg(long, value_name = "PORT=PROTOCOL/NAME:PORT")]
    forward: Vec<Forward>,

    #[command(flatten)]
    running: RunningArgs,
}

impl ServiceArgs {
    pub(super) fn run(self) -> ExitCode {
        let member = match self.member.read("service", self.running.memory_budget) {
            Ok(member) => member,
            Err(code) => return code,
        };
        let service = ProxyService {
            member,
            forwards: self.forward,
        };
        self.running.run(service.load(), None)
    }
}
