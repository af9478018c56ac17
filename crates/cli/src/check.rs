//! `maglor check`: validates configuration files, or diagnoses a cluster's mesh.
//!
//! [`files`] checks files. Each of the other modules checks one aspect of a cluster and adds its findings to a
//! [`report`].

mod controller;
mod expiry;
mod files;
mod kubernetes;
mod members;
mod report;
mod trust;
mod webhook;

use std::path::PathBuf;
use std::process::ExitCode;

use maglor_telemetry::command_line::output;

use self::report::Report;
use crate::live::LiveError;
use crate::live::access::{Cluster, Where};
use crate::live::table::Format;

const EXAMPLES: &str = "\
Examples:
  Validate a configuration:
    maglor check maglor.yaml
  Check whether the mesh can be installed:
    maglor check --pre
  Diagnose the mesh of a cluster:
    maglor check
    maglor check --context edge-1 -o json
  Check a controller and a proxy by their admin addresses, without Kubernetes:
    maglor check --controller 127.0.0.1:15011 --proxy web=127.0.0.1:15020

The exit code is 0 on success (also with warnings), 1 if a check of the cluster fails, 2 if a file is invalid.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Proxy configuration files (YAML), instead of a cluster; `-` is standard input.
    #[arg(value_name = "FILE", conflicts_with_all = ["pre", "context", "kubeconfig", "controller", "proxies"])]
    files: Vec<PathBuf>,

    /// Check the prerequisites of an installation.
    #[arg(long, conflicts_with_all = ["controller", "proxies"])]
    pre: bool,

    /// Output format of the findings in a cluster.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if !options.files.is_empty() {
        return files::run(&options.files);
    }
    let mut found = Report::default();
    let done = crate::live::run(async {
        if options.place.is_by_address() {
            addresses(&options.place, &mut found).await;
        } else {
            cluster(options, &mut found).await?;
        }
        output::print(&found.text(options.output));
        Ok(())
    });
    match found.is_good() {
        true => done,
        false => ExitCode::FAILURE,
    }
}

/// Checks the controller and proxies at configured addresses, without Kubernetes.
async fn addresses(place: &Where, report: &mut Report) {
    let controllers = place.addressed_controllers();
    if !controllers.is_empty() {
        controller::replicas(controllers, report).await;
    }
    let proxies = place.addressed_proxies();
    if !proxies.is_empty() {
        members::proxies(&proxies, report).await;
    }
}

async fn cluster(options: &Options, report: &mut Report) -> Result<(), LiveError> {
    let cluster = Cluster::open(&options.place).await?;
    kubernetes::check(&cluster, options.pre, report).await?;
    if options.pre {
        return Ok(());
    }
    kubernetes::definitions(&cluster, report).await;
    let replicas = controller::check(&cluster, report).await?;
    webhook::check(&cluster, &replicas, report).await?;
    trust::check(&cluster, report).await?;
    members::check(&cluster, report).await
}
