//! `maglor-proxy gateway`: a proxy that serves a Gateway.

use std::process::ExitCode;

use clap::Args;
use maglor_config::gateway::Gateway;

use super::member::MemberArgs;
use super::running::RunningArgs;

const HELP: &str = "\
Ports, certificates and routes come from the control plane, which knows by POD_NAMESPACE/POD_NAME which
Gateway this is a proxy of, and change when it does, without a restart; /ready answers 503 until it has
said them. Certificates are kept in --cache-dir, best in memory. docs/gateway.md has all of it.

Example:
  What the control plane starts for a Gateway, on one machine (ports of the Gateway above 1023):
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
