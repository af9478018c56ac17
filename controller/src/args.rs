//! The command line.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use maglor_telemetry::logs::{self, Format};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, Options, Source};
use crate::crd;

const EXAMPLES: &str = "\
Examples:
  Tell Kubernetes about the mesh's own resources:
    maglor-controller crds | kubectl apply -f -
  Serve proxies from the cluster of the current kubeconfig:
    maglor-controller --listen 127.0.0.1:15010 --admin 127.0.0.1:15011
  The same without Kubernetes, from Services, EndpointSlices, routes and policies in files:
    maglor-controller --folder resources --listen 127.0.0.1:15010";

/// The control plane of Maglor.
#[derive(Debug, Parser)]
#[command(
    name = "maglor-controller",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the definitions of the mesh's own resources as YAML.
    Crds,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Read resources from the YAML and JSON files of this folder, and watch it, instead of Kubernetes.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Where proxies are served by xDS over HTTP/2; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:15010")]
    listen: SocketAddr,
    /// The admin server: /metrics /ready /live /sessions /receipts.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// The namespace that the controller itself lives in: its Lease is there.
    #[arg(long, value_name = "NAME", default_value = "maglor-system")]
    namespace: String,
    /// Who this replica is, different from every other, such as the pod's name. Default: by process.
    #[arg(long, value_name = "NAME")]
    replica: Option<String>,
    /// Write the bound addresses to this file (JSON) once proxies are served.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// `error`, `warn`, `info`, `debug`, `trace`, or by module: `info,maglor_controller::index=trace`.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// `text` or `json`.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: String,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::Crds) => crds(),
        None => serve(cli.run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("maglor-controller: {message}");
            ExitCode::FAILURE
        }
    }
}

fn crds() -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for (_, text) in crd::yaml().map_err(|error| error.to_string())? {
        write!(out, "---\n{text}").map_err(|error| format!("cannot write: {error}"))?;
    }
    Ok(())
}

fn serve(run: Run) -> Result<(), String> {
    let format: Format = run
        .log_format
        .parse()
        .map_err(|error| format!("--log-format: {error}"))?;
    logs::init(&run.log_level, format).map_err(|error| format!("--log-level: {error}"))?;
    let source = match run.folder {
        Some(folder) => Source::Folder(folder),
        None => Source::Kubernetes {
            namespace: run.namespace,
            replica: run
                .replica
                .unwrap_or_else(|| format!("process-{}", std::process::id())),
        },
    };
    let options = Options {
        source,
        listen: run.listen,
        admin: run.admin,
        ready_file: run.ready_file,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("runtime: {error}"))?;
    runtime.block_on(async {
        let failed = |error| format!("signals: {error}");
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let outcome = app::run(options, stop).await;
        outcome.map_err(|error| error.to_string())
    })
}
