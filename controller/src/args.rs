//! The command line.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use maglor_config::raw;
use maglor_identity::{MAX_TTL, TrustDomain};
use maglor_mcg::Averaging;
use maglor_mcg::rule::Limits;
use maglor_telemetry::logs::{self, Format};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, Options, Source};
use crate::crd;
use crate::gateway;
use crate::graph;
use crate::identity::start::{CaSource, Settings};
use crate::lifecycle;
use crate::proxy_service;
use crate::scope::Scope;
use crate::webhook;

/// What lives shorter is renewed all the time.
const SHORTEST_TTL: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  Tell Kubernetes about the mesh's own resources:
    maglor-controller crds | kubectl apply -f -
  Serve proxies from the cluster of the current kubeconfig:
    maglor-controller --listen 127.0.0.1:15010 --admin 127.0.0.1:15011 --replica first
  The same without Kubernetes, from Services, EndpointSlices, routes and policies in files:
    maglor identity ca --trust-domain mesh.example --out ca
    maglor-controller --folder resources --ca-dir ca --trust-domain mesh.example --tokens tokens
  To try it out, without certificates:
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
    /// Remove what the controller has made and Kubernetes keeps: roots, authority, Leases. Only once it has ended.
    CleanUp {
        /// The mesh's namespace.
        #[arg(long, value_name = "NAME", default_value = "maglor")]
        namespace: String,
    },
    /// Print the definitions of the mesh's own resources as YAML.
    Crds {
        /// Apply them to the cluster instead, but for those of a later version.
        #[arg(long)]
        apply: bool,
    },
    /// Restart workloads without sidecars, after all take plain text; the controller has to run until that is done.
    Uninject {
        /// How long each rollout may take.
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
        patience: Duration,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Read resources from the YAML and JSON files of this folder, and watch it, instead of Kubernetes.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Where proxies are served and certified, gRPC over TLS 1.3; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:15010")]
    listen: SocketAddr,
    /// The admin server: /metrics /ready /live /sessions /receipts /resources /graph /trust.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// What peers from the network get of the admin server: public (/ready, /live, /metrics), or full: everything,
    /// by address and not by name, only on a network where every peer may know it. Over loopback all is answered.
    #[arg(long, value_name = "ACCESS", default_value = "public", value_parser = ["public", "full"])]
    admin_remote_access: String,
    /// Where the API server asks about pods and the mesh's resources (HTTPS): /inject/namespace /inject/pod
    /// /validate. Without: it is not answered.
    #[arg(long, value_name = "ADDR", conflicts_with = "folder")]
    webhook: Option<SocketAddr>,
    /// Where the API server asks how many requests a second ProxyServices have (external.metrics.k8s.io, HTTPS with
    /// the webhook's certificate), for their autoscalers. Without: it is not answered.
    #[arg(long, value_name = "ADDR", requires = "webhook")]
    external_metrics: Option<SocketAddr>,
    /// What sidecars are like, YAML or JSON: {image: …, logLevel: …}; see docs/injection.md.
    #[arg(long, value_name = "SETTINGS", default_value = "{}", value_parser = sidecar)]
    sidecar: maglor_inject::Settings,
    /// The namespace that the controller itself lives in: its Lease is there, and its authority.
    #[arg(long, value_name = "NAME", default_value = "maglor")]
    namespace: String,
    /// Who this replica is, different from every other, such as the pod's name. Default: by process.
    #[arg(long, value_name = "NAME")]
    replica: Option<String>,
    /// Move pods where a PlacementPolicy with `mode: Apply` says so. Without: it is only said what would move.
    #[arg(long, requires = "webhook")]
    placement: bool,
    /// Only of PlacementPolicies that name these namespaces and no other. Default: of all.
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "placement"
    )]
    placement_in: Vec<String>,
    /// Change Deployments, and write TrafficPolicies, where a TuningPolicy with `mode: Apply` says so. Without: it is
    /// only said what would be set.
    #[arg(long, conflicts_with = "folder")]
    tuning: bool,
    /// Only in these namespaces. Default: in all.
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "tuning"
    )]
    tuning_in: Vec<String>,
    /// Write the bound addresses to this file (JSON) once proxies are served.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// `error`, `warn`, `info`, `debug`, `trace`, or by module: `info,maglor_controller::index=trace`.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// `text` or `json`.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: String,
    // Last: a heading holds for all that follows.
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    graph: Graph,
    #[command(flatten)]
    proxies: Proxies,
}

/// How the communication graph is observed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Communication graph")]
struct Graph {
    /// How often proxies report what they send where: 100ms to 1h; 0s: never, and there is no graph.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = load_interval)]
    load_interval: Duration,
    /// T, the window of the moving averages λ and r: 1s or more; best several intervals.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = window)]
    graph_window: Duration,
    /// `decayed`: what is T/2 old counts half. `plain`: all of the window counts alike.
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

/// How clients prove who they are.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Identity")]
struct Identity {
    /// Serve plain text: whoever connects is believed what it says, and nobody is certified. For trials.
    #[arg(long, conflicts_with_all = ["ca_dir", "tokens"])]
    plain_text: bool,
    /// The trust domain that the authority vouches for.
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    trust_domain: TrustDomain,
    /// The authority is in this folder (`maglor identity ca` makes it), not in a Secret.
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// The Secret of the authority, with tls.crt, tls.key and ca.crt; the controller makes it where it is
    /// not there, and only reads one that cert-manager or somebody else has made.
    #[arg(long, value_name = "NAME", default_value = "maglor-ca")]
    ca_secret: String,
    /// Whose tokens are whose, in place of Kubernetes: lines `TOKEN NAMESPACE/SERVICE-ACCOUNT [UNTIL]`.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// How long certificates live: 10s to 24h.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = leaf_ttl)]
    leaf_ttl: Duration,
    /// How long a new root is announced before it signs, even if some proxy has not said to trust it.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    rotation_deadline: Duration,
}

impl Identity {
    fn settings(self, namespace: &str) -> Option<Settings> {
        (!self.plain_text).then(|| Settings {
            trust_domain: self.trust_domain,
            namespace: namespace.to_owned(),
            ttl: self.leaf_ttl,
            ca: match self.ca_dir {
                Some(folder) => CaSource::Folder(folder),
                None => CaSource::Secret {
                    name: self.ca_secret,
                },
            },
            deadline: self.rotation_deadline,
            tokens: self.tokens,
        })
    }
}

/// A time as in configuration files.
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<raw::TimeSpan>()
        .map(|span| span.0)
        .map_err(|error| error.to_string())
}

fn patience(text: &str) -> Result<Duration, String> {
    let patience = time(text)?;
    match (Duration::from_secs(10)..=Duration::from_secs(3600)).contains(&patience) {
        true => Ok(patience),
        false => Err("it must be 10s to 1h".to_owned()),
    }
}

fn load_interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    let least = Duration::from_millis(100);
    match interval.is_zero() || (least..=Duration::from_secs(3600)).contains(&interval) {
        true => Ok(interval),
        false => Err("it must be 100ms to 1h, or 0s".to_owned()),
    }
}

fn window(text: &str) -> Result<Duration, String> {
    let window = time(text)?;
    match window >= Duration::from_secs(1) {
        true => Ok(window),
        false => Err("it must be 1s or more".to_owned()),
    }
}

fn leaf_ttl(text: &str) -> Result<Duration, String> {
    let ttl = time(text)?;
    match (SHORTEST_TTL..=MAX_TTL).contains(&ttl) {
        true => Ok(ttl),
        false => Err("certificates live 10s to 24h".to_owned()),
    }
}

/// The proxies of `ProxyService`s and of Gateways.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Proxies that are started")]
struct Proxies {
    /// Image of the proxies that a ProxyService starts. Default: that of sidecars.
    #[arg(long, value_name = "IMAGE")]
    proxy_image: Option<String>,
    /// Their `imagePullPolicy`. Default: that of sidecars.
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    proxy_pull_policy: Option<String>,
    /// Where they reach this control plane. Default: where sidecars do.
    #[arg(long, value_name = "NAME:PORT")]
    proxy_control_plane: Option<String>,
    /// Start proxies in front of Services, by ProxyServices. `false`: a ProxyService's status says that they are off.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    proxy_services: bool,
    /// Only in these namespaces. Default: in all.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    proxy_services_in: Vec<String>,
    /// Serve Gateways of the Gateway API: read their certificates from Secrets, and start their proxies.
    #[arg(long)]
    gateways: bool,
    /// Only in these namespaces, their Secrets as well. Default: in all.
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "gateways"
    )]
    gateways_in: Vec<String>,
    /// Proxies of a Gateway when it is made.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    gateway_replicas: u32,
    /// The type of a Gateway's Service where its annotation maglor.dev/service-type says none.
    #[arg(long, value_name = "TYPE", default_value = "LoadBalancer", value_parser = ["ClusterIP", "LoadBalancer", "NodePort"])]
    gateway_service_type: String,
    /// Domain of the Services' names. Default: what sidecars are told.
    #[arg(long, value_name = "DOMAIN")]
    cluster_domain: Option<String>,
    /// With `mode: Auto`: what is seen is averaged over so long, and a change is wanted for so long before it is made;
    /// 10s to 1h. After a change nothing is changed for five times as long.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = patience)]
    auto_patience: Duration,
}

impl Proxies {
    fn settings(
        self,
        sidecar: &maglor_inject::Settings,
        trust_domain: Option<String>,
    ) -> proxy_service::Settings {
        let or = |given: Option<String>, other: &String| given.unwrap_or_else(|| other.clone());
        let policy = serde_json::to_value(sidecar.image_pull_policy);
        let policy = policy
            .ok()
            .and_then(|policy| Some(policy.as_str()?.to_owned()));
        proxy_service::Settings {
            trust_domain,
            // Until the cluster says what it knows.
            sleeps: true,
            image: or(self.proxy_image, &sidecar.image),
            pull_policy: self.proxy_pull_policy.or(policy),
            control_plane: or(self.proxy_control_plane, &sidecar.control_plane),
            cluster_domain: or(self.cluster_domain, &sidecar.cluster_domain),
        }
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::CleanUp { namespace }) => {
            once(async |client| lifecycle::clean_up::clean_up(&client, &namespace, &say).await)
        }
        Some(Command::Crds { apply: false }) => crds(),
        Some(Command::Crds { apply: true }) => {
            once(async |client| lifecycle::definitions::apply(&client, &say).await)
        }
        Some(Command::Uninject { patience }) => {
            once(async |client| lifecycle::uninject::uninject(&client, patience, &say).await)
        }
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

fn sidecar(text: &str) -> Result<maglor_inject::Settings, String> {
    maglor_inject::Settings::parse(text).map_err(|error| error.to_string())
}

fn say(line: &str) {
    println!("{line}");
}

/// Does something with the cluster of the kubeconfig, or of the pod that this runs in, and ends.
fn once<F>(task: impl FnOnce(kube::Client) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), lifecycle::LifecycleError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("runtime: {error}"))?;
    runtime.block_on(async {
        let client = crate::api_server::client().await;
        let client = client.map_err(|error| format!("no cluster: {error}"))?;
        task(client).await.map_err(|error| error.to_string())
    })
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
    let mut sidecar = run.sidecar;
    sidecar.complete(&run.namespace, run.identity.trust_domain.as_str());
    let identity = run.identity.settings(&run.namespace);
    let trust_domain = identity.as_ref().map(|one| one.trust_domain.to_string());
    let auto = Limits::patient(run.proxies.auto_patience);
    let inserts = Scope::new(run.proxies.proxy_services, &run.proxies.proxy_services_in);
    let gateways = run.proxies.gateways;
    let scope = Scope::new(gateways, &run.proxies.gateways_in);
    let replicas = run.proxies.gateway_replicas;
    let service_type = run.proxies.gateway_service_type.clone();
    let proxies = run.proxies.settings(&sidecar, trust_domain);
    let gateways = gateways.then(|| {
        Box::new(gateway::run::Options {
            settings: proxies.clone(),
            service_type,
            replicas,
            scope,
        })
    });
    let webhook = run.webhook.map(|listen| webhook::Options {
        listen,
        settings: sidecar,
    });
    let source = match run.folder {
        Some(folder) => Source::Folder(folder),
        None => Source::Kubernetes {
            namespace: run.namespace,
            replica: run
                .replica
                .unwrap_or_else(|| format!("process-{}", std::process::id())),
            proxies,
            inserts,
            gateways,
            moves: Scope::new(run.placement, &run.placement_in),
            tunes: Scope::new(run.tuning, &run.tuning_in),
        },
    };
    let options = Options {
        source,
        listen: run.listen,
        identity,
        graph: run.graph.settings(),
        admin: run.admin,
        admin_opened: run.admin_remote_access == "full",
        webhook,
        external_metrics: run.external_metrics,
        auto,
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
