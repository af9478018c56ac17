//! `maglor uninstall sidecars`: removes sidecars from the pods of a cluster, before the mesh is uninstalled.

use std::process::ExitCode;
use std::time::Duration;

use maglor_config::raw::TimeSpan;
use maglor_controller::lifecycle;
use maglor_controller::revision::Revision;

use crate::live;
use crate::live::LiveError;
use crate::live::access::{Cluster, Where};

const EXAMPLES: &str = "\
Examples:
  maglor uninstall sidecars --patience 5m
  maglor uninstall sidecars --revision canary

Steps, in order: delete the webhooks, so that new pods get no sidecars; set MeshConfig and namespaces with `mtls: strict` to
permissive; delete ProxyServices, and restore their Services; restart workloads, a few at a time. The controller must keep
running meanwhile. After an interruption, run the command again.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Timeout of each rollout.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    patience: Duration,
    /// Return the namespaces of this revision to the default control plane instead, and restart their workloads.
    #[arg(long, value_name = "NAME")]
    revision: Option<Revision>,

    #[command(flatten)]
    place: Where,
}

fn time(text: &str) -> Result<Duration, String> {
    let span = text.parse::<TimeSpan>();
    span.map(|span| span.0).map_err(|error| error.to_string())
}

pub(crate) fn run(options: &Options) -> ExitCode {
    live::run(async {
        let cluster = Cluster::open(&options.place).await?;
        let say = |line: &str| maglor_telemetry::command_line::output::print(&format!("{line}\n"));
        let revision = options.revision.clone().unwrap_or_default();
        let done = lifecycle::uninject(&cluster.client, &revision, options.patience, &say).await;
        done.map_err(LiveError::Lifecycle)
    })
}
