//! `maglor-proxy service`: a proxy in front of a service of the mesh.

use std::process::ExitCode;

use clap::Args;
use maglor_config::proxy_service::{Forward, ProxyService};

use super::member::MemberArgs;
use super::running::RunningArgs;

const HELP: &str = "\
Every connection to a port is for one service. Where its servers are, by which policy one is chosen, and
what else is known about it comes from the control plane, and changes when it does; /ready answers 503
until it is known. This is what the proxies of a ProxyService run (docs/proxy-service.md); without
Kubernetes a file does the same: `maglor proxy-service config`.

Example:
  Port 8080 for the Service web-target of namespace shop, which speaks HTTP on its port 80:
    maglor-proxy service --control-plane 10.0.0.1:15010 --plain-text \\
                         --pod-namespace shop --pod-name web-1 \\
                         --forward 8080=http/web-target.shop.svc.cluster.local:80";

/// Run in front of a service and balance its requests, configured by the control plane.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct ServiceArgs {
    #[command(flatten)]
    member: MemberArgs,

    /// A port, what is spoken there (http, http2 or tcp), and the service that it is for. Repeat for more;
    /// none: the control plane says them (needs --cache-dir).
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
