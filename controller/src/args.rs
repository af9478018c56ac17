//! Command line arguments.

mod dashboard;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod proxies;
#[cfg(any(test, not(feature = "kubernetes")))]
mod without_kubernetes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use maglor_config::raw;
use maglor_identity::{MAX_TTL, TrustDomain};
use maglor_service_graph::Averaging;
use maglor_telemetry::logs::{self, Format};
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "kubernetes")]
use self::kubernetes as cluster;
#[cfg(not(feature = "kubernetes"))]
use self::without_kubernetes as cluster;
use crate::app::{self, Options};
use crate::graph;
use crate::identity::signer::SignerName;
use crate::identity::start::{CaSource, Settings};
use crate::revision::Revision;
use dashboard::Dashboard;
use proxies::Proxies;

/// Shorter lifetimes would cause constant renewal.
const SHORTEST_TTL: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  Install the CustomResourceDefinitions:
    maglor-controller crds | kubectl apply -f -
  Configure proxies from the cluster of the current kubeconfig:
    maglor-controller --listen 127.0.0.1:15010 --admin 127.0.0.1:15011 --replica first
  Configure proxies from manifest files, without Kubernetes:
    maglor identity ca --trust-domain mesh.example --out ca
    maglor-controller --folder resources --ca-dir ca --trust-domain mesh.example --tokens tokens
  Run without TLS, for a trial:
    maglor-controller --folder resources --plain-text";

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
    /// Remove the objects that the controller has created: trust bundles, the Secret of the authority, Leases. Stop the
    /// controller first.
    CleanUp {
        /// Namespace of the mesh.
        #[arg(long, value_name = "NAME", default_value = "maglor")]
        namespace: String,
        /// Remove only the objects of this revision.
        #[arg(long, value_name = "NAME")]
        revision: Option<Revision>,
    },
    /// Print the CustomResourceDefinitions as YAML.
    Crds {
        /// Apply the CustomResourceDefinitions to the cluster, except those already installed in a later version.
        #[arg(long)]
        apply: bool,
    },
    /// Allow plain text everywhere, then restart workloads without sidecars. Keep the controller running until the
    /// command ends.
    Uninject {
        /// Timeout of each rollout.
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
        patience: Duration,
        /// Return the namespaces of this revision to the default control plane instead, and restart their workloads.
        #[arg(long, value_name = "NAME")]
        revision: Option<Revision>,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Read resources from the YAML and JSON files in this directory, and watch the directory, instead of Kubernetes.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Address for xDS and certificate requests of proxies, gRPC over TLS 1.3; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:15010")]
    listen: SocketAddr,
    /// Address of the admin server: /metrics /ready /live /sessions /receipts /resources /graph /trust.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// Pages of the admin server for non-loopback clients: public (/ready, /live, /metrics), or full (all pages; only
    /// on a trusted network, and only for URLs with an IP address as host). Loopback clients get all pages.
    #[arg(long, value_name = "ACCESS", default_value = "public", value_parser = ["public", "full"])]
    admin_remote_access: String,
    /// Address of the admission webhooks (HTTPS): /inject/namespace /inject/pod /validate [default: none].
    #[arg(long, value_name = "ADDR", conflicts_with = "folder")]
    webhook: Option<SocketAddr>,
    /// Address of the external metrics API (external.metrics.k8s.io, HTTPS with the webhook's certificate), which the
    /// autoscalers of ProxyServices use [default: none].
    #[arg(long, value_name = "ADDR", requires = "webhook")]
    external_metrics: Option<SocketAddr>,
    /// Sidecar settings, YAML or JSON: {image: …, logLevel: …}; see docs/injection.md.
    #[arg(long, value_name = "SETTINGS", default_value = "{}", value_parser = sidecar)]
    sidecar: maglor_manifests::inject::Settings,
    /// Namespace of the controller, its Lease and the Secret of its authority.
    #[arg(long, value_name = "NAME", default_value = "maglor")]
    namespace: String,
    /// Run as a named revision next to the default control plane: serve only namespaces with the label
    /// maglor.dev/revision=NAME, and leave statuses, roots and optional features to the default control plane.
    #[arg(long, value_name = "NAME", requires = "webhook",
          conflicts_with_all = ["folder", "ca_dir", "external_metrics", "gateways", "placement", "tuning"])]
    revision: Option<Revision>,
    /// Unique identity of this replica, such as the pod's name [default: derived from the process].
    #[arg(long, value_name = "NAME")]
    replica: Option<String>,
    /// Move pods where a PlacementPolicy has `mode: Apply`; otherwise moves are only recommended.
    #[arg(long, requires = "webhook")]
    placement: bool,
    /// Namespaces in which pods may be moved; a PlacementPolicy that lists another namespace moves none [default: all].
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "placement"
    )]
    placement_in: Vec<String>,
    /// Change Deployments and write TrafficPolicies where a TuningPolicy has `mode: Apply`; otherwise changes are
    /// only recommended.
    #[arg(long, conflicts_with = "folder")]
    tuning: bool,
    /// Namespaces in which TuningPolicies may change objects [default: all].
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "tuning"
    )]
    tuning_in: Vec<String>,
    /// Write the bound addresses to this file (JSON) once the xDS server is up.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Log filter: `error`, `warn`, `info`, `debug`, `trace`, or by module: `info,maglor_controller::index=trace`.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// Log format: `text` or `json`.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: String,
    // Last: a heading applies to all following arguments.
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    graph: Graph,
    #[command(flatten)]
    dashboard: Dashboard,
    #[command(flatten)]
    proxies: Proxies,
}

/// Options of the communication graph.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Communication graph")]
struct Graph {
    /// Interval of the proxies' load reports: 100ms to 1h; 0s disables reports and the graph.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = load_interval)]
    load_interval: Duration,
    /// Averaging window T of call rates (λ) and latencies (r): at least 1s, preferably several report intervals.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = window)]
    graph_window: Duration,
    /// Averaging: `decayed` halves the weight of observations every T/2; `plain` weights the whole window equally.
    #[arg(long, value_name = "HOW", default_value = "decayed")]
    graph_average: Average,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Average {
    Decayed,
    Plain,
}

impl Graph {
    fn settings(&self) -> graph::Settings {
        graph::Settings {
            interval: (!self.load_interval.is_zero()).then_some(self.load_interval),
            window: self.graph_window,
            averaging: match self.graph_average {
                Average::Decayed => Averaging::Decayed,
                Average::Plain => Averaging::Plain,
            },
        }
    }
}

/// Options of client authentication.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity")]
struct Identity {
    /// Disable TLS: clients are not authenticated, and no certificates are issued. For trials only.
    #[arg(long, conflicts_with_all = ["ca_dir", "signer", "tokens"])]
    plain_text: bool,
    /// Trust domain of the authority.
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    trust_domain: TrustDomain,
    /// Directory of the authority (see `maglor identity ca`), instead of a Secret.
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Secret of the authority, with tls.crt, tls.key and ca.crt. The controller creates the Secret if it does not
    /// exist, and does not modify a Secret created by others, such as cert-manager.
    #[arg(long, value_name = "NAME", default_value = "maglor-ca")]
    ca_secret: String,
    /// Let this signer issue all certificates, by CertificateSigningRequests: any signerName, such as
    /// clusterissuers.cert-manager.io/NAME. The Secret then needs only ca.crt, the signer's roots; no key is read or
    /// created.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["ca_dir", "folder"])]
    signer: Option<SignerName>,
    /// File of client tokens, instead of Kubernetes tokens: lines `TOKEN NAMESPACE/SERVICE-ACCOUNT [UNTIL]`.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Lifetime of issued certificates: 10s to 24h.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = leaf_ttl)]
    leaf_ttl: Duration,
    /// Maximum time between the announcement of a new root and its first use for signing, even if a proxy has not
    /// acknowledged the root by then.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    rotation_deadline: Duration,
}

impl Identity {
    fn settings(&self, namespace: &str, revision: &Revision) -> Option<Settings> {
        (!self.plain_text).then(|| Settings {
            trust_domain: self.trust_domain.clone(),
            namespace: namespace.to_owned(),
            service: revision.service(),
            ttl: self.leaf_ttl,
            ca: match (&self.ca_dir, &self.signer) {
                (Some(folder), _) => CaSource::Folder(folder.clone()),
                (None, Some(name)) => CaSource::Signer {
                    name: name.clone(),
                    roots: self.ca_secret.clone(),
                },
                (None, None) => CaSource::Secret {
                    name: self.ca_secret.clone(),
                },
            },
            deadline: self.rotation_deadline,
            tokens: self.tokens.clone(),
        })
    }
}

/// Parses a duration in the format of configuration files.
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<raw::TimeSpan>()
        .map(|span| span.0)
        .map_err(|error| error.to_string())
}

fn load_interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    let least = Duration::from_millis(100);
    match interval.is_zero() || (least..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("must be 100ms to 1h, or 0s".to_owned()),
    }
}

fn window(text: &str) -> Result<Duration, String> {
    let window = time(text)?;
    match window >= Duration::from_secs(1) {
        true => Ok(window),
        false => Err("must be at least 1s".to_owned()),
    }
}

fn leaf_ttl(text: &str) -> Result<Duration, String> {
    let ttl = time(text)?;
    match (SHORTEST_TTL..=MAX_TTL).contains(&ttl) {
        true => Ok(ttl),
        false => Err("must be 10s to 24h".to_owned()),
    }
}

/// The definition of the command line, for man pages and completion scripts.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// Runs the controller.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(command) => cluster::command(&command),
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

fn sidecar(text: &str) -> Result<maglor_manifests::inject::Settings, String> {
    maglor_manifests::inject::Settings::parse(text).map_err(|error| error.to_string())
}

/// Runs a task to its end.
fn block_on(task: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("runtime: {error}"))?;
    runtime.block_on(task)
}

/// Returns a future that resolves when the process should end.
fn termination() -> Result<impl Future<Output = ()>, String> {
    let failed = |error| format!("signals: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn serve(mut run: Run) -> Result<(), String> {
    let format: Format = run
        .log_format
        .parse()
        .map_err(|error| format!("--log-format: {error}"))?;
    logs::init(&run.log_level, format).map_err(|error| format!("--log-level: {error}"))?;
    let Some(folder) = run.folder.take() else {
        return cluster::serve(&run);
    };
    let options = options(&run);
    block_on(async {
        let outcome = app::run(options, folder, termination()?).await;
        outcome.map_err(|error| error.to_string())
    })
}

/// Returns the options of every controller.
fn options(run: &Run) -> Options {
    let revision = run.revision.clone().unwrap_or_default();
    Options {
        listen: run.listen,
        identity: run.identity.settings(&run.namespace, &revision),
        graph: run.graph.settings(),
        dashboard: run.dashboard.options(),
        admin: run.admin,
        admin_opened: run.admin_remote_access == "full",
        ready_file: run.ready_file.clone(),
    }
}
