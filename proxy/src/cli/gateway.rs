//! `maglor-proxy gateway`: a proxy that serves a Gateway.

use std::process::ExitCode;

use clap::Args;
use maglor_config::gateway::Gateway;

use super::member::MemberArgs;
use super::running::RunningArgs;

const HELP: &str = "\
The control plane configures ports, certificates and routes; it identifies the Gateway of this proxy by
POD_NAMESPACE/POD_NAME. Changes need no restart; /ready returns 503 until the configuration has been
received. Certificates are stored in --cache-dir, preferably in memory. See docs/gateway.md.

Example:
  Run the proxy of a Gateway on one machine (ports of the Gateway above 1023):
    maglor-proxy gateway --control-plane 127.0.0.1:15010 --plain-text --bind 127.0.0.1 \\
                         --pod-namespace edge --pod-name web-1 --cache-dir /tmp/web-1";

/// Serve a Gateway of the Gateway API, configured by the control plane.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct GatewayArgs {
    #[command(flatten)]
    member: MemberArgs,

    #[command(flatten)]
    running: RunningArgs,
}

impl GatewayArgs {
    pub(super) fn run(self) -> ExitCode {
        let member = match self.member.read("gateway", self.running.memory_budget) {
            Ok(member) => member,
            Err(code) => return code,
        };
        self.running.run(Gateway { member }.load(), None)
    }
}
